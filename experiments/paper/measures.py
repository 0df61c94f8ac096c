"""Numbers of solved sets: accuracies, filtered accuracies, and how far profiles moved.

Sets have tensors (restarts, n, ...); intervals resample images and keep all their restarts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from credibly.metrics import (
    accuracy_at_coverage,
    aurc,
    coverage_at_accuracy,
    failure_auroc,
)
from credibly.metrics.intervals import Interval, bootstrap, paired_difference

GRID = tuple(round(0.02 * k, 2) for k in range(1, 51))
"""Coverages at which curves are kept."""

RESAMPLES = 1000
FEW = 200
"""Resamples where each one has to sort."""

Numbers = dict[str, Any]


def number(value: float, digits: int = 6) -> float | None:
    """Round a number for JSON; None if it is not finite."""
    if not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def as_list(interval: Interval) -> list[float | None]:
    """Return [value, low, high]."""
    return [number(v) for v in (interval.value, interval.low, interval.high)]


def mean_of(values: Tensor) -> list[float | None]:
    """Return the mean over images of (n,), with its 95 % bootstrap interval."""
    column = values.double().cpu()
    means = resamples(len(column)).double() @ column / len(column)
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return [number(v) for v in (float(column.mean()), low, high)]


def quantile_of(values: Tensor, share: float) -> list[float | None]:
    """Return a quantile over images of (n,), with its 95 % bootstrap interval."""

    def quantile(drawn: Tensor) -> float:
        return float(drawn.quantile(share))

    return as_list(bootstrap(quantile, values.double().cpu(), n=RESAMPLES))


@lru_cache(maxsize=4)
def resamples(count: int) -> Tensor:
    """Count how often each image is drawn in each resample (RESAMPLES, n), with a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for _ in range(RESAMPLES):
        drawn = torch.randint(count, (count,), generator=generator)
        rows.append(torch.bincount(drawn, minlength=count).to(torch.int16))
    return torch.stack(rows)


def spread_of(values: Tensor) -> Numbers:
    """Return mean, smallest and largest of one number per restart."""
    return {
        "mean": number(float(values.mean())),
        "least": number(float(values.min())),
        "most": number(float(values.max())),
    }


def answers(found: Mapping[str, Tensor], which: str) -> Tensor:
    """Return whether the answers of 'softmax' or 'profile' are right (restarts, n)."""
    return right(found["c0"] if which == "softmax" else found["c"], found["labels"])


def right(values: Tensor, labels: Tensor) -> Tensor:
    """Return whether the largest of (..., n, K) is that of the label; NaN counts as wrong."""
    return (values.argmax(-1) == labels) & ~values.isnan().any(-1)


def overconfidence(found: Mapping[str, Tensor]) -> list[float | None]:
    """Return the mean of the largest softmax output, exp(c0), less the accuracy."""
    sure = found["c0"].double().amax(2).exp()
    return mean_of((sure - answers(found, "softmax").double()).mean(0))


def accuracy(correct: Tensor) -> Numbers:
    """Measure (restarts, n): mean, each restart, and the worst case of each image."""
    each = correct.double()
    return {
        "accuracy": mean_of(each.mean(0)),
        "restarts": [number(v) for v in each.mean(1).tolist()],
        "right": each.sum(1).long().tolist(),
        "images": correct.shape[1],
        "worst_case": mean_of(correct.all(0)),
    }


def curve(score: Tensor, correct: Tensor) -> Numbers:
    """Return filtered accuracy at the coverages of GRID, over restarts (restarts, n)."""
    each = torch.stack(
        [accuracy_at_coverage(s, c, GRID) for s, c in zip(score, correct, strict=True)]
    )
    area = torch.tensor([aurc(s, c) for s, c in zip(score, correct, strict=True)])
    return {
        "mean": [number(v, 4) for v in each.mean(0).tolist()],
        "least": [number(v, 4) for v in each.amin(0).tolist()],
        "most": [number(v, 4) for v in each.amax(0).tolist()],
        "aurc": spread_of(area),
        "auroc": as_list(bootstrap(failure_auroc, score[0], correct[0], n=FEW)),
    }


def regained(score: Tensor, correct: Tensor, target: float) -> float:
    """Return the largest share that can be answered with an accuracy; 0 if none."""
    return coverage_at_accuracy(score, correct, target) if target > 0 else 1.0


def coverage_to_regain(score: Tensor, correct: Tensor, other: Tensor) -> Numbers:
    """Return the coverage at which a filter has the accuracy of `other` on all images.

    All are (restarts, n); the interval is that of the first restart.
    """
    triples = zip(score, correct, other, strict=True)
    each = torch.tensor([regained(s, c, float(o.double().mean())) for s, c, o in triples])

    def metric(s: Tensor, c: Tensor, o: Tensor) -> float:
        return regained(s, c, float(o.double().mean()))

    first = bootstrap(metric, score[0], correct[0], other[0].double(), n=FEW)
    return {**spread_of(each), "first": as_list(first)}


def auroc_difference(found: Mapping[str, Tensor]) -> list[float | None]:
    """Return the AUROC of the profile's filter less that of softmax, each for its own answers."""
    left, right = answers(found, "profile")[0], answers(found, "softmax")[0]
    gap = paired_difference(
        failure_auroc,
        found["profile_score"][0],
        found["softmax_score"][0],
        left,
        correct_b=right,
        n=FEW,
    )
    return as_list(gap)


def normalised(profiles: Tensor) -> Tensor:
    """Sort profiles (n, K) from the largest, and scale each to [0, 1]."""
    ordered = profiles.double().sort(dim=1, descending=True).values
    low, high = ordered[:, -1:], ordered[:, :1]
    return (ordered - low) / (high - low).clamp(min=torch.finfo(torch.float64).tiny)


def movements(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return how far each profile moved (n,), in the first restart."""
    c0, c = found["c0"][0].double(), found["c"][0].double()
    before, after = normalised(c0), normalised(c)
    return {
        "class kept": (c.argmax(1) == c0.argmax(1)).double(),
        "relative shift": (c - c0).norm(dim=1) / c0.norm(dim=1),
        "normalised change": (after - before).abs().mean(1),
        "second value before": before[:, 1],
        "second value after": after[:, 1],
        "risk": found["risk"][0].double(),
        "objective": found["objective"][0].double(),
        "norm before": c0.square().sum(1),
    }


def settled(found: Mapping[str, Tensor]) -> Numbers:
    """Return quantiles of the relative stationarity at the end of the solve."""
    values = found["stationarity"].double().flatten()
    quantiles = torch.tensor([0.5, 0.95], dtype=torch.float64)
    middle, most = values[values.isfinite()].quantile(quantiles).tolist()
    return {"stationarity": {"median": number(middle, 3), "95 %": number(most, 3)}}


def spread(profiles: Tensor) -> float:
    """Return the mean standard deviation over images of sorted profiles (n, K), by rank."""
    return float(profiles[:, 1:-1].std(dim=0, correction=0).mean())
