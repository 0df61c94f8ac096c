"""What abstaining gains: error rates among the samples that a score trusts most.

A score of trust is higher where the prediction is more trustworthy. Equal scores are answered
together, at their mean error rate: each area is the mean over random orders of the ties. All
numbers are computed in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from credibly._validation import share
from credibly.metrics.ranking import rank_failures
from credibly.types import Array


@dataclass(frozen=True)
class ErrorCoverageCurve:
    """Error rates (m,) over the most trusted share `coverage` (m,), one point per group of ties.

    Example: see `error_coverage`.

    Attributes:
        coverage: share of the samples that is answered.
        error_rate: share of the answered samples that is wrong.
        generalised_error_rate: share of *all* samples that is answered and wrong.
    """

    coverage: Tensor
    error_rate: Tensor
    generalised_error_rate: Tensor

    @property
    def accuracy(self) -> Tensor:
        """Share of the answered samples that is right (m,)."""
        return 1 - self.error_rate

    def accuracy_at(self, coverage: float) -> float:
        """Accuracy when at least this share is answered, as few more as ties allow."""
        asked = self.coverage.new_tensor(share("coverage", coverage, closed=True) - 1e-9)
        kept = int(torch.searchsorted(self.coverage, asked))
        return float(self.accuracy[min(kept, len(self.coverage) - 1)])


def error_coverage(score: Array, correct: Array) -> ErrorCoverageCurve:
    """Error rates as more and more samples are answered, the most trusted first.

    Args:
        score: higher is more trustworthy (n,).
        correct: whether each prediction is right (n,).

    Example:
        >>> import credibly as cr
        >>> cr.metrics.error_coverage([4, 3, 2, 1], [True, True, False, True]).accuracy_at(0.5)
        1.0
    """
    counts = rank_failures(score, correct).once()
    seen, wrong = (part[:, 0] for part in counts.at_tie_ends)
    return ErrorCoverageCurve(seen / counts.total, wrong / seen, wrong / counts.total)


def aurc(score: Array, correct: Array) -> float:
    """Area under the curve of error rate over coverage: lower is better.

    The mean over k = 1 to n of the error rate among the k most trusted (Geifman, Uziel, El-Yaniv
    2019). A useless score has the error rate of the model, on average.

    Args:
        score: higher is more trustworthy (n,).
        correct: whether each prediction is right (n,).

    Example:
        >>> import credibly as cr
        >>> round(cr.metrics.aurc([4, 3, 2, 1], [True, True, False, True]), 4)  # (1/3 + 1/4) / 4
        0.1458
    """
    return float(rank_failures(score, correct).once().aurc())


def e_aurc(score: Array, correct: Array) -> float:
    """AURC less that of a perfect ranking with as many failures: 0 is perfect.

    The perfect AURC is computed for the n samples at hand. Its limit for large n, which Geifman et
    al. 2019 subtract, is r + (1 - r) log(1 - r) with r the error rate. Arguments: see `aurc`.

    Example:
        >>> import credibly as cr
        >>> round(cr.metrics.e_aurc([4, 3, 2, 1], [True, True, False, True]), 4)
        0.0833
    """
    return float(rank_failures(score, correct).once().e_aurc())


def augrc(score: Array, correct: Array) -> float:
    """Area under the share of all samples that is answered and wrong: lower is better.

    By trapezoids over coverage (Traub et al. 2024, who call this share the generalised risk). With
    AUROC that of failures and a the accuracy it is (1 - AUROC) a (1 - a) + (1 - a)^2 / 2. A useless
    score has (1 - a) / 2. Arguments: see `aurc`.

    Example:
        >>> import credibly as cr
        >>> round(cr.metrics.augrc([4, 3, 2, 1], [True, True, False, True]), 4)
        0.0937
    """
    return float(rank_failures(score, correct).once().augrc())


def accuracy_at_coverage(
    score: Array, correct: Array, coverages: float | Sequence[float] | Tensor
) -> Tensor:
    """Accuracy (m,) when at least each of these shares is answered, as few more as ties allow.

    Example:
        >>> import credibly as cr
        >>> cr.metrics.accuracy_at_coverage([4, 3, 2, 1], [True, True, False, True], [0.5, 1.0])
        tensor([1.0000, 0.7500], dtype=torch.float64)
    """
    return rank_failures(score, correct).once().accuracy_at(coverages)[:, 0]


def coverage_at_accuracy(score: Array, correct: Array, target: float = 0.99) -> float:
    """The largest share that can be answered with at least this accuracy; 0 if there is none.

    Example:
        >>> import credibly as cr
        >>> cr.metrics.coverage_at_accuracy([4, 3, 2, 1], [True, True, False, True])
        0.5
    """
    return float(rank_failures(score, correct).once().coverage_at(target))
