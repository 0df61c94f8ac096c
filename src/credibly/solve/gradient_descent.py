"""Gradient descent: plain, with momentum, or with Adam's scaling; constant or annealed steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from credibly.problem.fit_risk import FitRiskProblem, Point
from credibly.solve.base import (
    Stage,
    State,
    fresh_marks,
    reach,
    require,
    require_positive,
    require_share,
)
from credibly.types import norm, per_sample

_FLAT = 1e-6
"""Features whose gradients are below this share of the typical one are left where they are."""


@dataclass(frozen=True)
class DescentState(State):
    """Averages of gradients and of their squares, and the length unit of each sample."""

    mean: Tensor
    square: Tensor
    unit: Tensor
    count: int


@dataclass(frozen=True, kw_only=True)
class GradientDescent(Stage[DescentState]):
    """x <- x - step * direction; on rough models averaged gradients see past the kinks.

    Attributes:
        steps, tolerance, decrease, patience: when a sample ends; as of `credibly.solve.base.Stage`.
        step: with scaling 'none' it multiplies the gradient of F (0.5 would be exact without
            losses). With 'adam' it is in units of 2 reach / sqrt(D), the move of one feature that,
            made by all, doubles the distance x+ is likely to have; so no rescaling changes it.
        momentum: how much of the average of past gradients is kept, in [0, 1).
        scaling: 'none', or 'adam' (Kingma and Ba 2015).
        forgetting: how much of the average of squares Adam keeps, in [0, 1).
        schedule: 'constant', or 'cosine' down to zero over `steps`.
    """

    steps: int = 500
    step: float = 0.05
    momentum: float = 0.0
    scaling: Literal["none", "adam"] = "none"
    forgetting: float = 0.9
    schedule: Literal["constant", "cosine"] = "constant"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("step", self.step)
        require_share("momentum", self.momentum)
        require_share("forgetting", self.forgetting)
        require(self.scaling in ("none", "adam"), "scaling", "'none' or 'adam'", self.scaling)
        require(
            self.schedule in ("constant", "cosine"),
            "schedule",
            "'constant' or 'cosine'",
            self.schedule,
        )

    def begin(self, problem: FitRiskProblem, point: Point) -> DescentState:
        stuck, cost = fresh_marks(point)
        unit = 2 * reach(problem, point) / math.sqrt(point.x[0].numel())
        zeros = torch.zeros_like(point.x)
        return DescentState(
            point=point,
            visited=point,
            stuck=stuck,
            cost=cost,
            mean=zeros,
            square=zeros,
            unit=unit,
            count=0,
        )

    def advance(self, problem: FitRiskProblem, state: DescentState) -> DescentState:
        gradient = problem.free_gradient(state.point)
        mean = self.momentum * state.mean + (1 - self.momentum) * gradient
        square = self.forgetting * state.square + (1 - self.forgetting) * gradient.square()
        move = self._move(replace(state, mean=mean, square=square, count=state.count + 1))
        point = problem.evaluate(problem.project(state.point.x - move))
        return DescentState(
            point=point,
            visited=point,
            stuck=state.stuck,
            cost=torch.ones_like(state.cost),
            mean=mean,
            square=square,
            unit=state.unit,
            count=state.count + 1,
        )

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
