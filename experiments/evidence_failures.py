"""Tables for "is this class wrong?": selective classification with systems A and B."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from credibly._validation import require
from credibly.metrics import aurc
from credibly.metrics.intervals import Interval, draws
from credibly.metrics.ranking import Failures
from credibly.study import Rows
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
from experiments.markdown import print_table, with_interval

AGAINST = (SOFTMAX, MARGIN, P_NORM)
SMALL = 1000


@dataclass(frozen=True)
class Draws:
    """Settings of the bootstrap."""

    resamples: int = 1000
    seed: int = 0


def failures(rows: Mapping[str, Rows], scale: Scale, plan: Draws) -> dict[str, Any]:
    """Print everything about failures, and return it as plain numbers."""
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
    """Return attacks so small that ranking still makes sense."""
    return [name for name in (f"PGD {eps:g}" for eps in MILD) if name in rows]


def groups(rows: Mapping[str, Rows]) -> dict[str, list[str]]:
    """Return the names of the sets that are averaged over."""
    shifted = [name for name, part in rows.items() if part.kind == "shifted"]
    found = {
        "clean": [name for name, part in rows.items() if part.kind == "ordinary"],
        "damaged, severity 1-2": [name for name in shifted if name[-1] in "12"],
        "damaged, severity 3-5": [name for name in shifted if name[-1] in "345"],
        **{name: [name] for name in mild_names(rows)},
    }
    return {name: names for name, names in found.items() if names}


def some_of(part: Rows, count: int, seed: int) -> Rows:
    """Select the first rows of a seeded random order."""
    order = torch.randperm(len(part.labels), generator=torch.Generator().manual_seed(seed))
    index = order[:count]
    scores = {name: values[index] for name, values in part.scores.items()}
    return Rows(
        part.kind, part.labels[index], part.predicted[index], part.credible[index], scores,
        part.facts,
    )  # fmt: skip


def group(
    rows: Mapping[str, Rows], names: Sequence[str], scale: Scale, plan: Draws
) -> dict[str, Any]:
    """Return the mean AURC over the sets of a group, and the two sums less the baselines.

    The sets of a group have the same images, so an image is drawn for all of them at once.
    """
    columns = {name: failure_columns(rows[name], scale) for name in names}
    sizes = {len(rows[name].labels) for name in names}
    require(
        len(sizes) == 1, "sets", "damaged sets of the same images", f"sizes {sorted(sizes)}",
        "Compute them with the same --sizes.",
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
    """Return the mean AURC over sets in each resample (b,)."""
    ranked = {title: [Failures(*pair) for pair in own] for title, own in pairs.items()}
    found: dict[str, list[Tensor]] = {title: [] for title in pairs}
    for (weights,) in draws([size], plan.resamples, plan.seed):
        for title, rankings in ranked.items():
            values = [ranking.count(weights).aurc() for ranking in rankings]
            found[title].append(torch.stack(values).mean(0))
    return {title: torch.cat(parts) for title, parts in found.items()}


def interval(value: float, drawn: Mapping[str, Tensor], title: str, other: str) -> list[float]:
    """Return a difference with the ends of its 95 % interval."""
    gaps = drawn[title] - drawn[other]
    return [value, *gaps.nanquantile(gaps.new_tensor([0.025, 0.975])).tolist()]


def full_table(part: Rows, scale: Scale, plan: Draws) -> dict[str, Any]:
    """Return all metrics of all scores on one set, each with its difference to max softmax."""
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
    """Return metric -> value, difference to max softmax, and the ends of its interval."""
    return {
        metric: [value, *ends(found.differences[metric])] for metric, value in found.metrics.items()
    }


def ends(given: Interval) -> list[float]:
    """Return value, low and high."""
    return [given.value, given.low, given.high]


def print_groups(grouped: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the AURC of everything, and the differences of the two sums."""
    first = next(iter(grouped.values()))
    areas = {
        title: [f"{1000 * found['aurc'][title]:.1f}" for found in grouped.values()]
        for title in first["aurc"]
    }
    print_table("AURC x 1000 of the model's class", "score", grouped, areas)
    gaps = {
        title: [with_interval(found["differences"][title], 1000) for found in grouped.values()]
        for title in first["differences"]
    }
    print_table("Differences, AURC x 1000 (95 %)", "", grouped, gaps)


def print_full(name: str, table: Mapping[str, Any]) -> None:
    """Print all metrics of a set, and the differences to max softmax of the main scores."""
    systems = {**table["A"], "B: most credible class, by ratio": table["B"]}
    metrics = list(table["B"])
    values = {title: [f"{found[m][0]:.4f}" for m in metrics] for title, found in systems.items()}
    about = f"{name}: {table['samples']} images, {table['left out']} left out"
    print_table(about, "score", metrics, values)
    shown = [t for t in (DEFAULT, PAIR, P_NORM) if t in systems] + [list(systems)[-1]]
    gaps = {
        metric: [with_interval(systems[title][metric][1:], 1000) for title in shown]
        for metric in metrics
    }
    print_table("less max softmax, x 1000 (95 %)", "metric", shown, gaps)
