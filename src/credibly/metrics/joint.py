"""Failures and outliers in one stream: an input is answered if two scores both allow it.

The metrics are those of Li et al. (2026), DS-F1 and DS-AURC. One score tells outliers, the other
wrong answers; all pairs of thresholds are tried, and the best at each coverage counts. Thresholds
lie at values of the scores, so that only the order of a score matters; the authors space them
evenly between the smallest and the largest value.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from credibly._validation import plain_tensor, require, whole
from credibly.types import CPU, Array

LEVELS, BINS = 400, 100


@dataclass(frozen=True)
class _Counts:
    """Answered inputs (L, L) at each pair of thresholds: right ones, ordinary ones, all."""

    right: Tensor
    ordinary: Tensor
    answered: Tensor
    total: int  # ordinary inputs, answered or not


def ds_f1(
    trust: Array,
    belongs: Array,
    correct: Array,
    outliers: tuple[Array, Array],
    levels: int = LEVELS,
) -> float:
    """The largest F1 of "answered, ordinary and right" over all pairs of thresholds.

    Args:
        trust: score of right answers of ordinary inputs (n,), higher is more trustworthy.
        belongs: score of belonging of ordinary inputs (n,), higher for ordinary ones. It may be the
            same score.
        correct: whether each ordinary input is predicted rightly (n,).
        outliers: both scores, in the same order, of outliers (m,), (m,).
        levels: thresholds tried of each score, at most.

    Example:
        >>> import credibly as cr
        >>> cr.metrics.ds_f1([3, 2, 1], [3, 3, 3], [True, True, False], ([3, 3], [1, 2]))
        0.8
    """
    counts = _count(trust, belongs, correct, outliers, levels)
    precision = counts.right / counts.answered.clamp(min=1)
    recall = counts.right / counts.total
    return float((2 * precision * recall / (precision + recall).clamp(min=1e-300)).max())


def ds_aurc(
    trust: Array,
    belongs: Array,
    correct: Array,
    outliers: tuple[Array, Array],
    levels: int = LEVELS,
) -> float:
    """Area under the smallest error rate at each coverage, over all pairs of thresholds.

    Coverage is the share of the ordinary inputs that is answered; the error rate is that of all
    answers, outliers among them counted as errors. In 100 bins of coverage; a bin without a pair
    has the rate of the next one. Trapezoids reach from the first bin to the last, .99 of coverage:
    a score that is always wrong has .99, and one that is always right 0. Smaller is better.

    Args:
        trust: see `ds_f1`.
        belongs: see `ds_f1`.
        correct: see `ds_f1`.
        outliers: see `ds_f1`.
        levels: see `ds_f1`.

    Example:
        >>> import credibly as cr
        >>> cr.metrics.ds_aurc([2, 1], [1, 1], [True, True], ([2, 1], [0, 0]))
        0.0
    """
    counts = _count(trust, belongs, correct, outliers, levels)
    some = counts.answered > 0
    error = (1 - counts.right / counts.answered.clamp(min=1))[some]
    coverage = (counts.ordinary / counts.total)[some]
    place = (coverage * BINS).long().clamp(max=BINS - 1)
    best = torch.full((BINS,), torch.inf, dtype=torch.float64, device=CPU)
    best = best.scatter_reduce(0, place, error, "amin")
    for k in range(BINS - 2, -1, -1):  # full coverage is always there, in the last bin
        if best[k] == torch.inf:
            best[k] = best[k + 1]
    return float(torch.trapezoid(best, dx=1 / BINS))


def _count(
    trust: Array, belongs: Array, correct: Array, outliers: tuple[Array, Array], levels: int
) -> _Counts:
    whole("levels", levels)
    right = plain_tensor(correct, "correct").bool().cpu()
    total, foreign = len(right), len(plain_tensor(outliers[0], "outliers"))
    places = []
    for name, values, other in (("trust", trust, outliers[0]), ("belongs", belongs, outliers[1])):
        known, strange = plain_tensor(values, name).double(), plain_tensor(other, "outliers")
        fits = known.shape == (total,) and strange.shape == (foreign,) and total > 0
        got = f"shapes {tuple(known.shape)} and {tuple(strange.shape)}"
        expected = f"{total} numbers of ordinary inputs and {foreign} of outliers, as of the others"
        require(fits, name, expected, got, "Pass one number per input.")
        places.append(_places(torch.cat([known.cpu(), strange.double().cpu()]), levels))
    marks = torch.zeros(total + foreign, 3, dtype=torch.float64, device=CPU)
    marks[:total, 0], marks[:total, 1], marks[:, 2] = right.double(), 1.0, 1.0
    first, second = places
    size = (int(first.max()) + 1, int(second.max()) + 1)
    table = torch.zeros(size[0] * size[1], 3, dtype=torch.float64, device=CPU)
    table.index_add_(0, first * size[1] + second, marks)
    # answered are those at or above both thresholds: sums from the far corner
    sums = table.reshape(*size, 3).flip(0, 1).cumsum(0).cumsum(1)
    return _Counts(sums[..., 0], sums[..., 1], sums[..., 2], total)


def _places(scores: Tensor, levels: int) -> Tensor:
    """The number of the last threshold that each score reaches; NaN is the least of all."""
    scores = scores.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    thresholds = torch.unique(scores)
    if len(thresholds) > levels:
        steps = torch.linspace(0, len(thresholds) - 1, levels, device=CPU).round().long()
        thresholds = thresholds[steps]
    return torch.searchsorted(thresholds, scores, right=True) - 1
