"""Gradient descent: plain, with momentum, or with Adam's scaling; constant or annealed steps.

And the default, `Hybrid`: quasi-Newton while the model looks smooth, annealed descent where it is
rough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from credibly._validation import choice, positive, tolerance
from credibly.problem.fit_risk import FitRiskProblem, Point
from credibly.solve.base import CHOICE_REMEDY, Solver, Stage, State, fresh, reach
from credibly.solve.lbfgs import LBFGS
from credibly.types import norm, per_sample

_FLAT = 1e-6  # features whose gradients are below this share of the typical one hardly move


@dataclass(frozen=True)
class DescentState(State):
    """Averages of gradients and of their squares, and the length unit of each sample."""

    mean: Tensor
    square: Tensor
    unit: Tensor
    count: int


@dataclass(frozen=True, kw_only=True)
class GradientDescent(Stage[DescentState]):
    """x <- x - step * direction; averaged gradients smooth out the kinks of rough models.

    Attributes:
        steps, tolerance, decrease, patience: when a sample ends; see `credibly.solve.base.Stage`.
        step: with scaling 'none' the factor of the gradient of F (0.5 is exact without losses).
            With 'adam' in units of 2 reach / sqrt(D): if every feature moves by that much, x moves
            by twice its likely distance. So it need not change when the inputs are rescaled.
        momentum: how much of the average of past gradients is kept, in [0, 1).
        scaling: 'none', or 'adam' (Kingma and Ba 2015).
        forgetting: how much of the average of squares Adam keeps, in [0, 1).
        schedule: 'constant', or 'cosine' down to zero over `steps`.

    Example: pass it as `solver` of `credibly.credibility`; see docs/explanation/solvers.md.
    """

    steps: int = 500
    step: float = 0.05
    momentum: float = 0.0
    scaling: Literal["none", "adam"] = "none"
    forgetting: float = 0.9
    schedule: Literal["constant", "cosine"] = "constant"

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("step", self.step)
        tolerance(self.momentum, "momentum")
        tolerance(self.forgetting, "forgetting")
        choice("scaling", self.scaling, ("none", "adam"), CHOICE_REMEDY)
        choice("schedule", self.schedule, ("constant", "cosine"), CHOICE_REMEDY)

    def begin(self, problem: FitRiskProblem, point: Point) -> DescentState:
        unit = 2 * reach(problem, point) / math.sqrt(point.x[0].numel())
        zeros = torch.zeros_like(point.x)
        return DescentState(**fresh(point), mean=zeros, square=zeros, unit=unit, count=0)

    def advance(self, problem: FitRiskProblem, state: DescentState) -> DescentState:
        gradient = problem.free_gradient(state.point)
        mean = self.momentum * state.mean + (1 - self.momentum) * gradient
        square = self.forgetting * state.square + (1 - self.forgetting) * gradient.square()
        state = replace(state, mean=mean, square=square, count=state.count + 1)
        point = problem.evaluate(problem.project(state.point.x - self._move(state)))
        return replace(state, point=point, visited=point, cost=torch.ones_like(state.cost))

    def _move(self, state: DescentState) -> Tensor:
        size = self.step * self._anneal(state.count - 1)
        if self.scaling == "none":
            return size / (1 - self.momentum) * state.mean  # heavy ball: the sum of past gradients
        mean = state.mean / (1 - self.momentum**state.count)
        spread = (state.square / (1 - self.forgetting**state.count)).sqrt()
        floor = per_sample(norm(spread), spread) * (_FLAT / math.sqrt(spread[0].numel()))
        ratio = mean / (spread + floor + torch.finfo(spread.dtype).tiny)
        return size * per_sample(state.unit, mean) * ratio

    def _anneal(self, count: int) -> float:
        if self.schedule == "constant":
            return 1.0
        return 0.5 * (1 + math.cos(math.pi * count / self.steps))


def annealed(steps: int, step: float, *, momentum: float, forgetting: float) -> GradientDescent:
    """Adam's scaling with cosine steps, which does not stop early."""
    return GradientDescent(
        steps=steps, step=step, momentum=momentum, forgetting=forgetting, scaling="adam",
        schedule="cosine", patience=None,
    )  # fmt: skip


_ENOUGH, _SMOOTH = 0.065, 0.12
"""Relative stationarities: where L-BFGS leaves little to gain, and where more of it may get there.

On small networks it comes to the first number, on ResNets hardly ever;
docs/explanation/solvers.md."""
_PAIRS = 5  # of L-BFGS; on rough networks more of them bring nothing


@dataclass(frozen=True, kw_only=True)
class Hybrid(Solver):
    """L-BFGS, two anneals, L-BFGS again: each stage starts from the best point of the one before.

    On a smooth model L-BFGS comes so near to a stationary point that little is left to gain, and
    nothing else runs. On a large ReLU network it stops when kinks, which it takes for curvature,
    slow it down. Averages over few gradients with falling steps (Adam's scaling) then get past the
    kinks, first quickly, then thoroughly, and a last short L-BFGS improves the result.

    Attributes:
        effort: scales the lengths of the anneals and of the last stage: 1 is the default, chosen by
            measurement, 0.5 is faster, 4 is for reference solutions.
        tolerance: see `credibly.solve.base.Stage`. With one, a sample is done when it is met, and
            not before.

    Example: see `credibly.credibility`, whose default it is, and docs/explanation/solvers.md.
    """

    effort: float = 1.0
    tolerance: float | None = None

    def __post_init__(self) -> None:
        positive("effort", self.effort)
        if self.tolerance is not None:
            tolerance(self.tolerance)

    def stages(self) -> tuple[Stage[State], ...]:
        quick, thorough = max(1, round(16 * self.effort)), max(1, round(48 * self.effort))
        settle = max(8, round(100 * self.effort))
        enough = None if self.tolerance is not None else _ENOUGH / max(1.0, self.effort)
        stages: tuple[Stage[Any], ...] = (
            LBFGS(steps=240, decrease=0.01, patience=5, enough=enough, smooth=_SMOOTH),
            annealed(quick, 0.2, momentum=0.5, forgetting=0.6),
            annealed(thorough, 0.45, momentum=0.6, forgetting=0.8),
            LBFGS(steps=settle, memory=_PAIRS, decrease=0.002, patience=4),
        )
        return tuple(replace(stage, tolerance=self.tolerance) for stage in stages)
