"""From the rows of a study to numbers with intervals: which score ranks best, and by how much.

One draw of resamples serves all scores of a set, so that every difference is paired. Draws are those
of `bootstrap` and `paired_difference` for the same seed and number of samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from credibly.decide.bootstrap import Interval
from credibly.decide.metrics import (
    accuracy_at_coverage,
    augrc,
    aupr,
    aurc,
    auroc,
    coverage_at_accuracy,
    e_aurc,
    failure_auroc,
    failure_fpr_at_tpr,
    fpr_at_tpr,
    prepared,
)
from credibly.decide.ranking import Weigh
from credibly.errors import InvalidArgumentError
from credibly.evaluate.study import Rows
from credibly.evaluate.study_result import (
    DetectionResult,
    FailureResult,
    SetResult,
    StudyResult,
)
from credibly.types import whole_number

COVERAGES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)
REFERENCES = ("max softmax (rival)", "max softmax", "max_softmax")
LEVEL = 0.95

_AT_A_TIME = 1 << 20  # weights held at a time; they stay in the cache of most processors

_FAILURES: dict[str, Any] = {
    "aurc": aurc,
    "auroc": failure_auroc,
    "e_aurc": e_aurc,
    "augrc": augrc,
    "fpr95": failure_fpr_at_tpr,
    **{f"accuracy at {c:g}": partial(accuracy_at_coverage, coverages=c) for c in COVERAGES},
    "coverage at 99 % accuracy": partial(coverage_at_accuracy, target=0.99),
}
_DETECTION: dict[str, Any] = {"auroc": auroc, "aupr": aupr, "fpr95": fpr_at_tpr}
_ALWAYS = ("aurc", "auroc")  # the other intervals are for the ordinary set, since they cost time

_BEST = "most credible class"
Key = tuple[str, str]


def summarise(
    rows: Mapping[str, Rows],
    *,
    reference: str | None = None,
    resamples: int = 1000,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> StudyResult:
    """Metrics of every score on every set, with 95 % bootstrap intervals.

    A sample that lacks one score (it has no profile, say) is left out for all of them, and counted:
    scores are compared on the same samples. On sets other than the ordinary one only AURC and
    AUROC get intervals. An attacked set is held against the ordinary one as a group of its own.

    Args:
        rows: from `Study.run` or `read_study`; exactly one set is ordinary.
        reference: the score that others are compared with; by default the largest softmax.
        resamples: of the bootstrap.
        seed: of the resamples.
        settings: of the study, to be kept with the result.
    """
    ordinary = _ordinary(rows)
    name = _reference(reference, rows)
    count = whole_number(resamples)
    if count is None or count < 1:
        raise InvalidArgumentError(
            "resamples", expected="a whole number >= 1", came=repr(resamples), remedy="Pass 1000."
        )
    plan = _Plan(name, count, seed, _Kept.of(rows[ordinary], ordinary, name))
    sets = {key: plan.of(part, _Kept.of(part, key, name)) for key, part in rows.items()}
    return StudyResult(name, count, seed, sets, dict(settings or {}), dict(rows))


@dataclass(frozen=True)
class _Kept:
    """The samples of a set for which all scores are numbers."""

    scores: Mapping[str, Tensor]
    correct: Tensor
    credible_correct: Tensor
    left_out: int

    @staticmethod
    def of(rows: Rows, name: str, reference: str) -> _Kept:
        known = {key: values for key, values in rows.scores.items() if not values.isnan().all()}
        if reference not in known:
            raise InvalidArgumentError(
                "rows",
                expected=f"the reference score {reference!r} in every set",
                came=f"the set {name!r} without it",
                remedy="Name another reference, or leave out this set.",
            )
        good = ~torch.stack([values.isnan() for values in known.values()]).any(0)
        if not bool(good.any()):
            raise InvalidArgumentError(
                "rows",
                expected="samples that have all scores",
                came=f"none in the set {name!r}",
                remedy="Leave out the set, or the score that fails.",
            )
        return _Kept(
            {key: values[good].double() for key, values in known.items()},
            rows.correct[good],
            rows.credible_correct[good],
            int((~good).sum()),
        )


@dataclass(frozen=True)
class _Plan:
    """What all sets share."""

    reference: str
    resamples: int
    seed: int
    ordinary: _Kept

    def of(self, rows: Rows, kept: _Kept) -> SetResult:
        labelled = rows.kind != "outliers" and bool((rows.labels >= 0).all())
        failures = self._failures(kept, full=rows.kind == "ordinary") if labelled else {}
        best = failures.pop(_BEST, None)
        accuracy = {
            "model": float(kept.correct.double().mean()),
            "most credible": float(kept.credible_correct.double().mean()),
        }
        return SetResult(
            kind=rows.kind,
            samples=len(kept.correct),
            left_out=kept.left_out,
            accuracy=accuracy if labelled else {},
            failures=failures,
            most_credible=best,
            detection=self._detection(kept) if rows.kind in ("attacked", "outliers") else {},
            facts=dict(rows.facts),
        )

    def _failures(self, kept: _Kept, *, full: bool) -> dict[str, FailureResult]:
        pairs = {name: (score, kept.correct) for name, score in kept.scores.items()}
        if "ratio" in kept.scores:
            pairs[_BEST] = (kept.scores["ratio"], kept.credible_correct)
        sizes = [len(kept.correct)]
        weighs = {
            (name, metric): _weigh(function, *pair)
            for name, pair in pairs.items()
            for metric, function in _FAILURES.items()
        }
        once = {key: float(weigh(torch.ones(1, sizes[0]).double())) for key, weigh in weighs.items()}
        drawn = [m for m in _FAILURES if full or m in _ALWAYS]
        values = self._drawn({key: weighs[key] for key in weighs if key[1] in drawn}, sizes)
        return {
            name: FailureResult(
                {metric: once[name, metric] for metric in _FAILURES},
                {m: _interval(once[name, m], values[name, m]) for m in drawn},
                {m: self._difference(once, values, name, m) for m in drawn},
            )
            for name in pairs
        }

    def _detection(self, kept: _Kept) -> dict[str, DetectionResult]:
        weighs: dict[Key, Weigh] = {}
        names = [name for name in kept.scores if name in self.ordinary.scores]
        for name in names:
            inside, outside = self.ordinary.scores[name], kept.scores[name]
            far_inside, far_outside = _distance(inside, inside), _distance(outside, inside)
            for metric, function in _DETECTION.items():
                weighs[name, metric] = _weigh(function, -outside, -inside)
                weighs[name, f"far {metric}"] = _weigh(function, far_outside, far_inside)
        sizes = [len(kept.correct), len(self.ordinary.correct)]
        every = torch.ones(1, sum(sizes)).double()
        once = {key: float(weigh(every)) for key, weigh in weighs.items()}
        values = self._drawn(weighs, sizes)
        found = {key: _interval(once[key], values[key]) for key in weighs}
        return {
            name: DetectionResult(
                {metric: found[name, metric] for metric in _DETECTION},
                {metric: found[name, f"far {metric}"] for metric in _DETECTION},
                self._difference(once, values, name, "auroc"),
                self._difference(once, values, name, "far auroc", "auroc"),
            )
            for name in names
        }

    def _drawn(self, weighs: Mapping[Key, Weigh], sizes: list[int]) -> dict[Key, Tensor]:
        """Each metric of each resample (b,)."""
        found: dict[Key, list[Tensor]] = {key: [] for key in weighs}
        for weights in _resamples(sizes, self.resamples, self.seed):
            for key, weigh in weighs.items():
                found[key].append(weigh(weights).reshape(-1))
        return {key: torch.cat(parts) for key, parts in found.items()}

    def _difference(
        self,
        once: Mapping[Key, float],
        values: Mapping[Key, Tensor],
        name: str,
        metric: str,
        other: str | None = None,
    ) -> Interval:
        base = (self.reference, other or metric)
        return _interval(once[name, metric] - once[base], values[name, metric] - values[base])


def _weigh(metric: Any, *arrays: Tensor) -> Weigh:
    fast = prepared(metric, arrays)
    assert fast is not None  # noqa: S101  # metrics of our own
    return fast[0]


def _distance(values: Tensor, ordinary: Tensor) -> Tensor:
    """How far from the ordinary median; equal infinities are no distance apart."""
    centre = ordinary.quantile(0.5) if len(ordinary) < 1 << 24 else ordinary.median()
    return (values - centre).abs().nan_to_num(nan=0.0, posinf=torch.inf)


def _interval(value: float, values: Tensor) -> Interval:
    tail = (1 - LEVEL) / 2
    low, high = values.nanquantile(values.new_tensor([tail, 1 - tail])).tolist()
    return Interval(value, low, high, LEVEL)


def _resamples(sizes: list[int], count: int, seed: int) -> Iterator[Tensor]:
    """Weights (b, total) in pieces; each group keeps its size."""
    generator = torch.Generator().manual_seed(seed)
    most = max(1, _AT_A_TIME // sum(sizes))
    for first in range(0, count, most):
        piece = min(most, count - first)
        yield torch.cat([_counts(size, piece, generator) for size in sizes], dim=1)


def _counts(size: int, count: int, generator: torch.Generator) -> Tensor:
    drawn = torch.randint(size, (count, size), generator=generator)
    drawn += size * torch.arange(count).unsqueeze(1)
    return torch.bincount(drawn.flatten(), minlength=count * size).reshape(count, size).double()


def _ordinary(rows: Mapping[str, Rows]) -> str:
    found = [name for name, part in rows.items() if part.kind == "ordinary"]
    if len(found) != 1:
        raise InvalidArgumentError(
            "rows",
            expected="exactly one set of kind 'ordinary'",
            came=f"{found}",
            remedy="It is the reference that others are told apart from.",
        )
    return found[0]


def _reference(asked: str | None, rows: Mapping[str, Rows]) -> str:
    known = sorted({name for part in rows.values() for name in part.scores})
    for name in REFERENCES if asked is None else (asked,):
        if name in known:
            return name
    raise InvalidArgumentError(
        "reference",
        expected=f"one of {', '.join(known)}",
        came=repr(asked),
        remedy="Name a score of the study.",
    )
