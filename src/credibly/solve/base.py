"""What a solver is: an immutable value that names its stages; a stage knows one step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from credibly._validation import tolerance, whole
from credibly.problem.fit_risk import FitRiskProblem, Point
from credibly.problem.rows import Rows
from credibly.types import norm

AnyState = TypeVar("AnyState", bound="State")

CHOICE_REMEDY = "docs/explanation/solvers.md says what suits which model."


@dataclass(frozen=True)
class State(Rows):
    """What a stage carries from step to step, one row per sample still being solved.

    Attributes:
        point: the current iterate.
        visited: what the latest step evaluated, accepted or not.
        stuck: samples (n,) that cannot go on.
        cost: passes (n,) that the latest step spent on each sample.
    """

    point: Point
    visited: Point
    stuck: Tensor
    cost: Tensor


class Solver(ABC):
    """Anything that can be passed as `solver=`.

    Example: see `credibly.credibility` and docs/explanation/solvers.md.
    """

    @abstractmethod
    def stages(self) -> tuple[Stage[State], ...]:
        """What to run, one after the other, each from the best point so far."""


@dataclass(frozen=True, kw_only=True)
class Stage(Solver, Generic[AnyState]):
    """One method with its own stopping rule.

    Attributes:
        steps: most steps a sample may take.
        tolerance: a sample has converged when its gradient, relative to its two parts of risk and
            of fit, is at most this. None: the square root of the precision.
        decrease: a step counts as progress when the objective has fallen by this share, or the
            gradient has halved, since the last step that did.
        patience: steps without progress after which a sample has stalled; None: never.
        enough: a sample whose relative stationarity is at most this when the stage ends is done:
            the next stages do not take it on. None: only samples that have converged are.
        smooth: where the relative stationarity is at most this, a tenth of `decrease` is progress:
            the model looks smooth there, and patience is rewarded.
    """

    steps: int = 300
    tolerance: float | None = None
    decrease: float = 1e-4
    patience: int | None = 20
    enough: float | None = None
    smooth: float = 0.0

    def __post_init__(self) -> None:
        whole("steps", self.steps)
        if self.tolerance is not None:
            tolerance(self.tolerance)
        tolerance(self.decrease, "decrease")
        if self.patience is not None:
            whole("patience", self.patience)
        if self.enough is not None:
            tolerance(self.enough, "enough")
        tolerance(self.smooth, "smooth")

    def stages(self) -> tuple[Stage[State], ...]:
        return (self,)  # type: ignore[return-value]  # a stage steps only states it made itself

    @abstractmethod
    def begin(self, problem: FitRiskProblem, point: Point) -> AnyState:
        """The state before the first step from `point`, which has been evaluated."""

    @abstractmethod
    def advance(self, problem: FitRiskProblem, state: AnyState) -> AnyState:
        """One step for every sample of the state."""

    def residual(self, problem: FitRiskProblem, state: AnyState) -> Tensor:
        """What `tolerance` is compared with (n,)."""
        return problem.relative_stationarity(state.point)


def fresh(point: Point) -> dict[str, Any]:
    """The fields of `State` before the first step: no sample stuck, nothing spent."""
    nothing = torch.zeros_like(point.objective)
    return {"point": point, "visited": point, "stuck": nothing.bool(), "cost": nothing}


def rounding_of(point: Point) -> Tensor:
    """Rises of the objective (n,) that rounding explains; refusing them would stall a solver."""
    return 4 * torch.finfo(point.objective.dtype).eps * point.objective


def reach(problem: FitRiskProblem, point: Point) -> Tensor:
    """The likely distance of x+ from x0 (n,), a unit for steps that scales with the inputs.

    It is the distance moved so far, if any. Before, it is estimated: the risk is at most F(x0) and
    usually a sixteenth of it or less, and no step should be longer than for affine losses. (With
    `likely_distance` instead, L-BFGS takes as many passes.)
    """
    moved = norm(point.x - problem.x0)
    guess = torch.minimum(0.25 * point.objective.sqrt(), 0.5 * norm(point.gradient))
    return torch.where(moved > 0, moved, guess)


def likely_distance(problem: FitRiskProblem, start: Point) -> Tensor:
    """The likely distance of x+ from x0 (n,), from the pass at x0 alone.

    With q = |grad F|^2 / 4F, one affine loss would end at sqrt(F q) / (1 + q). The gradients of
    networks shrink on the way, so for large q they end further away. Exponent and factor were
    chosen on five networks at the automatic gamma (docs/explanation/solvers.md); far below it the
    distance comes out too long on affine models.
    """
    least = torch.finfo(start.objective.dtype).tiny
    size = start.objective.clamp(min=least).sqrt()
    root = norm(problem.free_gradient(start)) / (2 * size)  # of q; a power differs in its last bits
    found = size * root / (1 + 2 * root * root.sqrt())
    return found.nan_to_num(0.0, 0.0, 0.0)  # where the model is not finite nothing moves
