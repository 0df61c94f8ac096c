"""Tables for "is this class wrong?": selective classification with systems A and B."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.metrics.intervals import Interval
from credibly.metrics.measures import aurc
from credibly.metrics.resampling import Failures, draws
from credibly.study.study import Rows
from credibly.study.study_result import FailureResult
from credibly.study.summary import summarise
from experiments.evidence_columns import (
    DEFAULT,
    MARGIN,
    P_NORM,
    PAIR,
    SOFTMAX,
    Scale,
    failure_columns,
    ordinary,
)
from experiments.evidence_sets import MILD

AGAINST = (SOFTMAX, MARGIN, P_NORM)
SMALL = 1000


@dataclass(frozen=True)
class Draws:
    """Of the bootstrap."""

    resamples: int = 1000
    seed: int = 0


def failures(rows: Mapping[str, Rows], scale: Scale, plan: Draws) -> dict[str, Any]:
    """Everything about failures, printed and as plain numbers."""
    grouped = {name: group(rows, names, scale, plan) for name, names in groups(rows).items()}
    print_groups(grouped)
    clean = ordinary(rows)
    sets = {"clean": clean, f"clean, {SMALL} of them": some_of(clean, SMALL, plan.seed)}
    sets |= {name: rows[name] for name in mild_names(rows)}
    full = {name: full_table(part, scale, plan) for name, part in sets.items()}
    for name, table in full.items():
        print_full(name, table)
    return {"groups": grouped, "sets": full}


def mild_names(rows: Mapping[str, Rows]) -> list[str]:
    """Attacks so small that ranking still means something."""
    return [name for name in (f"PGD {eps:g}" for eps in MILD) if name in rows]


def groups(rows: Mapping[str, Rows]) -> dict[str, list[str]]:
    """Names of the sets that are averaged over."""
    shifted = [name for name, part in rows.items() if part.kind == "shifted"]
    found = {
        "clean": [name for name, part in rows.items() if part.kind == "ordinary"],
        "damaged, severity 1-2": [name for name in shifted if name[-1] in "12"],
        "damaged, severity 3-5": [name for name in shifted if name[-1] in "345"],
        **{name: [name] for name in mild_names(rows)},
    }
    return {name: names for name, names in found.items() if names}


def some_of(part: Rows, count: int, seed: int) -> Rows:
    """The first rows of a seeded random order."""
    order = torch.randperm(len(part.labels), generator=torch.Generator().manual_seed(seed))
    return rows_of(part, order[:count])


def rows_of(part: Rows, index: Tensor) -> Rows:
    """Some rows."""
    scores = {name: values[index] for name, values in part.scores.items()}
    return Rows(
        part.kind, part.labels[index], part.predicted[index], part.credible[index], scores,
        part.facts,
    )  # fmt: skip


def group(
    rows: Mapping[str, Rows], names: Sequence[str], scale: Scale, plan: Draws
) -> dict[str, Any]:
    """Mean AURC over the sets of a group, and paired differences of the two sums to rivals.

    The sets of a group are of the same images, so an image is drawn for all of them at once.
    """
    columns = {name: failure_columns(rows[name], scale) for name in names}
    sizes = {len(rows[name].labels) for name in names}
    if len(sizes) > 1:
        raise InvalidArgumentError(
            "sets", expected="damaged sets of the same images", got=f"sizes {sorted(sizes)}",
            remedy="Compute them with the same --sizes.",
        )  # fmt: skip
    every = [values for found in columns.values() for values in found.values()]
    known = (~torch.stack(every).isnan().any(0)).nonzero().squeeze(1)
    pairs = {
        title: [(columns[name][title][known], rows[name].correct[known]) for name in names]
        for title in columns[names[0]]
    }
    pairs["most credible class"] = [
        (rows[name].scores["ratio"][known], rows[name].credible_correct[known]) for name in names
    ]
    drawn = drawn_means({t: pairs[t] for t in (DEFAULT, PAIR, *AGAINST)}, len(known), plan)
    areas = {title: sum(aurc(*pair) for pair in own) / len(own) for title, own in pairs.items()}
    return {
        "sets": len(names),
        "samples": len(known),
        "aurc": areas,
        "differences": {
            f"{title} less {other}": interval(areas[title] - areas[other], drawn, title, other)
            for title in (DEFAULT, PAIR)
            for other in AGAINST
        },
    }


def drawn_means(
    pairs: Mapping[str, Sequence[tuple[Tensor, Tensor]]], size: int, plan: Draws
) -> dict[str, Tensor]:
    """Mean AURC over sets in each resample (b,)."""
    ranked = {title: [Failures.of(*pair) for pair in own] for title, own in pairs.items()}
    found: dict[str, list[Tensor]] = {title: [] for title in pairs}
    for (weights,) in draws([size], plan.resamples, plan.seed):
        for title, rankings in ranked.items():
            values = [ranking.metrics(weights)["aurc"] for ranking in rankings]
            found[title].append(torch.stack(values).mean(0))
    return {title: torch.cat(parts) for title, parts in found.items()}


def interval(value: float, drawn: Mapping[str, Tensor], title: str, other: str) -> list[float]:
    """A difference with the ends of its 95 % interval."""
    gaps = drawn[title] - drawn[other]
    return [value, *gaps.nanquantile(gaps.new_tensor([0.025, 0.975])).tolist()]


def full_table(part: Rows, scale: Scale, plan: Draws) -> dict[str, Any]:
    """All metrics of all scores on one set, each with its difference to max softmax."""
    alone = replace(part, kind="ordinary", scores=failure_columns(part, scale))
    result = summarise({"set": alone}, reference=SOFTMAX, resamples=plan.resamples, seed=plan.seed)
    found = result.sets["set"]
    assert found.most_credible is not None
    return {
        "samples": found.samples,
        "left out": found.left_out,
        "accuracy": dict(found.accuracy),
        "A": {title: numbers(one) for title, one in found.failures.items()},
        "B": numbers(found.most_credible),
    }


def numbers(found: FailureResult) -> dict[str, list[float]]:
    """Metric -> value, difference to max softmax, and the ends of its interval."""
    return {
        metric: [value, *ends(found.differences[metric])] for metric, value in found.metrics.items()
    }


def ends(given: Interval) -> list[float]:
    """Value, low and high."""
    return [given.value, given.low, given.high]


def print_groups(grouped: Mapping[str, Mapping[str, Any]]) -> None:
    """AURC of everything, and the differences of the two sums."""
    print("\nAURC x 1000, the model's class kept\n| score | " + " | ".join(grouped) + " |")
    print("|---|" + "---|" * len(grouped))
    for title in next(iter(grouped.values()))["aurc"]:
        cells = [f"{1000 * found['aurc'][title]:.1f}" for found in grouped.values()]
        print(f"| {title} | " + " | ".join(cells) + " |")
    print("\nDifferences, AURC x 1000 (95 %)\n| | " + " | ".join(grouped) + " |")
    print("|---|" + "---|" * len(grouped))
    for title in next(iter(grouped.values()))["differences"]:
        cells = [words(found["differences"][title], 1000) for found in grouped.values()]
        print(f"| {title} | " + " | ".join(cells) + " |")


def print_full(name: str, table: Mapping[str, Any]) -> None:
    """All metrics of a set; then what differs from max softmax, for the scores that matter."""
    print(f"\n{name}: {table['samples']} images, {table['left out']} left out")
    systems = {**table["A"], "B: most credible class, by ratio": table["B"]}
    metrics = list(table["B"])
    print("| score | " + " | ".join(metrics) + " |\n|---|" + "---|" * len(metrics))
    for title, found in systems.items():
        cells = [f"{found[m][0]:.4f}" for m in metrics]
        print(f"| {title} | " + " | ".join(cells) + " |")
    shown = [t for t in (DEFAULT, PAIR, P_NORM) if t in systems] + [list(systems)[-1]]
    print("\nless max softmax, x 1000 (95 %)")
    print("| metric | " + " | ".join(shown) + " |\n|---|" + "---|" * len(shown))
    for metric in metrics:
        cells = [words(systems[title][metric][1:], 1000) for title in shown]
        print(f"| {metric} | " + " | ".join(cells) + " |")


def words(numbers_of: Sequence[float], factor: float) -> str:
    """A difference with its interval."""
    value, low, high = (factor * v for v in numbers_of)
    return f"{value:+.2f} ({low:+.2f} to {high:+.2f})"
