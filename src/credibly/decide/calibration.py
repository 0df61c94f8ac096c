"""From a ranking to a chance of being wrong, by labelled inputs (Venn-Abers)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from credibly.types import CPU

STEPS = 200
"""Steps at most into which the scores are grouped; each is tried twice at every place."""


@dataclass(frozen=True, eq=False)
class VennAbers:
    """The chance that a class is wrong, from how its input ranks among labelled ones.

    For each place that a new input can take among them, isotonic regression is fitted twice: as if
    it were right, and as if it were wrong. One of the two chances is calibrated (Vovk and Petej
    2014): among inputs for which it says p, the share p is wrong, on average over the draw of the
    labelled inputs, whatever their distribution. What is given is their usual compromise, between
    the two.

    Attributes:
        scores: of the labelled inputs, the first of each step, sorted (m,).
        low, high: both chances for a new input at each place (2 m + 1,): below all scores, at the
            first, between it and the second, and so on.
    """

    scores: Tensor
    low: Tensor
    high: Tensor

    @classmethod
    def fit(cls, scores: Tensor, wrong: Tensor) -> VennAbers:
        """From the scores (n,) of labelled inputs, higher is better, and which are wrong."""
        order = scores.double().cpu().argsort()
        values, bad = scores.double().cpu()[order], wrong.cpu()[order].double()
        step = -(-len(values) // STEPS)
        values = values[torch.arange(len(values), device=CPU) // step * step]
        known, counts = torch.unique(values, return_counts=True)
        sums = torch.zeros_like(known).index_add_(
            0, torch.repeat_interleave(torch.arange(len(known), device=CPU), counts), bad
        )
        given = sums.tolist(), counts.double().tolist()
        low, high = (
            torch.tensor(_chances(*given, extra, wide=step > 1), dtype=torch.float64, device=CPU)
            for extra in (0.0, 1.0)
        )
        return cls(known, low, high)

    def __call__(self, scores: Tensor) -> Tensor:
        """The chance (N,) that each is wrong."""
        x = scores.double().cpu()
        asked = x.nan_to_num(0.0).contiguous()
        below, upto = (torch.searchsorted(self.scores, asked, right=r) for r in (False, True))
        low, high = self.low[below + upto], self.high[below + upto]
        return torch.where(x.isnan(), x, high / (1 - low + high))


def _chances(sums: list[float], counts: list[float], extra: float, *, wide: bool) -> list[float]:
    """The fitted chance at every place of one more input, that is wrong (1) or right (0).

    Scores between two steps belong to the lower one where steps are `wide`.
    """
    found = [_falling([extra, *sums], [1.0, *counts], 0)]
    for k in range(len(sums)):
        more = [*sums[:k], sums[k] + extra, *sums[k + 1 :]]
        found.append(_falling(more, [*counts[:k], counts[k] + 1, *counts[k + 1 :]], k))
        if wide:
            found.append(found[-1])
        else:
            between = [*sums[: k + 1], extra, *sums[k + 1 :]]
            found.append(_falling(between, [*counts[: k + 1], 1.0, *counts[k + 1 :]], k + 1))
    return found


def _falling(sums: list[float], counts: list[float], place: int) -> float:
    """The value at `place` of the best fit that never rises, by pooling neighbours."""
    pools: list[tuple[float, float, int]] = []  # sum, count, how many places
    for total, count in zip(sums, counts, strict=True):
        pool = (total, count, 1)
        while pools and pools[-1][0] * pool[1] <= pool[0] * pools[-1][1]:
            last = pools.pop()
            pool = (last[0] + pool[0], last[1] + pool[1], last[2] + pool[2])
        pools.append(pool)
    for total, count, width in pools:
        if place < width:
            return total / count
        place -= width
    raise IndexError(place)
