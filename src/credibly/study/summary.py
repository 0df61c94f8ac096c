"""From the rows of a study to numbers with intervals: which score ranks best, and by how much.

All scores of a set share the same resamples, so every difference is paired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from credibly._validation import require, whole
from credibly._validation import seed as check_seed
from credibly.decide.trust_scores import FAILURE_PARTS, TAMPER_PARTS, spread_of
from credibly.metrics.intervals import Interval, draws
from credibly.metrics.ranking import FailureCounts, Failures, TwoGroups
from credibly.profile.arguments import ticking
from credibly.study.rows import Rows, find_ordinary
from credibly.study.study_result import DetectionResult, FailureResult, SetResult, StudyResult
from credibly.types import Progress

COVERAGES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)
REFERENCES = ("max softmax (baseline)", "max softmax", "max_softmax")
TARGET = 0.99

_DETECTION = ("auroc", "aupr", "fpr95")
_FAR = "far "  # before the names of two-sided metrics
_BEST = "most credible class"
Key = tuple[str, str]
"""The name of a score and that of a metric."""
Measure = Callable[[list[Tensor] | None], dict[Key, Tensor]]
"""Metrics for the weights of resamples, or of the samples as they are."""


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

    A sample that lacks one score (it has no profile, for example) is left out for all of them, and
    counted: scores are compared on the same samples. Accuracy and coverage have intervals on the
    ordinary set only, since they take time. An attacked set is resampled independently of the
    ordinary one, although it may come from the same inputs.

    Args:
        rows: from `Study.run` or `read_study`; exactly one set is ordinary.
        reference: the score that others are compared with; by default the largest softmax.
        resamples: of the bootstrap.
        seed: of the resamples.
        settings: of the study, to be kept with the result.
        progress: as in `credibility`; it counts the sets. One of 10,000 inputs takes half a minute.

    Example:
        >>> import torch, credibly as cr
        >>> labels, predicted = torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0])
        >>> scores = {"max_softmax": torch.tensor([0.9, 0.8, 0.5])}
        >>> rows = cr.study.Rows("ordinary", labels, predicted, predicted, scores, {})
        >>> found = cr.study.summarise({"clean": rows}, resamples=20).sets["clean"]
        >>> found.failures["max_softmax"].metrics["auroc"]
        1.0
    """
    ordinary = find_ordinary("rows", {name: part.kind for name, part in rows.items()})
    rows = _with_defaults(rows, rows[ordinary])
    name = _reference(reference, rows)
    count, seed = whole("resamples", resamples), check_seed(seed)
    plan = _Plan(name, count, seed, _Kept.of(rows[ordinary], ordinary, name))
    sets: dict[str, SetResult] = {}
    with ticking(progress, "intervals") as tick:
        for key, part in rows.items():
            if tick is not None:
                tick(len(sets) / len(rows))
            sets[key] = plan.of(part, _Kept.of(part, key, name))
    return StudyResult(name, count, seed, sets, dict(settings or {}), rows)


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
        expected = f"the reference score {reference!r} in every set"
        remedy = "Name another reference, or leave out this set."
        require(reference in known, "rows", expected, f"the set {name!r} without it", remedy)
        expected, got = "samples that have all scores", f"none in the set {name!r}"
        remedy = "Leave out the set, or the score that fails."
        require(bool(good.any()), "rows", expected, got, remedy)
        return _Kept(
            {key: values[good].double() for key, values in known.items()},
            rows.correct[good],
            rows.credible_correct[good],
            int((~good).sum()),
        )


