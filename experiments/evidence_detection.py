"""Tables for outliers and tampering: how well a score tells a set from the clean images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from credibly.metrics.measures import aupr, auroc, fpr_at_tpr
from credibly.metrics.resampling import TwoGroups, draws
from credibly.study.study import Rows
from experiments.evidence_columns import Scale, ordinary
from experiments.evidence_failures import Draws, interval, words

Columns = Callable[[Rows, Scale], dict[str, Tensor]]


def detection(
    rows: Mapping[str, Rows], kind: str, columns: Columns, scale: Scale, plan: Draws
) -> dict[str, Any]:
    """Every set of a kind against the clean images; its members are the positives."""
    usual = known(columns(ordinary(rows), scale))
    found = {
        name: told_apart(known(columns(part, scale)), usual, plan)
        for name, part in rows.items()
        if part.kind == kind
    }
    if found:
        print_detection(kind, found)
    return found


def known(columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The samples that have all scores."""
    good = ~torch.stack(list(columns.values())).isnan().any(0)
    return {title: values[good].double() for title, values in columns.items()}


def told_apart(
    outside: Mapping[str, Tensor], inside: Mapping[str, Tensor], plan: Draws
) -> dict[str, Any]:
    """Metrics of each score, and the first, the default, less each other; draws are shared."""
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
    """AUROC of each resample (b,)."""
    sorted_once = {title: TwoGroups.of(*pair) for title, pair in pairs.items()}
    sizes = [len(side) for side in next(iter(pairs.values()))]
    found: dict[str, list[Tensor]] = {title: [] for title in pairs}
    for positive, negative in draws(sizes, plan.resamples, plan.seed):
        for title, one in sorted_once.items():
            found[title].append(one.metrics(positive, negative)["auroc"])
    return {title: torch.cat(parts) for title, parts in found.items()}


def print_detection(kind: str, found: Mapping[str, Mapping[str, Any]]) -> None:
    """AUROC with intervals; the other metrics; the default less its rivals."""
    head = " | ".join(found) + " |\n|---|" + "---|" * len(found)
    titles = list(next(iter(found.values()))["scores"])
    print(f"\nAUROC against clean images: {kind}\n| score | {head}")
    for title in titles:
        cells = [
            "{:.3f} ({:.3f}-{:.3f})".format(*f["scores"][title]["auroc"]) for f in found.values()
        ]
        print(f"| {title} | " + " | ".join(cells) + " |")
    print(f"\nAUPR / AUPR with clean images as positives / FPR95: {kind}\n| score | {head}")
    for title in titles:
        cells = [
            " / ".join(f"{f['scores'][title][m]:.3f}" for m in list(f["scores"][title])[1:])
            for f in found.values()
        ]
        print(f"| {title} | " + " | ".join(cells) + " |")
    print(f"\n{titles[0]} less rivals, AUROC x 100 (95 %): {kind}\n| rival | {head}")
    for title in titles[1:]:
        cells = [words(f["default less"][title], 100) for f in found.values()]
        print(f"| {title} | " + " | ".join(cells) + " |")
