"""How a notebook shows a `Judge` and what it says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import torch

from credibly._notebook import MOST, Html, bar, block, facts, note, number, percent, table
from credibly.decide.verdict import Verdict
from credibly.explore.built import sign

if TYPE_CHECKING:
    import pandas as pd

    from credibly.decide.judge import Judge
    from credibly.decide.judgement import Judgement

MORE = (
    "All rows: .to_pandas(); one input and what would change its class: .plot(row); "
    "to look through them: .explore()."
)


def verdict_html(verdict: Verdict) -> Html:
    """A verdict with its sign."""
    return Html(f'<span style="white-space:nowrap">{sign(verdict.value)} {verdict}</span>')


def judgement_html(found: Judgement) -> str:
    """Each verdict, how often it was given and what to do; then the least trusted inputs."""
    counts, total = Counter(found.verdicts), max(1, len(found))
    rows = []
    for verdict in Verdict:
        share, right = counts[verdict] / total, found.shares_right.get(verdict.value)
        known = "" if right is None else f" Of such ordinary inputs {percent(right)} are right."
        if counts[verdict]:
            text = f"{verdict.advice}{known}"
            cells = (str(counts[verdict]), bar(share), percent(share), text)
            rows.append([verdict_html(verdict), *cells])
    parts: list[str] = [table(("verdict", "inputs", "", "share", "what to do"), rows, words=5)]
    least = found.trust.nan_to_num(-torch.inf).argsort(stable=True).tolist()
    doubted = [row for row in least if not bool(found.accepted[row])][:MOST]
    if doubted:
        columns = ("row", "verdict", "class", "trust", "why it is not accepted")
        parts += [
            note("The least trusted:"),
            table(columns, [_row(found, k) for k in doubted], words=5),
        ]
    title = f"Judgement of {len(found)} inputs, {found.cost:.2f} passes each"
    return block(title, *parts, note(MORE))


def _row(found: Judgement, row: int) -> list[str]:
    known = int(found.predicted[row]) >= 0
    name = found.class_name(int(found.predicted[row])) if known else "-"
    verdict, trust = found.verdicts[row], number(float(found.trust[row]))
    return [str(row), verdict_html(verdict), name, trust, found.reasons[row]]


def judge_html(judge: Judge) -> str:
    """What it was fitted on, what it promises, and what it costs."""
    known = judge.facts
    proved = f"proved: at most {percent(known.proved)} on average"
    promise = f"{percent(known.false_alarms)} false alarms ({proved})"
    if known.error_rate is not None:
        promise += (
            f"; at most {percent(known.error_rate)} of the accepted are wrong, "
            f"with confidence {known.confidence:.0%}"
        )
    labels = "with labels" if known.labelled else "without labels"
    hidden = judge.examiner.hidden
    pairs = [
        ("fitted on", f"{known.samples} ordinary inputs, {labels}"),
        ("promises", promise),
        ("costs", f"{known.cost:.2f} passes per input (a forward is a third)"),
        (
            "compares",
            "inputs" if hidden is None else f"inputs, features that enter {hidden.name!r}",
        ),
    ]
    if known.left_out:
        pairs.append(("left out", f"{len(known.left_out)} broken or strange inputs"))
    rows = [
        [verdict_html(Verdict(name)), percent(right)] for name, right in known.shares_right.items()
    ]
    parts: list[str] = [facts(pairs)]
    if rows:
        parts.append(table(("ordinary inputs called", "are right"), rows))
    title = f"Judge of {known.classes} classes"
    return block(title, *parts, note("Use it: judge(inputs); keep it: judge.save(folder)."))


def classes_as_words(frame: pd.DataFrame) -> pd.DataFrame:
    """The table of a judgement with classes as text, whether or not they have names."""
    for name in ("predicted", "class"):
        known = zip(frame[name], frame[name].notna(), strict=True)
        frame[name] = [str(value) if yes else None for value, yes in known]
    return frame
