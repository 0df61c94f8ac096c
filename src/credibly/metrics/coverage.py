"""What abstaining buys: accuracy among the samples a score would keep."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.metrics.measures import error_coverage


@dataclass(frozen=True)
class CoverageCurve:
    """Accuracy (m,) over the most trusted share `coverage` (m,) of the samples."""

    coverage: Tensor
    accuracy: Tensor

    def at(self, coverage: float) -> float:
        """Accuracy when at least this share is answered."""
        if not 0 < coverage <= 1:
            raise InvalidArgumentError(
                "coverage",
                expected="a share in (0, 1]",
                got=repr(coverage),
                remedy="0.8 answers four samples in five.",
            )
        asked = torch.tensor(coverage - 1e-9, dtype=torch.float64, device=self.coverage.device)
        kept = int(torch.searchsorted(self.coverage, asked))
        return float(self.accuracy[min(kept, len(self.accuracy) - 1)])


def accuracy_against_coverage(score: Tensor, correct: Tensor) -> CoverageCurve:
    """Keep samples from the highest score down; ties are kept together, at their mean accuracy.

    Args:
        score: higher is more trustworthy (n,).
        correct: whether each prediction is right (n,).
    """
    curve = error_coverage(score, correct)
    return CoverageCurve(curve.coverage, 1 - curve.error_rate)
