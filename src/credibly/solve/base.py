"""What a solver is: an immutable value that names its stages; a stage knows one step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.problem.fit_risk import FitRiskProblem, Point
from credibly.types import norm, real_number, whole_number

AnyState = TypeVar("AnyState", bound="State")


@dataclass(frozen=True)
class State:
    """What a stage carries from step to step, one row a sample still being solved.

    Attributes:
        point: the current iterate.
        visited: what the latest step evaluated, accepted or not.
        stuck: samples (n,) that found no way to go on.
        cost: passes (n,) that the latest step spent on each sample.
    """

    point: Point
    visited: Point
    stuck: Tensor
    cost: Tensor

    def select(self, rows: Tensor) -> Self:
        """The state of the chosen samples."""
        chosen: dict[str, Any] = {
            f.name: _rows_of(getattr(self, f.name), rows) for f in fields(self)
        }
        return replace(self, **chosen)


def _rows_of(value: object, rows: Tensor) -> object:
    if isinstance(value, Point):
        return value.select(rows)
    return value[rows] if isinstance(value, Tensor) else value


class Solver(ABC):
    """Anything that can be passed as `solver=`."""

    @abstractmethod
    def stages(self) -> tuple[Stage[State], ...]:
        """What to run, one after the other, each from the best point so far."""


@dataclass(frozen=True, kw_only=True)
class Stage(Solver, Generic[AnyState]):
    """One method with its own stopping rule.

    Attributes:
        steps: most steps a sample may take.
        tolerance: a sample has converged when its gradient, relative to the pulls of risk and fit
            that balance in it, is at most this. None: the square root of the precision.
        decrease: a step counts as progress when the objective has fallen by this share, or the
            gradient has halved, since the last step that did.
        patience: steps without progress after which a sample has stalled; None: never.
    """

    steps: int = 300
    tolerance: float | None = None
    decrease: float = 1e-4
    patience: int | None = 20

    def __post_init__(self) -> None:
        require_whole("steps", self.steps)
        require_tolerance(self.tolerance)
        require_share("decrease", self.decrease)
        if self.patience is not None:
            require_whole("patience", self.patience)

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


_REMEDY = "Leave it out for the default; docs/solvers.md says what suits which model."


def require(
    holds: bool,  # noqa: FBT001  # reads as a sentence: require(x > 0, ...)
    name: str,
    expected: str,
    got: object,
    remedy: str = _REMEDY,
) -> None:
    """Raise the usual error unless a setting holds."""
    if not holds:
        raise InvalidArgumentError(name, expected=expected, got=repr(got), remedy=remedy)


def require_whole(name: str, value: object) -> None:
    """A count must be a whole number of at least one."""
    number = whole_number(value)
    require(number is not None and number >= 1, name, "a whole number >= 1", value)


def require_positive(name: str, value: object) -> None:
    """A length must be a positive finite number."""
    number = real_number(value)
    good = number is not None and math.isfinite(number) and number > 0
    require(good, name, "a positive number", value)


def require_share(name: str, value: object) -> None:
    """A share must lie in [0, 1)."""
    number = real_number(value)
    require(number is not None and 0 <= number < 1, name, "a number in [0, 1)", value)


def require_tolerance(value: object) -> None:
    """A tolerance is a share, or None for the square root of the precision."""
    if value is not None:
        require_share("tolerance", value)


def fresh_marks(point: Point) -> tuple[Tensor, Tensor]:
    """`stuck` and `cost` before the first step: nobody stuck, nothing spent."""
    return torch.zeros_like(point.objective, dtype=torch.bool), torch.zeros_like(point.objective)


def rounding_of(point: Point) -> Tensor:
    """Rises of the objective (n,) that rounding explains; refusing them would stall a solver."""
    return 4 * torch.finfo(point.objective.dtype).eps * point.objective


def reach(problem: FitRiskProblem, point: Point) -> Tensor:
    """How far x+ is likely to lie from x0 (n,): a unit for steps that no rescaling changes.

    Once a sample has moved it is how far. Before, the risk cannot exceed F(x0), of which it
    usually is a sixteenth or less, and no step should be longer than if the losses were affine.
    """
    moved = norm(point.x - problem.x0)
    guess = torch.minimum(0.25 * point.objective.sqrt(), 0.5 * norm(point.gradient))
    return torch.where(moved > 0, moved, guess)
