"""How well a score ranks: failures of a classifier, or outliers among its inputs.

A score of trust is higher where the prediction is more trustworthy. Equal scores are kept together
at their mean risk: every metric is what random orders of the ties give on average, except where a
threshold has to be chosen, which cannot lie inside a group of ties. All is computed in float64.

Failure metrics take `(score, correct)`. Metrics of two groups take `(positive_scores,
negative_scores)` and expect positives to have the higher numbers. Outliers are positive, as in
OpenOOD v1.5, so with scores of trust it is `auroc(-outliers, -inliers)`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from credibly.decide.arguments import plain_tensor
from credibly.errors import InvalidArgumentError
from credibly.metrics.ranking import Ranking, Tally, Weigh, checked_pair, checked_scores
from credibly.types import Array, real_number

Positive = Literal["failures", "successes"]

_SLACK = 1e-9  # counts are whole; shares of them are rounded


@dataclass(frozen=True)
class ErrorCoverageCurve:
    """Risk (m,) over the most trusted share `coverage` (m,), a point after each group of ties.

    Attributes:
        coverage: share of the samples that is answered.
        error_rate: share of the answered that is wrong.
        generalised_risk: share of *all* samples that is answered and wrong.
    """

    coverage: Tensor
    error_rate: Tensor
    generalised_risk: Tensor


def error_coverage(score: Array, correct: Array) -> ErrorCoverageCurve:
    """Both risks as more and more samples are answered, the most trusted first.

    Args:
        score: higher is more trustworthy (n,).
        correct: whether each prediction is right (n,).
    """
    tally = _failures(score, correct).once()
    seen, wrong = tally.seen[0], tally.marked[0]
    return ErrorCoverageCurve(seen / tally.total, wrong / seen, wrong / tally.total)


def aurc(score: Array, correct: Array) -> float:
    """Area under the curve of selective risk over coverage: lower is better.

    The mean over k = 1 to n of the risk among the k most trusted (Geifman, Uziel, El-Yaniv 2019).
    A useless score has the error rate, on average.

    Args:
        score: higher is more trustworthy (n,).
        correct: whether each prediction is right (n,).
    """
    return float(_aurc(_failures(score, correct).once()))


def e_aurc(score: Array, correct: Array) -> float:
    """AURC less that of a perfect ranking with as many failures: 0 is perfect.

    The perfect one is computed for the n samples at hand. Its limit for large n, which Geifman et
    al. 2019 subtract, is r + (1 - r) log(1 - r) with r the error rate. `score` and
    `correct` are as in `aurc`.
    """
    return float(_e_aurc(_failures(score, correct).once()))


def augrc(score: Array, correct: Array) -> float:
    """Area under the curve of generalised risk over coverage: lower is better.

    By trapezoids (Traub et al. 2024), so that with AUROC that of failures and a the accuracy it is
    (1 - AUROC) a (1 - a) + (1 - a)^2 / 2, with ties or without. A useless score has (1 - a) / 2.
    `score` and `correct` are as in `aurc`.
    """
    return float(_augrc(_failures(score, correct).once()))


def accuracy_at_coverage(
    score: Array, correct: Array, coverages: float | Sequence[float] | Tensor
) -> Tensor:
    """Accuracy (m,) when at least each of these shares is answered, as few more as ties allow."""
    ranking = _failures(score, correct)
    return _accuracy_at(ranking.once(), coverages=coverages)[0]


def coverage_at_accuracy(score: Array, correct: Array, target: float = 0.99) -> float:
    """The largest share that can be answered with at least this accuracy; 0 if there is none."""
    return float(_coverage_at(_failures(score, correct).once(), target=target))


def failure_auroc(score: Array, correct: Array) -> float:
    """Chance that a right prediction is trusted more than a wrong one, ties counted half.

    It is the same whichever side is called positive. NaN where all predictions are right, or all
    wrong.
    """
    return float(1 - _auroc(_failures(score, correct).once()))


def failure_aupr(score: Array, correct: Array, *, positive: Positive = "failures") -> float:
    """Average precision of finding the failures (or the successes) by a score of trust."""
    return float(_aupr(_one_side(score, correct, positive).once()))


def failure_fpr_at_tpr(
    score: Array, correct: Array, tpr: float = 0.95, *, positive: Positive = "failures"
) -> float:
    """FPR95 of failure prediction.

    With 'failures' positive (as Granese et al. 2021 report it): the share of the right predictions
    that is rejected when at least 95 % of the wrong ones are. With 'successes' (Moon et al. 2020):
    the share of the wrong ones that is answered when at least 95 % of the right ones are.
    """
    return float(_fpr_at(_one_side(score, correct, positive).once(), tpr=tpr))


def auroc(positive_scores: Array, negative_scores: Array) -> float:
    """Chance that a positive has a higher score than a negative, ties counted half.

    Args:
        positive_scores: (n,), expected to be the higher ones.
        negative_scores: (m,).
    """
    return float(_auroc(_two_groups(positive_scores, negative_scores).once()))


def aupr(positive_scores: Array, negative_scores: Array) -> float:
    """Average precision of the positives: sum of precision times the step in recall.

    For the other side pass `aupr(-negative_scores, -positive_scores)`. (OpenOOD joins the points by
    straight lines instead, which flatters a little.)
    """
    return float(_aupr(_two_groups(positive_scores, negative_scores).once()))


def fpr_at_tpr(positive_scores: Array, negative_scores: Array, tpr: float = 0.95) -> float:
    """Share of the negatives at or above the highest threshold that finds this share of positives.

    For outliers as in OpenOOD v1.5: `fpr_at_tpr(-outliers, -inliers)` with scores of trust.

    Args:
        positive_scores: (n,), expected to be the higher ones.
        negative_scores: (m,).
        tpr: the share of positives to find.
    """
    return float(_fpr_at(_two_groups(positive_scores, negative_scores).once(), tpr=tpr))


def prepared(metric: Callable[..., Any], arrays: Sequence[Array]) -> tuple[Weigh, bool] | None:
    """A metric of this module as a function of weights (b, n), and whether it has two groups.

    With two groups the weights of the positives come first. A `functools.partial` with keywords is
    looked into. None for any other function.
    """
    settings: dict[str, Any] = {}
    if isinstance(metric, partial):
        if metric.args:
            return None
        settings = dict(metric.keywords)
        metric = metric.func
    if not isinstance(metric, Hashable) or metric not in _PARTS:
        return None
    if len(arrays) != 2:
        raise InvalidArgumentError(
            "arrays", expected="two for this metric", got=str(len(arrays)), remedy="See its help."
        )
    ranked, kernel, two = _PARTS[metric]
    positive = {k: settings.pop(k) for k in ("positive",) if k in settings}
    ranking = ranked(*arrays, **positive)
    return lambda weights: kernel(ranking.tally(weights), **settings), two


def _failures(score: Array, correct: Array) -> Ranking:
    """The most trusted first, failures marked."""
    values, right = checked_pair(score, correct)
    return Ranking.of(values, ~right)


def _one_side(score: Array, correct: Array, positive: Positive = "failures") -> Ranking:
    """The likeliest positives first, positives marked."""
    values, right = checked_pair(score, correct)
    if positive == "failures":
        return Ranking.of(-values, ~right)
    if positive == "successes":
        return Ranking.of(values, right)
    raise InvalidArgumentError(
        "positive",
        expected="'failures' or 'successes'",
        got=repr(positive),
        remedy="It says which predictions are to be found.",
    )


def _two_groups(positive_scores: Array, negative_scores: Array) -> Ranking:
    first = checked_scores(positive_scores, "positive_scores")
    second = checked_scores(negative_scores, "negative_scores").to(first.device)
    marked = torch.cat([torch.ones_like(first), torch.zeros_like(second)])
    return Ranking.of(torch.cat([first, second]), marked)


def _aurc(tally: Tally) -> Tensor:
    # In a group of s ties with e failures the expected risk among the first k, N samples and E
    # failures having come before, is (E + (k - N) e / s) / k; its sum over the group is closed.
    size, wrong = tally.seen - tally.seen_before, tally.marked - tally.marked_before
    rate = torch.where(size > 0, wrong / size, 0.0)
    excess = tally.marked_before - tally.seen_before * rate
    steps = tally.harmonic_of(tally.seen) - tally.harmonic_of(tally.seen_before)
    return (wrong + excess * steps).sum(1) / tally.total


def _e_aurc(tally: Tally) -> Tensor:
    count, wrong = tally.total, tally.total_marked
    right = count - wrong
    best = wrong - right * (tally.harmonic_of(count) - tally.harmonic_of(right))
    return _aurc(tally) - best / count


def _augrc(tally: Tally) -> Tensor:
    size = tally.seen - tally.seen_before
    return (size * (tally.marked + tally.marked_before) / 2).sum(1) / tally.total.square()


def _auroc(tally: Tally) -> Tensor:
    negatives = tally.total - tally.total_marked
    size = (tally.seen - tally.marked) - (tally.seen_before - tally.marked_before)
    above = (size * (tally.marked + tally.marked_before) / 2).sum(1)
    return above / (tally.total_marked * negatives)


def _failure_auroc(tally: Tally) -> Tensor:
    return 1 - _auroc(tally)


def _aupr(tally: Tally) -> Tensor:
    precision = torch.where(tally.seen > 0, tally.marked / tally.seen, 0.0)
    return (precision * (tally.marked - tally.marked_before)).sum(1) / tally.total_marked


def _fpr_at(tally: Tally, *, tpr: float = 0.95) -> Tensor:
    share = _share("tpr", tpr)
    wanted = (tally.total_marked * share - _SLACK).unsqueeze(1)
    group = torch.searchsorted(tally.marked, wanted)
    false = (tally.seen - tally.marked).gather(1, group)
    rate = false.squeeze(1) / (tally.total - tally.total_marked)
    return torch.where(tally.total_marked > 0, rate, torch.nan)


def _accuracy_at(tally: Tally, *, coverages: float | Sequence[float] | Tensor) -> Tensor:
    shares = plain_tensor(coverages, "coverages").reshape(-1).tolist()
    asked = torch.tensor([_share("coverages", share) for share in shares], dtype=torch.float64)
    wanted = tally.total[:, None] * asked.to(tally.seen.device) - _SLACK
    group = torch.searchsorted(tally.seen, wanted)
    return 1 - tally.marked.gather(1, group) / tally.seen.gather(1, group)


def _coverage_at(tally: Tally, *, target: float = 0.99) -> Tensor:
    most = 1 - _share("target", target)
    good = (tally.marked <= most * tally.seen + _SLACK) & (tally.seen > 0)
    return torch.where(good, tally.seen, 0.0).amax(1) / tally.total


def _share(name: str, value: object) -> float:
    number = real_number(value)
    if number is None or not 0 < number <= 1:
        raise InvalidArgumentError(
            name, expected="a share in (0, 1]", got=repr(value), remedy="0.95 is 95 %."
        )
    return number


_PARTS: dict[Callable[..., Any], tuple[Callable[..., Ranking], Callable[..., Tensor], bool]] = {
    aurc: (_failures, _aurc, False),
    e_aurc: (_failures, _e_aurc, False),
    augrc: (_failures, _augrc, False),
    accuracy_at_coverage: (_failures, _accuracy_at, False),
    coverage_at_accuracy: (_failures, _coverage_at, False),
    failure_auroc: (_failures, _failure_auroc, False),
    failure_aupr: (_one_side, _aupr, False),
    failure_fpr_at_tpr: (_one_side, _fpr_at, False),
    auroc: (_two_groups, _auroc, True),
    aupr: (_two_groups, _aupr, True),
    fpr_at_tpr: (_two_groups, _fpr_at, True),
}
"""How each metric sorts its data, what it makes of the counts, and whether it has two groups."""
