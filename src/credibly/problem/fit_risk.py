"""The fit-risk trade-off as one smooth-as-the-model objective (Definitions 1 and 2).

    F(x) = |x - x0|^2 + sum_k l_k(phi(x))^2 / w_k

At a minimiser x+ the credibilities are c_k = -l_k and the multipliers lambda_k = 2 l_k / w_k.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from credibly.model.classifier import Classifier
from credibly.model.derivatives import losses_and_pull, losses_only
from credibly.types import Limits, norm, per_sample


@dataclass(frozen=True)
class Point:
    """Inputs with everything one pass tells about them; the sample axis is first."""

    x: Tensor
    losses: Tensor
    objective: Tensor
    gradient: Tensor

    def select(self, rows: Tensor) -> Point:
        """The chosen samples."""
        return Point(*(getattr(self, f.name)[rows] for f in fields(self)))

    def copy(self) -> Point:
        """The same values in tensors of its own."""
        return Point(*(getattr(self, f.name).clone() for f in fields(self)))

    def write(self, rows: Tensor, other: Point) -> None:
        """Overwrite the samples with the numbers `rows`, in place."""
        for f in fields(self):
            getattr(self, f.name)[rows] = getattr(other, f.name)

    def replaced(self, other: Point, rows: Tensor) -> Point:
        """Where the mask `rows` (n,) is true, the other point."""
        return Point(
            *(
                torch.where(
                    per_sample(rows, getattr(self, f.name)),
                    getattr(other, f.name),
                    getattr(self, f.name),
                )
                for f in fields(self)
            )
        )


@dataclass(frozen=True)
class FitRiskProblem:
    """A batch of independent problems over one frozen model.

    Attributes:
        classifier: the model.
        x0: the inputs (n, ...).
        weights: w > 0 (K,), in the units of (loss / input)^2.
        bounds: smallest and largest value of any feature, or of each of each sample (n, ...), or
            None (the paper has none).
    """

    classifier: Classifier
    x0: Tensor
    weights: Tensor
    bounds: Limits | None = None

    def __len__(self) -> int:
        return len(self.x0)

    def select(self, rows: Tensor | slice) -> FitRiskProblem:
        """The problems of the chosen samples."""
        return replace(self, **self.selected(rows))

    def selected(self, rows: Tensor | slice) -> dict[str, Any]:
        """The parts that have a row a sample, for the chosen ones."""
        low, high = self.bounds or (None, None)
        each = isinstance(low, Tensor) and isinstance(high, Tensor)
        return {
            "classifier": self.classifier.select(rows),
            "x0": self.x0[rows],
            "bounds": (low[rows], high[rows]) if each else self.bounds,  # type: ignore[index]
        }

    def evaluate(self, x: Tensor, multipliers: Tensor | None = None) -> Point:
        """One pass: losses, F and 2 (x - x0) + sum_k lambda_k grad l_k.

        Without `multipliers` they are 2 l / w, and the last is the gradient of F.
        """
        found = losses_and_pull(
            self.classifier, x, self.multipliers if multipliers is None else lambda _: multipliers
        )
        shift = x - self.x0
        gradient = 2 * shift + found.pull
        return Point(x, found.losses, self._objective(shift, found.losses), gradient)

    def objective(self, x: Tensor) -> Tensor:
        """F (n,): one forward."""
        return self._objective(x - self.x0, losses_only(self.classifier, x))

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
        """Features that may move: those no active bound holds back (n, ...)."""
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
        """|grad F| against the two pulls that balance in it, risk and fit: 0 to 1 (n,)."""
        shift = 2 * (point.x - self.x0)
        pulls = norm(shift) + norm(point.gradient - shift)
        tiny = torch.finfo(pulls.dtype).tiny
        return norm(self.free_gradient(point)) / pulls.clamp(min=tiny)

    def _objective(self, shift: Tensor, losses: Tensor) -> Tensor:
        return shift.flatten(1).square().sum(1) + self.misfit(losses)