@dataclass(frozen=True)
class _Metrics:
    """Metrics of the samples as they are, and of each resample (b,)."""

    once: Mapping[Key, float]
    drawn: Mapping[Key, Tensor]

    def interval(self, key: Key) -> Interval:
        return Interval.of(self.once[key], self.drawn[key])

    def difference(self, key: Key, base: Key) -> Interval:
        drawn = self.drawn[key] - self.drawn[base]
        return Interval.of(self.once[key] - self.once[base], drawn)


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
        ranked = {name: Failures(score, kept.correct) for name, score in kept.scores.items()}
        if "ratio" in kept.scores:
            ranked[_BEST] = Failures(kept.scores["ratio"], kept.credible_correct)

        def measure(weights: list[Tensor] | None) -> dict[Key, Tensor]:
            return {
                (name, metric): values
                for name, ranking in ranked.items()
                for metric, values in (
                    _of_failures(ranking.once(), full=True)
                    if weights is None
                    else _of_failures(ranking.count(*weights), full=full)
                ).items()
            }

        found = self._resampled(measure, [len(kept.correct)])
        drawn = [metric for name, metric in found.drawn if name == self.reference]
        return {
            name: FailureResult(
                {metric: value for (n, metric), value in found.once.items() if n == name},
                {m: found.interval((name, m)) for m in drawn},
                {m: found.difference((name, m), (self.reference, m)) for m in drawn},
            )
            for name in ranked
        }

    def _detection(self, kept: _Kept) -> dict[str, DetectionResult]:
        groups: dict[Key, TwoGroups] = {}
        for name, outside in kept.scores.items():
            inside = self.ordinary.scores.get(name)
            if inside is not None:
                groups[name, ""] = TwoGroups(-outside, -inside)
                far = _distance(outside, inside), _distance(inside, inside)
                groups[name, _FAR] = TwoGroups(*far)

        def measure(weights: list[Tensor] | None) -> dict[Key, Tensor]:
            return {
                (name, side + metric): values
                for (name, side), group in groups.items()
                for metric, values in (
                    group.once() if weights is None else group.count(*weights)
                ).metrics().items()
            }  # fmt: skip

        found = self._resampled(measure, [len(kept.correct), len(self.ordinary.correct)])
        base = (self.reference, "auroc")
        return {
            name: DetectionResult(
                {metric: found.interval((name, metric)) for metric in _DETECTION},
                {metric: found.interval((name, _FAR + metric)) for metric in _DETECTION},
                found.difference((name, "auroc"), base),
                found.difference((name, _FAR + "auroc"), base),
            )
            for name in dict.fromkeys(name for name, _ in groups)
        }

    def _resampled(self, measure: Measure, sizes: list[int]) -> _Metrics:
        parts = [measure(weights) for weights in draws(sizes, self.resamples, self.seed)]
        drawn = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
        return _Metrics({key: float(value) for key, value in measure(None).items()}, drawn)


def _of_failures(counts: FailureCounts, *, full: bool) -> dict[str, Tensor]:
    found = counts.metrics()
    if full:
        accuracy = counts.accuracy_at(COVERAGES)
        found |= {f"accuracy at {c:g}": v for c, v in zip(COVERAGES, accuracy, strict=True)}
        found["coverage at 99 % accuracy"] = counts.coverage_at(TARGET)
    return found


def _distance(values: Tensor, ordinary: Tensor) -> Tensor:
    """Distance from the ordinary median; that of equal infinities is 0."""
    middle = ordinary.sort().values[(len(ordinary) - 1) // 2]
    return (values - middle).abs().nan_to_num(nan=0.0, posinf=torch.inf)


def _reference(asked: str | None, rows: Mapping[str, Rows]) -> str:
    known = sorted({name for part in rows.values() for name in part.scores})
    found = [n for n in (REFERENCES if asked is None else (asked,)) if n in known]
    expected = f"one of {', '.join(known)}"
    require(len(found) > 0, "reference", expected, repr(asked), "Name a score of the study.")
    return found[0]


def _with_defaults(rows: Mapping[str, Rows], ordinary: Rows) -> dict[str, Rows]:
    """Add the default scores for failures and for tampering, where the rows have their parts.

    They are sums of other scores, balanced by the ordinary set, and need no further solve.
    """
    known = ordinary.scores
    found = dict(rows)
    if _has(ordinary, FAILURE_PARTS):
        for key, part in found.items():
            terms = [k / spread_of(known[n]) * part.scores[n] for n, k in FAILURE_PARTS.items()]
            found[key] = _add(part, "failure_score", terms)
    if _has(ordinary, TAMPER_PARTS):
        for key, part in found.items():
            away = {n: (part.scores[n] - known[n].nanquantile(0.5)).abs() for n in TAMPER_PARTS}
            terms = [-values / spread_of(known[n]) for n, values in away.items()]
            found[key] = _add(part, "tamper_score", terms)
    return found


def _has(rows: Rows, names: Iterable[str]) -> bool:
    """Whether all of these scores are there, with at least one number."""
    return all(n in rows.scores and not bool(rows.scores[n].isnan().all()) for n in names)


def _add(rows: Rows, name: str, terms: list[Tensor]) -> Rows:
    return replace(rows, scores={**rows.scores, name: torch.stack(terms).sum(0)})
