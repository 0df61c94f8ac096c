"""The default: quasi-Newton while the model looks smooth, annealed descent where it is rough."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from credibly._validation import positive, tolerance
from credibly.solve.base import Solver, Stage, State
from credibly.solve.gradient_descent import annealed
from credibly.solve.lbfgs import LBFGS

_PAIRS = 5  # of L-BFGS; on rough networks more of them bring nothing


@dataclass(frozen=True, kw_only=True)
class Hybrid(Solver):
    """L-BFGS, two anneals, L-BFGS: each stage starts from the best point of the one before.

    On a smooth model the first stage converges and nothing else runs. On a ReLU network it stops
    when kinks, which it takes for curvature, slow it down. Averages over few gradients with falling
    steps (Adam's scaling) then get past the kinks, first quickly, then thoroughly, and a last short
    L-BFGS improves the result.

    Attributes:
        effort: scales the lengths of the anneals and of the last stage: 1 is the default, chosen by
            measurement, 0.5 is faster, 4 is for reference solutions.
        tolerance: see `credibly.solve.base.Stage`.

    Example: see `credibly.credibility`, whose default it is, and docs/solvers.md.
    """

    effort: float = 1.0
    tolerance: float | None = None

    def __post_init__(self) -> None:
        positive("effort", self.effort)
        if self.tolerance is not None:
            tolerance(self.tolerance)

    def stages(self) -> tuple[Stage[State], ...]:
        quick, thorough = max(1, round(20 * self.effort)), max(1, round(50 * self.effort))
        settle = max(8, round(100 * self.effort))
        stages: tuple[Stage[Any], ...] = (
            LBFGS(steps=200, memory=_PAIRS, decrease=0.05, patience=6),
            annealed(quick, 0.2, momentum=0.5, forgetting=0.6),
            annealed(thorough, 0.45, momentum=0.6, forgetting=0.8),
            LBFGS(steps=settle, memory=_PAIRS, decrease=0.002, patience=4),
        )
        return tuple(replace(stage, tolerance=self.tolerance) for stage in stages)
