"""Tables for outliers and tampering: how well a score separates a set from clean images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from credibly.metrics import aupr, auroc, fpr_at_tpr
from credibly.metrics.intervals import draws
from credibly.metrics.ranking import TwoGroups
from credibly.study import Rows
from experiments.evidence_columns import Scale, ordinary
from experiments.evidence_failures import Draws, interval
from experiments.markdown import print_table, with_interval

Columns = Callable[[Rows, Scale], dict[str, Tensor]]


def detection(
    rows: Mapping[str, Rows], kind: str, columns: Columns, scale: Scale, plan: Draws
) -> dict[str, Any]:
    """Compare every set of a kind, the positives, with the clean images."""
    usual = known(columns(ordinary(rows), scale))
    found = {
        name: separate(known(columns(part, scale)), usual, plan)
        for name, part in rows.items()
        if part.kind == kind
    }
    if found:
        print_detection(kind, found)
    return found


def known(columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Select the samples that have all scores."""
    good = ~torch.stack(list(columns.values())).isnan().any(0)
    return {title: values[good].double() for title, values in columns.items()}


def separate(
    outside: Mapping[str, Tensor], inside: Mapping[str, Tensor], plan: Draws
) -> dict[str, Any]:
    """Return metrics of each score, and differences of the first, the default, to the others."""
    pairs = {title: (-outside[title], -inside[title]) for title in outside}
    drawn = drawn_areas(pairs, plan)
    default = next(iter(pairs))
    areas = {title: float(auroc(*pair)) for title, pair in pairs.items()}
    nothing = {title: torch.zeros_like(values) for title, values in drawn.items()}
    scores = {
        title: {
            "auroc": interval(areas[title], drawn | {"": nothing[title]}, title, ""),
            "aupr": float(aupr(*pair)),
            "aupr, clean as positive": float(aupr(-pair[1], -pair[0])),
            "fpr95": float(fpr_at_tpr(*pair)),
        }
        for title, pair in pairs.items()
    }
    gaps = {
        title: interval(areas[default] - areas[title], drawn, default, title)
        for title in pairs
        if title != default
    }
    return {"samples": len(outside[default]), "scores": scores, "default less": gaps}


def drawn_areas(pairs: Mapping[str, tuple[Tensor, Tensor]], plan: Draws) -> dict[str, Tensor]:
    """Return the AUROC of each resample (b,)."""
    sorted_once = {title: TwoGroups(*pair) for title, pair in pairs.items()}
    sizes = [len(side) for side in next(iter(pairs.values()))]
    found: dict[str, list[Tensor]] = {title: [] for title in pairs}
    for positive, negative in draws(sizes, plan.resamples, plan.seed):
        for title, one in sorted_once.items():
            found[title].append(one.count(positive, negative).auroc())
    return {title: torch.cat(parts) for title, parts in found.items()}


def print_detection(kind: str, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Print AUROC with intervals, the other metrics, and the default less the baselines."""
    titles = list(next(iter(found.values()))["scores"])
    scores = {title: [part["scores"][title] for part in found.values()] for title in titles}
    areas = {
        title: ["{:.3f} ({:.3f}-{:.3f})".format(*one["auroc"]) for one in own]
        for title, own in scores.items()
    }
    print_table(f"AUROC against clean images: {kind}", "score", found, areas)
    others = {
        title: [" / ".join(f"{one[metric]:.3f}" for metric in list(one)[1:]) for one in own]
        for title, own in scores.items()
    }
    metrics = "AUPR / AUPR with clean images as positives / FPR95"
    print_table(f"{metrics}: {kind}", "score", found, others)
    gaps = {
        title: [with_interval(part["default less"][title], 100) for part in found.values()]
        for title in titles[1:]
    }
    less = f"{titles[0]} less baselines, AUROC x 100 (95 %): {kind}"
    print_table(less, "baseline", found, gaps)
