"""How a notebook shows a `Profile`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from credibly._notebook import MOST, block, facts, note, number, percent, table

if TYPE_CHECKING:
    from credibly.profile.profile import Profile

COLUMNS = ("row", "class at x0", "class at x+", "distance |x+ - x0|", "passes", "ended")


def profile_html(profile: Profile) -> str:
    """What was solved, how it ended, and the first rows."""
    size = profile.settings.classes_in_words() if profile.kept is not None else ""
    classes = size or f"{profile.credibility.shape[1]} classes"
    ended = Counter(profile.status)
    words = "; ".join(
        f"{count} {status.label} ({status.advice.partition('. ')[0].rstrip('.')})"
        for status, count in sorted(ended.items())
    )
    pairs = [("trade-off", profile.settings.weights_in_words()), ("ended", words)]
    good = profile.usable
    if bool(good.any()):
        same = profile.credibility.argmax(1) == profile.predicted_column
        distance, passes = profile.risk[good].sqrt().median(), profile.passes[good].median()
        pairs += [
            ("class at x+ as at x0", percent(float(same[good].double().mean()))),
            ("distance |x+ - x0|", f"{number(float(distance))} (median)"),
            ("passes per input", f"{float(passes):.0f} (median)"),
        ]
    shown = [_row(profile, row) for row in range(min(MOST, len(profile)))]
    title = f"Profile of {len(profile)} inputs, {classes}"
    return block(title, facts(pairs), table(COLUMNS, shown, words=3), note(_more(len(profile))))


def _row(profile: Profile, row: int) -> list[str]:
    one = profile.select(slice(row, row + 1))
    usable = bool(one.usable)
    classes = (int(one.predicted), int(one.ranking()[0, 0]))
    before, after = (one.class_name(k) for k in classes) if usable else ("-", "-")
    distance = float(one.risk.sqrt()) if usable else float("nan")
    label = one.status[0].label
    return [str(row), before, after, number(distance), f"{float(one.passes):.0f}", label]


def _more(rows: int) -> str:
    first = f"The first {MOST} of {rows} rows. " if rows > MOST else ""
    return f"{first}All of them: .to_pandas(); in words: print(profile.summary())."
