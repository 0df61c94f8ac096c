"""From the rows of a study to numbers with intervals: which score ranks best, and by how much.

One draw of resamples serves all scores of a set, so that every difference is paired.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.metrics.intervals import Interval
from credibly.metrics.measures import (
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
)
from credibly.metrics.resampling import Failures, TwoGroups, draws
from credibly.profile.arguments import Progress, check_seed, ticking
from credibly.study.defaults import with_defaults
from credibly.study.study import Rows
from credibly.study.study_result import (
    DetectionResult,
    FailureResult,
    SetResult,
    StudyResult,
)
from credibly.types import whole_number

COVERAGES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)
REFERENCES = ("max softmax (baseline)", "max softmax", "max_softmax")
LEVEL = 0.95
TARGET = 0.99

_FAILURES: dict[str, Any] = {
    "aurc": aurc,
    "auroc": failure_auroc,
    "e_aurc": e_aurc,
    "augrc": augrc,
    "fpr95": failure_fpr_at_tpr,
    **{f"accuracy at {c:g}": partial(accuracy_at_coverage, coverages=c) for c in COVERAGES},
    "coverage at 99 % accuracy": partial(coverage_at_accuracy, target=TARGET),
}
_SHARES = [*(f"accuracy at {c:g}" for c in COVERAGES), "coverage at 99 % accuracy"]
_DETECTION: dict[str, Any] = {"auroc": auroc, "aupr": aupr, "fpr95": fpr_at_tpr}
_FAR = "far "  # before the names of two-sided metrics

_BEST = "most credible class"
Key = tuple[str, str]


def summarise(
    rows: Mapping[str, Rows],
    *,
    reference: str | None = None,
    resamples: int = 1000,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    progress: Progress = False,
) -> StudyResult:
    """Metrics of every score on every set, with 95 % bootstrap intervals.

    A sample that lacks one score (it has no profile, say) is left out for all of them, and counted:
    scores are compared on the same samples. Accuracy and coverage have intervals on the ordinary
    set only, since they take the time. An attacked set is held against the ordinary one as a group
    of its own, although it may come from the same inputs.

    Args:
        rows: from `Study.run` or `read_study`; exactly one set is ordinary.
        reference: the score that others are compared with; by default the largest softmax.
        resamples: of the bootstrap.
        seed: of the resamples.
        settings: of the study, to be kept with the result.
        progress: as in `credibility`; it counts the sets. One of 10,000 inputs takes half a minute.
    """
    ordinary = _ordinary(rows)
    rows = with_defaults(rows, rows[ordinary])
    name = _reference(reference, rows)
    count = whole_number(resamples)
    if count is None or count < 1:
        raise InvalidArgumentError(
            "resamples", expected="a whole number >= 1", got=repr(resamples), remedy="Pass 1000."
        )
    seed = check_seed(seed)
    plan = _Plan(name, count, seed, _Kept.of(rows[ordinary], ordinary, name))
    sets: dict[str, SetResult] = {}
    with ticking(progress, "intervals") as tick:
        for key, part in rows.items():
            if tick is not None:
                tick(len(sets) / len(rows))
            sets[key] = plan.of(part, _Kept.of(part, key, name))
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
        known, good = rows.complete()
        if reference not in known:
            raise InvalidArgumentError(
                "rows",
                expected=f"the reference score {reference!r} in every set",
                got=f"the set {name!r} without it",
                remedy="Name another reference, or leave out this set.",
            )
        if not bool(good.any()):
            raise InvalidArgumentError(
                "rows",
                expected="samples that have all scores",
                got=f"none in the set {name!r}",
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
        once = {
            (name, metric): float(function(*pair))
            for name, pair in pairs.items()
            for metric, function in _FAILURES.items()
        }
        values = self._failures_drawn(pairs, full=full)
        drawn = [metric for metric in _FAILURES if (self.reference, metric) in values]
        return {
            name: FailureResult(
                {metric: once[name, metric] for metric in _FAILURES},
                {metric: _interval(once[name, metric], values[name, metric]) for metric in drawn},
                {metric: self._difference(once, values, name, metric) for metric in drawn},
            )
            for name in pairs
        }

    def _failures_drawn(
        self, pairs: Mapping[str, tuple[Tensor, Tensor]], *, full: bool
    ) -> dict[Key, Tensor]:
        """Each metric of each resample (b,)."""
        ranked = {name: Failures.of(*pair) for name, pair in pairs.items()}
        found: dict[Key, list[Tensor]] = defaultdict(list)
        size = len(pairs[self.reference][0])
        for (weights,) in draws([size], self.resamples, self.seed):
            for name, ranking in ranked.items():
                values = ranking.metrics(weights)
                if full:
                    shares = ranking.shares(weights, COVERAGES, TARGET)
                    values |= dict(zip(_SHARES, shares, strict=True))
                for metric, numbers in values.items():
                    found[name, metric].append(numbers)
        return {key: torch.cat(parts) for key, parts in found.items()}

    def _detection(self, kept: _Kept) -> dict[str, DetectionResult]:
        sides: dict[Key, tuple[Tensor, Tensor]] = {}
        for name, outside in kept.scores.items():
            inside = self.ordinary.scores.get(name)
            if inside is not None:
                sides[name, ""] = -outside, -inside
                sides[name, _FAR] = _distance(outside, inside), _distance(inside, inside)
        once = {
            (name, side + metric): float(function(*pair))
            for (name, side), pair in sides.items()
            for metric, function in _DETECTION.items()
        }
        values = self._detection_drawn(sides)
        found = {key: _interval(once[key], values[key]) for key in once}
        return {
            name: DetectionResult(
                {metric: found[name, metric] for metric in _DETECTION},
                {metric: found[name, _FAR + metric] for metric in _DETECTION},
                self._difference(once, values, name, "auroc"),
                self._difference(once, values, name, _FAR + "auroc", "auroc"),
            )
            for name in dict.fromkeys(name for name, _ in sides)
        }

    def _detection_drawn(self, sides: Mapping[Key, tuple[Tensor, Tensor]]) -> dict[Key, Tensor]:
        groups = {key: TwoGroups.of(*pair) for key, pair in sides.items()}
        sizes = [len(part) for part in sides[self.reference, ""]]
        found: dict[Key, list[Tensor]] = defaultdict(list)
        for positive, negative in draws(sizes, self.resamples, self.seed):
            for (name, side), group in groups.items():
                for metric, numbers in group.metrics(positive, negative).items():
                    found[name, side + metric].append(numbers)
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


def _distance(values: Tensor, ordinary: Tensor) -> Tensor:
    """How far from the ordinary median; equal infinities are no distance apart."""
    middle = ordinary.sort().values[(len(ordinary) - 1) // 2]
    return (values - middle).abs().nan_to_num(nan=0.0, posinf=torch.inf)


def _interval(value: float, values: Tensor) -> Interval:
    tail = (1 - LEVEL) / 2
    low, high = values.nanquantile(values.new_tensor([tail, 1 - tail])).tolist()
    return Interval(value, low, high, LEVEL)


def _ordinary(rows: Mapping[str, Rows]) -> str:
    found = [name for name, part in rows.items() if part.kind == "ordinary"]
    if len(found) != 1:
        raise InvalidArgumentError(
            "rows",
            expected="exactly one set of kind 'ordinary'",
            got=f"{found}",
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
        got=repr(asked),
        remedy="Name a score of the study.",
    )
