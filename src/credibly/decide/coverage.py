"""What abstaining buys: accuracy among the samples a score would keep."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError


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
                came=repr(coverage),
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
    if score.shape != correct.shape or score.dim() != 1 or len(score) == 0:
        raise InvalidArgumentError(
            "score",
            expected="one number a sample, as many as `correct`",
            came=f"shapes {tuple(score.shape)} and {tuple(correct.shape)}",
            remedy="Pass two vectors of the same length.",
        )
    if bool(score.isnan().any()):
        raise InvalidArgumentError(
            "score",
            expected="numbers",
            came=f"{int(score.isnan().sum())} NaN",
            remedy="Leave out samples that were not solved: profile[profile.usable].",
        )
    _, group, sizes = torch.unique(-score.double(), return_inverse=True, return_counts=True)
    right = torch.zeros(len(sizes), dtype=torch.float64, device=score.device)
    right = right.index_add(0, group, correct.double())
    answered, hits = sizes.cumsum(0).double(), right.cumsum(0)
    return CoverageCurve(answered / len(score), hits / answered)
