"""The default: quasi-Newton while the model looks smooth, annealed descent where it is rough."""

from __future__ import annotations

from dataclasses import dataclass

from credibly.solve.base import Solver, Stage, State, require_positive, require_tolerance
from credibly.solve.gradient_descent import GradientDescent
from credibly.solve.lbfgs import LBFGS

_PAIRS = 5
"""Curvature pairs: on rough networks more of them cost memory and buy nothing."""


@dataclass(frozen=True, kw_only=True)
class Hybrid(Solver):
    """L-BFGS, two anneals, L-BFGS: each stage starts from the best point of the one before.

    On a smooth model the first stage converges and nothing else runs. On a ReLU network it stops
    as soon as it makes slow progress against kinks that it takes for curvature; short-sighted
    averages of gradients with falling steps (Adam's scaling, little memory) then find their way
    between the kinks, first quickly, then thoroughly, and a last short L-BFGS settles.

    Attributes:
        effort: scales the lengths of the anneals and of the last stage: 1 is the measured
            default, 0.5 is quicker, 4 is for references.
        tolerance: a sample has converged when its gradient, relative to the pulls of risk and fit
            that balance in it, is at most this. None: the square root of the precision.
    """

    effort: float = 1.0
    tolerance: float | None = None

    def __post_init__(self) -> None:
        require_positive("effort", self.effort)
        require_tolerance(self.tolerance)

    def stages(self) -> tuple[Stage[State], ...]:
        quick, thorough = round(20 * self.effort), round(50 * self.effort)
        descend = LBFGS(
            steps=200, memory=_PAIRS, decrease=0.05, patience=6, tolerance=self.tolerance
        )
        anneals = (
            _anneal(max(1, quick), 0.2, 0.5, 0.6, self.tolerance),
            _anneal(max(1, thorough), 0.45, 0.6, 0.8, self.tolerance),
        )
        settle = LBFGS(
            steps=max(8, round(100 * self.effort)),
            memory=_PAIRS,
            decrease=0.002,
            patience=4,
            tolerance=self.tolerance,
        )
        return (*descend.stages(), *anneals[0].stages(), *anneals[1].stages(), *settle.stages())


def _anneal(
    steps: int, step: float, momentum: float, forgetting: float, tolerance: float | None
) -> GradientDescent:
    return GradientDescent(
        steps=steps,
        step=step,
        momentum=momentum,
        forgetting=forgetting,
        scaling="adam",
        schedule="cosine",
        patience=None,
        tolerance=tolerance,
    )
