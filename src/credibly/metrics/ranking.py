"""Samples sorted once by a score, and counts over many resamples of them.

Resamples are given as weights (n, b): how often each of n samples was drawn in each of b resamples.
Every metric is a function of running counts down the sorted samples. Most sums run over the
failures (or the positives) alone, which are few. Equal scores are kept together: every area is the
mean over random orders of the ties, and a threshold never splits a group of ties.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from credibly._validation import choice, plain_tensor, require, share
from credibly.types import Array

Positive = Literal["failures", "successes"]

_SLACK = 1e-9  # counts are whole numbers, shares of them are rounded


class TwoGroups:
    """Positives and negatives by falling score; positives should have the higher scores."""

    def __init__(self, positive: Tensor, negative: Tensor) -> None:
        first, second = (-positive).sort(stable=True), (-negative).sort(stable=True)
        self.positive_order, self.negative_order = first.indices, second.indices
        # For each positive, how many samples have a score at least as high, or a higher one.
        self.positives_as_high = torch.searchsorted(first.values, first.values, right=True)
        self.negatives_as_high = torch.searchsorted(second.values, first.values, right=True)
        self.negatives_higher = torch.searchsorted(second.values, first.values)

    def count(self, positive: Tensor, negative: Tensor) -> GroupCounts:
        """Counts for weights (p, b) of the positives and (n, b) of the negatives."""
        return GroupCounts(self, positive, negative)

    def once(self) -> GroupCounts:
        """Counts of the samples as they are."""
        return self.count(_ones(self.positive_order), _ones(self.negative_order))


class GroupCounts:
    """Metrics (b,) of two groups over resamples."""

    def __init__(self, groups: TwoGroups, positive: Tensor, negative: Tensor) -> None:
        order, other = groups.positive_order, groups.negative_order
        self.drawn = positive.to(order.device)[order].double()
        found, false = _running(self.drawn), _running(negative.to(other.device)[other])
        self.positives, self.negatives = found[-1], false[-1].double()
        self.true = found[groups.positives_as_high]
        self.false = false[groups.negatives_as_high].double()
        self.false_higher = false[groups.negatives_higher].double()

    def auroc(self) -> Tensor:
        """Chance that a positive is higher than a negative, ties counted half."""
        lost = (self.drawn * (self.false_higher + self.false)).sum(0) / 2
        return 1 - lost / (self.positives * self.negatives)

    def aupr(self) -> Tensor:
        """Average precision of the positives."""
        precision = (self.true / (self.true + self.false)).nan_to_num(nan=0.0)
        return (precision * self.drawn).sum(0) / self.positives

    def fpr_at(self, tpr: float = 0.95) -> Tensor:
        """Share of negatives at or above the highest threshold that finds this share."""
        wanted = share("tpr", tpr, closed=True) * self.positives - _SLACK
        if len(self.true) == 0:
            return torch.full_like(self.negatives, torch.nan)
        first = (self.true < wanted).sum(0, keepdim=True)
        rate = self.false.gather(0, first)[0] / self.negatives
        return torch.where(self.positives > 0, rate, torch.nan)

    def metrics(self) -> dict[str, Tensor]:
        """All of them."""
        return {"auroc": self.auroc(), "aupr": self.aupr(), "fpr95": self.fpr_at()}


class Failures:
    """Predictions by falling score of trust, and which of them are wrong."""

    def __init__(self, score: Tensor, correct: Tensor) -> None:
        values, self.order = (-score).sort(stable=True)
        self.score, self.correct = score, correct
        self.tie_ends = torch.searchsorted(values, torch.unique(values), right=True)
        self.wrong = (~correct[self.order]).nonzero().squeeze(1)
        # For each failure, how many samples have a higher score, or one at least as high.
        self.before = torch.searchsorted(values, values[self.wrong])
        self.after = torch.searchsorted(values, values[self.wrong], right=True)

    @cached_property
    def failures_first(self) -> TwoGroups:
        """Failures, which should have low scores, against successes."""
        return TwoGroups(-self.score[~self.correct], -self.score[self.correct])

    @cached_property
    def successes_first(self) -> TwoGroups:
        """Successes against failures."""
        return TwoGroups(self.score[self.correct], self.score[~self.correct])

    def count(self, weights: Tensor) -> FailureCounts:
        """Counts for weights (n, b)."""
        return FailureCounts(self, weights)

    def once(self) -> FailureCounts:
        """Counts of the samples as they are."""
        return self.count(_ones(self.order))


class FailureCounts:
    """Metrics (b,) of failures over resamples."""

    def __init__(self, ranking: Failures, weights: Tensor) -> None:
        self.ranking, weights = ranking, weights.to(ranking.order.device)
        self.failed, self.passed = weights[~ranking.correct], weights[ranking.correct]
        self.drawn = weights[ranking.order]
        self.seen = _running(self.drawn)
        self.total, self.errors = self.seen[-1].double(), self.failed.sum(0).double()

    @cached_property
    def _failures_first(self) -> GroupCounts:
        return self.ranking.failures_first.count(self.failed, self.passed)

    def _side(self, positive: Positive) -> GroupCounts:
        remedy = "It says which predictions to find."
        choice("positive", positive, ("failures", "successes"), remedy)
        if positive == "failures":
            return self._failures_first
        return self.ranking.successes_first.count(self.passed, self.failed)

    @cached_property
    def at_tie_ends(self) -> tuple[Tensor, Tensor]:
        """Samples so far and failures among them (g, b), after each group of ties."""
        failures = torch.zeros_like(self.drawn)
        failures[self.ranking.wrong] = self.drawn[self.ranking.wrong]
        ends = self.ranking.tie_ends
        return self.seen[ends], _running(failures)[ends]

    def aurc(self) -> Tensor:
        """Mean over k of the error rate among the k most trusted."""
        # A failure in a group of s ties after N other samples counts 1/k at every k after the
        # group, and its expected share inside the group: 1 - N / s (H(N + s) - H(N)).
        before = self.seen[self.ranking.before].double()
        after = self.seen[self.ranking.after].double()
        h_before, h_after, h_total = (self._harmonic[k.long()] for k in (before, after, self.total))
        size = (after - before).clamp(min=1)  # groups that were not drawn have weight 0
        each = 1 - before / size * (h_after - h_before) + h_total - h_after
        return (self.drawn[self.ranking.wrong] * each).sum(0) / self.total

    def e_aurc(self) -> Tensor:
        """AURC less that of a perfect ranking."""
        right = self.total - self.errors
        tail = self._harmonic[self.total.long()] - self._harmonic[right.long()]
        return self.aurc() - (self.errors - right * tail) / self.total

    def augrc(self) -> Tensor:
        """Area under the share of all samples that is answered and wrong, by trapezoids."""
        rate = self.errors / self.total
        lost = ((1 - self.auroc()) * rate * (1 - rate)).nan_to_num(nan=0.0)
        return lost + rate.square() / 2

    def auroc(self) -> Tensor:
        """Chance that a right prediction is trusted more than a wrong one."""
        return self._failures_first.auroc()

    def aupr(self, positive: Positive = "failures") -> Tensor:
        """Average precision of finding one side."""
        return self._side(positive).aupr()

    def fpr_at(self, tpr: float = 0.95, positive: Positive = "failures") -> Tensor:
        """Share of the other side that is found with this share of one side."""
        return self._side(positive).fpr_at(tpr)

    def accuracy_at(self, coverages: object) -> Tensor:
        """Accuracy (m, b) when at least each of these shares is answered."""
        asked = plain_tensor(coverages, "coverages").reshape(-1).tolist()
        shares = self.total.new_tensor([share("coverages", c, closed=True) for c in asked])
        seen, wrong = self.at_tie_ends
        wanted = (self.total[:, None] * shares - _SLACK).ceil().to(seen.dtype)
        index = torch.searchsorted(seen.T.contiguous(), wanted).T
        return 1 - wrong.gather(0, index).double() / seen.gather(0, index)

    def coverage_at(self, target: float = 0.99) -> Tensor:
        """The largest share that can be answered with at least this accuracy."""
        seen, wrong = self.at_tie_ends
        most = (1 - share("target", target, closed=True)) * seen.double()
        good = (wrong <= most + _SLACK) & (seen > 0)
        return torch.where(good, seen, 0.0).amax(0).double() / self.total

    def metrics(self) -> dict[str, Tensor]:
        """The areas, AUROC and FPR95."""
        areas = {"aurc": self.aurc(), "e_aurc": self.e_aurc(), "augrc": self.augrc()}
        return {**areas, "auroc": self.auroc(), "fpr95": self.fpr_at()}

    @cached_property
    def _harmonic(self) -> Tensor:
        """1 + 1/2 + ... + 1/k for k = 0 to the number of samples."""
        count = len(self.drawn)
        steps = torch.arange(1, count + 1, dtype=torch.float64, device=self.total.device)
        return torch.cat([steps.new_zeros(1), steps.reciprocal().cumsum(0)])


def rank_failures(score: Array, correct: Array) -> Failures:
    """Scores (n,) and whether each prediction is right (n,), checked and sorted."""
    values = _check_scores(score, "score")
    right = plain_tensor(correct, "correct").to(values.device)
    shapes = f"shapes {tuple(values.shape)} and {tuple(right.shape)}"
    expected, remedy = "as many numbers as `correct`", "Pass two vectors of the same length."
    require(right.shape == values.shape, "score", expected, shapes, remedy)
    known = bool(((right == 0) | (right == 1)).all())
    expected, got = "True or False per sample, or 1 and 0", f"other values of {right.dtype}"
    require(known, "correct", expected, got, "Pass predictions == labels.")
    return Failures(values, right == 1)


def rank_groups(positive_scores: Array, negative_scores: Array) -> TwoGroups:
    """Scores of two groups, checked and sorted."""
    first = _check_scores(positive_scores, "positive_scores")
    return TwoGroups(first, _check_scores(negative_scores, "negative_scores").to(first.device))


def _check_scores(score: Array, name: str) -> Tensor:
    """A vector (n,) of real numbers without NaN, in float64; infinities are allowed."""
    values = plain_tensor(score, name)
    vector = values.dim() == 1 and len(values) > 0 and not values.is_complex()
    got = f"shape {tuple(values.shape)} of {values.dtype}"
    require(vector, name, "one number per sample, at least one", got, "Pass a vector.")
    unknown = int(values.isnan().sum())
    remedy = "Leave out samples that were not solved: profile[profile.usable]."
    require(unknown == 0, name, "numbers", f"{unknown} NaN", remedy)
    return values.double()


def _ones(order: Tensor) -> Tensor:
    return torch.ones(len(order), 1, dtype=torch.float64, device=order.device)


def _running(weights: Tensor) -> Tensor:
    """Running counts (n + 1, b), zero first."""
    found = weights.new_zeros(len(weights) + 1, weights.shape[1])
    torch.cumsum(weights, 0, out=found[1:])
    return found
