"""Gradient descent: plain, with momentum, or with Adam's scaling; constant or annealed steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from credibly._validation import choice, positive, tolerance
from credibly.problem.fit_risk import FitRiskProblem, Point
from credibly.solve.base import CHOICE_REMEDY, Stage, State, fresh, reach
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

    Example: pass it as `solver` of `credibly.credibility`; see docs/solvers.md.
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
