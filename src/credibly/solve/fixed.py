"""A descent of fixed length: what a decision needs, at a price that is known beforehand.

Normalised gradient steps with momentum and lengths that fall linearly to zero,

    d <- m d + g / |g|,    x <- x - a r (1 - t / T) d / |d|,    t = 0, ..., T - 1,

with r the likely distance |x+ - x0| of each sample, which the pass at x0 tells. The best of the
T + 1 points is kept. There is no line search, no stopping rule and no branch on values, so that
T + 1 passes are all it takes and on a GPU the whole descent is one recorded graph. The loop of
`solve/loop.py`, which exists to stop each sample by itself, is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from credibly._validation import positive, tolerance, whole
from credibly.problem.fit_risk import FitRiskProblem, Point
from credibly.solve.base import likely_distance
from credibly.types import norm, per_sample


@dataclass(frozen=True, kw_only=True)
class FixedDescent:
    """The settings of a descent of fixed length; chosen in docs/explanation/solvers.md.

    Attributes:
        radius: r, one distance in the space of the inputs for all samples; None: each sample's own.
        steps: T; a descent takes T + 1 passes.
        length: a, of the first step in units of the radius.
        momentum: m, the share of the last direction that is kept.

    Example:
        >>> import credibly as cr
        >>> cr.solvers.FixedDescent().passes
        9
    """

    radius: float | None = None
    steps: int = 8
    length: float = 0.7
    momentum: float = 0.2

    def __post_init__(self) -> None:
        if self.radius is not None:
            positive("radius", self.radius, "Leave it out: each sample then has its own.")
        whole("steps", self.steps)
        positive("length", self.length)
        tolerance(self.momentum, "momentum")

    @property
    def passes(self) -> int:
        """Forward-and-backward passes per sample."""
        return self.steps + 1

    def run(
        self, problem: FitRiskProblem, draft: FitRiskProblem | None = None
    ) -> tuple[Point, Point]:
        """The starting point and the best one, both evaluated.

        With a `draft`, the same problem in a cheaper precision, all gradients are its own: exact
        losses of x0 and of the best point take one forward each, and x0 is kept where the best is
        no better.
        """
        steps = draft or problem
        start = steps.evaluate(problem.x0)
        best, point, direction = start, start, torch.zeros_like(start.x)
        radius = likely_distance(problem, start) if self.radius is None else self.radius
        first = per_sample(self.length * radius * torch.ones_like(start.objective), start.x)
        for step in range(self.steps):
            direction = self.momentum * direction + _unit(problem.free_gradient(point))
            size = first * (1 - step / self.steps)
            point = steps.evaluate(problem.project(point.x - size * _unit(direction)))
            # a comparison with NaN is false, so a step into nowhere is never the best
            best = best.replaced(point, point.objective < best.objective)
        if draft is None:
            return start, best
        start, found = problem.with_losses(start), problem.with_losses(best)
        return start, start.replaced(found, found.objective < start.objective)


def _unit(values: Tensor) -> Tensor:
    """Each sample divided by its length; zeros stay zeros."""
    length = norm(values).clamp(min=torch.finfo(values.dtype).tiny)
    return (values / per_sample(length, values)).nan_to_num(0.0, 0.0, 0.0)
