"""How a notebook shows a `StudyResult`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from credibly._notebook import MOST, block, note, number, percent, table

if TYPE_CHECKING:
    from credibly.metrics.intervals import Interval
    from credibly.study.study_result import SetResult, StudyResult


def study_html(result: StudyResult) -> str:
    """The best scores to rank errors of the ordinary set, and to flag each other set."""
    ordinary = result.sets[result.ordinary]
    columns = ("score", "AURC (%)", f"less {result.reference} [95 % interval]", "AUROC")
    parts: list[str] = [
        note(
            f"Set “{result.ordinary}”: {ordinary.samples} inputs, the model is right on "
            f"{percent(ordinary.accuracy.get('model', float('nan')))}. Scores that rank its errors "
            "best (low AURC is good):"
        ),
        table(columns, _failures(ordinary)),
    ]
    flagged = [
        [name, part.kind, str(part.samples), *_best(part)]
        for name, part in result.sets.items()
        if part.detection
    ]
    if flagged:
        names = ("set", "kind", "inputs", "best score", "AUROC [95 % interval]")
        parts += [note("Scores that tell other sets from it best:"), table(names, flagged, words=2)]
    parts.append(
        note("All numbers: result.sets; a page: `credibly evaluate`, or result.save(folder).")
    )
    return block(f"StudyResult: {len(result.sets)} sets", *parts)


def _failures(part: SetResult) -> list[list[str]]:
    ordered = sorted(part.failures, key=lambda name: part.failures[name].metrics["aurc"])
    rows = []
    for name in ordered[:MOST]:
        found = part.failures[name]
        gap = found.differences.get("aurc")
        known = number(100 * found.metrics["aurc"]), "" if gap is None else _interval(gap, 100)
        rows.append([name, *known, number(found.metrics["auroc"])])
    return rows


def _best(part: SetResult) -> tuple[str, str]:
    best = max(part.detection, key=lambda name: part.detection[name].metrics["auroc"].value)
    return best, _interval(part.detection[best].metrics["auroc"], 1)


def _interval(interval: Interval, factor: float) -> str:
    value, low, high = (number(factor * k) for k in (interval.value, interval.low, interval.high))
    return f"{value} [{low}, {high}]"
