"""Metrics of many scores on many resamples, quickly.

The same numbers as `bootstrap` gives, in another layout: a row a sample, a column a resample. What
is sorted are whole rows, and most sums run over the failures (or the positives) only, which are
few. Weights are whole numbers: how often a sample was drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_DRAWN = 1 << 20  # weights drawn at a time, as in `bootstrap`
_AT_A_TIME = 1 << 18  # weights handled at a time; they stay in the cache of most processors
_EXACT = 1 << 24  # up to here float32 counts exactly
_SLACK = 1e-9  # counts are whole; shares of them are rounded


def draws(sizes: Sequence[int], count: int, seed: int) -> Iterator[list[Tensor]]:
    """Weights (size, b) of each group, in pieces; the draws are those of `bootstrap`."""
    generator = torch.Generator().manual_seed(seed)
    total = sum(sizes)
    dtype = torch.float32 if total < _EXACT else torch.float64
    most, few = (max(1, limit // total) for limit in (_DRAWN, _AT_A_TIME))
    for first in range(0, count, most):
        piece = min(most, count - first)
        groups = [_counts(size, piece, generator).to(dtype) for size in sizes]
        for part in zip(*(torch.split(group, few) for group in groups), strict=True):
            yield [group.T.contiguous() for group in part]


def _counts(size: int, count: int, generator: torch.Generator) -> Tensor:
    drawn = torch.randint(size, (count, size), generator=generator)
    drawn += size * torch.arange(count).unsqueeze(1)
    return torch.bincount(drawn.flatten(), minlength=count * size).reshape(count, size)


@dataclass(frozen=True)
class TwoGroups:
    """Positives against negatives; positives should have the higher numbers.

    Attributes:
        positive_order: positives by falling number (p,).
        ends: for each of them, how many positives are at least as high.
        negative_order: negatives likewise.
        above: for each positive, how many negatives are higher.
        level: how many are at least as high.
    """

    positive_order: Tensor
    ends: Tensor
    negative_order: Tensor
    above: Tensor
    level: Tensor

    @staticmethod
    def of(positive: Tensor, negative: Tensor) -> TwoGroups:
        """Sort both once."""
        first, second = (-positive).sort(stable=True), (-negative).sort(stable=True)
        return TwoGroups(
            first.indices,
            torch.searchsorted(first.values, first.values, right=True),
            second.indices,
            torch.searchsorted(second.values, first.values),
            torch.searchsorted(second.values, first.values, right=True),
        )

    def metrics(self, positive: Tensor, negative: Tensor) -> dict[str, Tensor]:
        """'auroc', 'aupr' and 'fpr95' (b,) for weights (p, b) and (n, b)."""
        drawn = positive[self.positive_order].double()
        found, false = _running(drawn), _running(negative[self.negative_order])
        all_found, all_false = found[-1], false[-1].double()
        level = false[self.level].double()
        higher = (drawn * (false[self.above] + level)).sum(0) / 2
        true = found[self.ends]
        precision = (true / (true + level)).nan_to_num(nan=0.0)
        # the first group of ties at which enough positives are found
        index = (true < 0.95 * all_found - _SLACK).sum(0)
        rate = level.gather(0, index[None])[0] / all_false
        return {
            "auroc": 1 - higher / (all_found * all_false),
            "aupr": (precision * drawn).sum(0) / all_found,
            "fpr95": torch.where(all_found > 0, rate, torch.nan),
        }


@dataclass(frozen=True)
class Failures:
    """Failures among predictions, ranked by a score of trust.

    Attributes:
        order: samples by falling score (n,).
        tie_ends: where groups of ties end (g,), as counts.
        wrong: which of the ordered samples are failures (f,).
        before: for each failure, how many samples have a higher score.
        after: how many have one at least as high.
        failed: the failures in the order of the data (f,).
        right: the others.
        groups: failures against successes, or None where one of them is missing.
    """

    order: Tensor
    tie_ends: Tensor
    wrong: Tensor
    before: Tensor
    after: Tensor
    failed: Tensor
    right: Tensor
    groups: TwoGroups | None

    @staticmethod
    def of(score: Tensor, correct: Tensor) -> Failures:
        """Sort once."""
        values, order = (-score).sort(stable=True)
        wrong = (~correct[order]).nonzero().squeeze(1)
        failed, right = (~correct).nonzero().squeeze(1), correct.nonzero().squeeze(1)
        both = len(failed) > 0 and len(right) > 0
        return Failures(
            order,
            torch.searchsorted(values, torch.unique(values), right=True),
            wrong,
            torch.searchsorted(values, values[wrong]),
            torch.searchsorted(values, values[wrong], right=True),
            failed,
            right,
            TwoGroups.of(-score[failed], -score[right]) if both else None,
        )

    def metrics(self, weights: Tensor) -> dict[str, Tensor]:
        """'aurc' and 'auroc' and what follows from them (b,) for weights (n, b)."""
        drawn = weights[self.order]
        seen = _running(drawn)
        total, errors = seen[-1].double(), weights[self.failed].sum(0).double()
        found = {"aurc": self._aurc(drawn, seen)}
        found["e_aurc"] = found["aurc"] - _best_aurc(total, errors)
        nothing = torch.full_like(total, torch.nan)
        ranked = {"auroc": nothing, "fpr95": nothing}
        if self.groups is not None:
            ranked = self.groups.metrics(weights[self.failed], weights[self.right])
        rate = errors / total
        lost = ((1 - ranked["auroc"]) * rate * (1 - rate)).nan_to_num(nan=0.0)
        return {
            **found,
            "augrc": lost + rate.square() / 2,
            "auroc": ranked["auroc"],
            "fpr95": ranked["fpr95"],
        }

    def shares(self, weights: Tensor, coverages: Sequence[float], target: float) -> list[Tensor]:
        """Accuracy at each coverage, then coverage at the target accuracy (b,)."""
        drawn = weights[self.order]
        marked = torch.zeros_like(drawn)
        marked[self.wrong] = drawn[self.wrong]
        seen, wrong = _running(drawn)[self.tie_ends], _running(marked)[self.tie_ends]
        columns, total = seen.T.contiguous(), seen[-1].double()
        found = []
        for share in coverages:
            wanted = (share * total - _SLACK).ceil().to(seen.dtype)  # counts are whole
            index = torch.searchsorted(columns, wanted[:, None]).T
            found.append(1 - wrong.gather(0, index)[0].double() / seen.gather(0, index)[0])
        good = (wrong <= (1 - target) * seen.double() + _SLACK) & (seen > 0)
        return [*found, torch.where(good, seen, 0.0).amax(0).double() / seen[-1]]

    def _aurc(self, drawn: Tensor, seen: Tensor) -> Tensor:
        # A failure in a group of s ties, N samples before it, counts 1/k at every k after the
        # group, and its expected share of them inside: 1 - N / s (H(N + s) - H(N)).
        before, after = seen[self.before].double(), seen[self.after].double()
        total = seen[-1].double()
        harmonic = _harmonic(len(drawn))
        inside = harmonic[after.long()] - harmonic[before.long()]
        size = (after - before).clamp(min=1)  # no group that counts is empty
        each = 1 - before / size * inside + harmonic[total.long()] - harmonic[after.long()]
        return (drawn[self.wrong] * each).sum(0) / total


def _running(weights: Tensor) -> Tensor:
    """Running counts (n + 1, b), zero first."""
    found = weights.new_zeros(len(weights) + 1, weights.shape[1])
    torch.cumsum(weights, 0, out=found[1:])
    return found


def _best_aurc(total: Tensor, errors: Tensor) -> Tensor:
    right = total - errors
    harmonic = _harmonic(int(total.max()))
    return (errors - right * (harmonic[total.long()] - harmonic[right.long()])) / total


def _harmonic(count: int) -> Tensor:
    steps = torch.arange(1, count + 1, dtype=torch.float64).reciprocal().cumsum(0)
    return torch.cat([steps.new_zeros(1), steps])
