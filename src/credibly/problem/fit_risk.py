"""The trade-off of fit and risk as one objective (Definitions 1 and 2 of the paper).

    F(x) = |x - x0|^2 + sum_k l_k(phi(x))^2 / w_k

At a minimiser x+ the credibilities are c_k = -l_k and the multipliers lambda_k = 2 l_k / w_k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from credibly.model.derivatives import losses_and_pull, losses_only
from credibly.model.variable import Variable
from credibly.problem.rows import Rows
from credibly.types import Limits, norm, per_sample

FEW_NUMBERS = 4096
"""Numbers of an input up to which copies of it cost little."""


@dataclass(frozen=True)
class Point(Rows):
    """Inputs, and the results of one pass at them."""

    x: Tensor
    losses: Tensor
    objective: Tensor
    gradient: Tensor

    def write(self, rows: Tensor, other: Point) -> None:
        """Overwrite the samples with the numbers `rows`, in place."""
        for name, value in vars(self).items():
            value[rows] = vars(other)[name]

    def replaced(self, other: Point, rows: Tensor) -> Point:
        """The other point where the mask `rows` (n,) is true."""
        pairs = zip(vars(other).values(), vars(self).values(), strict=True)
        return Point(*(torch.where(per_sample(rows, mine), new, mine) for new, mine in pairs))


@dataclass(frozen=True)
class FitRiskProblem:
    """A batch of independent problems with the same model.

    Attributes:
        variable: what is solved for, and the model as a function of it.
        weights: w > 0 (K,), in the units of (loss / input)^2.
        bounds: smallest and largest value, two numbers or two tensors (n, ...); None: no bounds, as
            in the paper.
        recorded: evaluates points where passes are recorded on a GPU; None: nowhere.

    Example: see `credibly.credibility`, which builds and solves one.
    """

    variable: Variable
    weights: Tensor
    bounds: Limits | None = None
    recorded: Callable[[FitRiskProblem, Tensor], Point] | None = None

    @property
    def x0(self) -> Tensor:
        """Where the search starts: the inputs, or the part of them that moves (n, ...)."""
        return self.variable.start

    def __len__(self) -> int:
        return len(self.x0)

    @property
    def repeatable(self) -> bool:
        """Whether a few copies of a sample cost little and help; see `filled_up`."""
        small = self.x0[:1].numel() <= FEW_NUMBERS and self.x0.device.type == "cpu"
        return small and self.recorded is None and self.variable.moves == "inputs"

    def select(self, rows: Tensor | slice) -> Self:
        """The problems of the chosen samples."""
        bounds = self.bounds
        if bounds is not None and isinstance(bounds[0], Tensor):
            bounds = tuple(limit[rows] for limit in bounds)  # type: ignore[assignment]
        return replace(self, variable=self.variable.select(rows), bounds=bounds)

    def evaluate(self, x: Tensor, multipliers: Tensor | None = None) -> Point:
        """One pass: losses, F, and the gradient 2 (x - x0) + sum_k lambda_k grad l_k.

        By default lambda is 2 l / w, which gives the gradient of F.
        """
        if self.recorded is not None and multipliers is None:
            return self.recorded(self, x)
        found = losses_and_pull(
            self.variable, x, self.multipliers if multipliers is None else lambda _: multipliers
        )
        shift = x - self.x0
        gradient = 2 * shift + found.pull
        return Point(x, found.losses, self._objective(shift, found.losses), gradient)

    def with_losses(self, point: Point) -> Point:
        """The point with the losses of this problem, and another one's gradient: one forward."""
        losses = losses_only(self.variable, point.x)
        return replace(point, losses=losses, objective=self._objective(point.x - self.x0, losses))

    def objective(self, x: Tensor) -> Tensor:
        """F (n,): one forward."""
        return self._objective(x - self.x0, losses_only(self.variable, x))

    def multipliers(self, losses: Tensor) -> Tensor:
        """The lambda = 2 l / w that belong to given losses (n, K)."""
        return 2 * losses / self.weights

    def misfit(self, losses: Tensor) -> Tensor:
        """The part of F that is not risk: sum_k l_k^2 / w_k (n,)."""
        return (losses.square() / self.weights).sum(1)

    def risk(self, x: Tensor) -> Tensor:
        """|x - x0|^2 (n,)."""
        return (x - self.x0).flatten(1).square().sum(1)

    def project(self, x: Tensor) -> Tensor:
        """The nearest point inside the bounds."""
        return x if self.bounds is None else x.clamp(*self.bounds)

    def free(self, point: Point) -> Tensor:
        """Features that no active bound holds in place (n, ...)."""
        if self.bounds is None:
            return torch.ones_like(point.x, dtype=torch.bool)
        low, high = self.bounds
        held_low = (point.x <= low) & (point.gradient > 0)
        held_high = (point.x >= high) & (point.gradient < 0)
        return ~(held_low | held_high)

    def free_gradient(self, point: Point) -> Tensor:
        """The gradient without the parts that push against an active bound."""
        return point.gradient if self.bounds is None else point.gradient * self.free(point)

    def relative_stationarity(self, point: Point) -> Tensor:
        """|grad F| relative to the lengths of its two parts, of risk and of fit: 0 to 1 (n,)."""
        shift = 2 * (point.x - self.x0)
        pulls = norm(shift) + norm(point.gradient - shift)
        tiny = torch.finfo(pulls.dtype).tiny
        return norm(self.free_gradient(point)) / pulls.clamp(min=tiny)

    def _objective(self, shift: Tensor, losses: Tensor) -> Tensor:
        return shift.flatten(1).square().sum(1) + self.misfit(losses)
