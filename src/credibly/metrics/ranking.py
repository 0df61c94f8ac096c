"""Samples sorted once by a score, and counts over any resample of them.

A resample is a row of whole weights, one a sample: how often it was drawn. Sorting is done once;
every metric is then a function of two running counts, for many resamples at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from credibly.decide.arguments import plain_tensor
from credibly.errors import InvalidArgumentError
from credibly.types import Array

Weigh = Callable[[Tensor], Tensor]
"""A metric of prepared data: weights (b, n) -> values (b,)."""


@dataclass(frozen=True)
class Tally:
    """Running counts from the highest score down, at the end of each group of ties.

    Attributes:
        seen: samples so far (b, g), of b resamples and g different scores.
        marked: those of them that are marked (failures, or positives).
        harmonic: 1 + 1/2 + ... + 1/k for k = 0 to n (n + 1,).
    """

    seen: Tensor
    marked: Tensor
    harmonic: Tensor

    @cached_property
    def seen_before(self) -> Tensor:
        """The counts before each group (b, g)."""
        return _shifted(self.seen)

    @cached_property
    def marked_before(self) -> Tensor:
        """The marked before each group (b, g)."""
        return _shifted(self.marked)

    @property
    def total(self) -> Tensor:
        """All samples (b,)."""
        return self.seen[:, -1]

    @property
    def total_marked(self) -> Tensor:
        """All marked samples (b,)."""
        return self.marked[:, -1]

    def harmonic_of(self, count: Tensor) -> Tensor:
        """Harmonic numbers of whole counts, of any shape."""
        return self.harmonic[count.round().long()]


@dataclass(frozen=True)
class Ranking:
    """The order of falling scores (n,), where ties end (g,), and who is marked, in that order."""

    order: Tensor
    ends: Tensor
    marked: Tensor
    harmonic: Tensor

    @staticmethod
    def of(score: Tensor, marked: Tensor) -> Ranking:
        """Sort by falling `score`; both (n,), checked before."""
        values, order = torch.sort(score.double(), descending=True, stable=True)
        last = torch.ones_like(values, dtype=torch.bool)
        last[:-1] = values[1:] != values[:-1]
        counts = torch.arange(1, len(score) + 1, dtype=torch.float64, device=score.device)
        harmonic = torch.cat([counts.new_zeros(1), counts.reciprocal().cumsum(0)])
        return Ranking(order, last.nonzero().squeeze(1), marked[order].double(), harmonic)

    def tally(self, weights: Tensor) -> Tally:
        """Counts of resamples, given as weights (b, n) of the samples in their own order."""
        drawn = weights[:, self.order]
        seen, marked = drawn.cumsum(1), (drawn * self.marked).cumsum(1)
        if len(self.ends) < len(self.order):
            seen, marked = seen[:, self.ends], marked[:, self.ends]
        return Tally(seen, marked, self.harmonic)

    def once(self) -> Tally:
        """Counts of the samples as they are."""
        return self.tally(torch.ones_like(self.marked).unsqueeze(0))


def checked_scores(score: Array, name: str) -> Tensor:
    """A vector (n,) of real numbers without NaN, in float64; infinities are allowed."""
    values = plain_tensor(score, name)
    if values.dim() != 1 or len(values) == 0 or values.is_complex():
        raise InvalidArgumentError(
            name,
            expected="one number a sample, at least one",
            got=f"shape {tuple(values.shape)} of {values.dtype}",
            remedy="Pass a vector.",
        )
    if bool(values.isnan().any()):
        raise InvalidArgumentError(
            name,
            expected="numbers",
            got=f"{int(values.isnan().sum())} NaN",
            remedy="Leave out samples that were not solved: profile[profile.usable].",
        )
    return values.double()


def checked_pair(score: Array, correct: Array, name: str = "score") -> tuple[Tensor, Tensor]:
    """Scores (n,) in float64 and whether each prediction is right (n,)."""
    values = checked_scores(score, name)
    right = plain_tensor(correct, "correct").to(values.device)
    if right.shape != values.shape:
        raise InvalidArgumentError(
            name,
            expected="one number a sample, as many as `correct`",
            got=f"shapes {tuple(values.shape)} and {tuple(right.shape)}",
            remedy="Pass two vectors of the same length.",
        )
    if right.dtype != torch.bool:
        if not bool(((right == 0) | (right == 1)).all()):
            raise InvalidArgumentError(
                "correct",
                expected="True or False a sample, or 1 and 0",
                got=f"other values of {right.dtype}",
                remedy="Pass predictions == labels.",
            )
        right = right == 1
    return values, right


def _shifted(running: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(running[:, :1]), running[:, :-1]], dim=1)
