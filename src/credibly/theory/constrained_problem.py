"""The paper's problem (PI): the nearest input that meets given credences.

    r(c) = min_x |x - x0|^2   subject to   l_k(phi(x)) <= -c_k  for every class k

Here as its augmented Lagrangian, which has the form of the fit-risk problem: for given duals and
penalty the solvers of this package minimise it unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from credibly.problem.fit_risk import FitRiskProblem


@dataclass(frozen=True, kw_only=True)
class AugmentedProblem(FitRiskProblem):
    """|x - x0|^2 + sum_k [lambda_k + rho (l_k + c_k)]_+^2 / 2 rho for each sample.

    Attributes:
        credences: c (n, K).
        duals: lambda (n, K), fixed during the minimisation over x.
        penalty: rho (n, 1).
    """

    credences: Tensor
    duals: Tensor
    penalty: Tensor

    def select(self, rows: Tensor | slice) -> Self:
        names = ("credences", "duals", "penalty")
        return replace(super().select(rows), **{name: getattr(self, name)[rows] for name in names})

    def multipliers(self, losses: Tensor) -> Tensor:
        """The duals of the next round."""
        return (self.duals + self.penalty * self.excess(losses)).clamp(min=0)

    def misfit(self, losses: Tensor) -> Tensor:
        return (self.multipliers(losses).square() / (2 * self.penalty)).sum(1)

    def excess(self, losses: Tensor) -> Tensor:
        """How far each loss is above what its credence allows (n, K)."""
        return losses + self.credences
