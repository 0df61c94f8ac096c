"""Rank candidates for the defaults, on sets made from the held-out slice only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from credibly.decide.trust_scores import FAILURE_PARTS
from credibly.metrics import aurc, auroc
from credibly.metrics.intervals import paired_difference
from credibly.study import Rows
from experiments.evidence_columns import (
    BASELINES,
    SOFTMAX,
    Scale,
    ordinary,
    outlier_columns,
    tamper_columns,
)
from experiments.evidence_detection import known
from experiments.evidence_failures import ends, groups
from experiments.markdown import print_table, with_interval

BASES = {
    "softmax_ratio": "softmax_ratio",
    "max_softmax": BASELINES[SOFTMAX],
    "p-norm": "p_norm",
    "p-norm, p chosen": BASELINES["max logit, p-norm, p chosen"],
}
SHARES = (0.25, 0.5, 1.0)
PROFILE = ("predicted_ratio", "margin")
SUMS = {
    "shift + 2 energy": {"shift": 1.0, "energy (baseline)": 2.0},
    "shift + half energy": {"shift": 1.0, "energy (baseline)": 0.5},
    "shift + half gain": {"shift": 1.0, "gain": 0.5},
    "shift + 2 gain": {"shift": 1.0, "gain": 2.0},
    "shift + max logit": {"shift": 1.0, "max logit (baseline)": 1.0},
    "gain + energy": {"gain": 1.0, "energy (baseline)": 1.0},
    "shift + energy + gain": {"shift": 1.0, "energy (baseline)": 1.0, "gain": 1.0},
}
"""Sums for outliers; energy and max logit need logits, which a profile knows up to a constant."""
TWO_SIDED_SUMS = (
    ("shift", "elasticity"),
    ("shift", "gain"),
    ("shift", "softmax_ratio"),
    ("gain", "softmax_ratio"),
    ("elasticity", "softmax_ratio"),
    ("shift", "gain", "softmax_ratio"),
    ("shift", BASELINES[SOFTMAX]),
    (BASELINES[SOFTMAX], "energy (baseline)"),
)
"""Sums of distances for tampering; the last one uses baselines alone."""


def candidates() -> dict[str, dict[str, float]]:
    """Return sums for failures: a softmax score, and a share of a score at x+."""
    found = {}
    for title, base in BASES.items():
        found[title] = {base: 1.0}
        for other in PROFILE:
            for share in SHARES:
                found[f"{title} + {share:g} {other}"] = {base: 1.0, other: share}
    return found


def choose(held: Mapping[str, Rows], scale: Scale) -> dict[str, Any]:
    """Print the three rankings, and return them."""
    return {
        "failures": choose_failures(held, scale),
        "outliers": choose_detection(held, scale, "outliers"),
        "tampering": choose_detection(held, scale, "attacked"),
    }


def choose_failures(held: Mapping[str, Rows], scale: Scale) -> dict[str, Any]:
    """Rank by AURC: by the mean over groups of the ratio to max softmax."""
    parts = {name: [held[n] for n in names] for name, names in groups(held).items()}
    table = {
        title: {name: mean_area(own, shares, scale) for name, own in parts.items()}
        for title, shares in candidates().items()
    }
    base = table["max_softmax"]
    some = [name for name in parts if base[name] > 0]  # a group without errors cannot rank
    rank = {t: sum(row[g] / base[g] for g in some) / max(1, len(some)) for t, row in table.items()}
    clean = ordinary(held)
    present = scale.balanced(clean, FAILURE_PARTS)
    found, lines = {}, {}
    for title in sorted(rank, key=lambda t: rank[t]):
        own = scale.balanced(clean, candidates()[title])
        good = ~(own.isnan() | present.isnan())
        gap = ends(paired_difference(aurc, own[good], present[good], clean.correct[good]))
        areas = [f"{1000 * table[title][name]:.1f}" for name in parts]
        lines[title] = [f"{rank[title]:.3f}", *areas, with_interval(gap, 1000)]
        found[title] = {"mean ratio": rank[title], "aurc": table[title], "less default": gap}
    print_table(
        "AURC x 1000 on the held-out slice; ranked by the mean ratio to max softmax",
        "candidate", ["mean ratio", *parts, "clean, less the default (95 %)"], lines,
    )  # fmt: skip
    return found


def mean_area(parts: list[Rows], shares: Mapping[str, float], scale: Scale) -> float:
    """Return the mean AURC over sets; samples without a profile are left out."""
    areas = []
    for part in parts:
        score = scale.balanced(part, shares)
        good = ~score.isnan()
        areas.append(aurc(score[good], part.correct[good]))
    return sum(areas) / len(areas)


def choose_detection(held: Mapping[str, Rows], scale: Scale, kind: str) -> dict[str, Any]:
    """Rank by AUROC against the held-out images: by the mean over sets."""
    usual = known(suspects(ordinary(held), scale, kind))
    parts = {n: known(suspects(p, scale, kind)) for n, p in held.items() if p.kind == kind}
    if not parts:
        return {}
    table = {
        title: {name: float(auroc(-own[title], -usual[title])) for name, own in parts.items()}
        for title in usual
    }
    mean = {title: sum(row.values()) / len(row) for title, row in table.items()}
    lines = {
        title: [f"{mean[title]:.3f}", *(f"{value:.3f}" for value in table[title].values())]
        for title in sorted(mean, key=lambda t: -mean[t])
    }
    title = f"AUROC against the held-out images: {kind}"
    print_table(title, "candidate", ["mean", *parts], lines)
    return {title: {"mean": mean[title], "auroc": table[title]} for title in table}


def suspects(part: Rows, scale: Scale, kind: str) -> dict[str, Tensor]:
    """Return the columns of the tables, and further sums."""
    if kind == "outliers":
        sums = {title: scale.balanced(part, shares) for title, shares in SUMS.items()}
        return outlier_columns(part, scale) | sums
    found = tamper_columns(part, scale)
    for names in TWO_SIDED_SUMS:
        sides = torch.stack([scale.two_sided(part, name) for name in names])
        found[f"two-sided {' + '.join(names)}"] = sides.sum(0)
    return found
