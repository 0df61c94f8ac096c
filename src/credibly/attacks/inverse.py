"""The inverse map as an attack (A6): plant the answer, and ask for the input it belongs to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from credibly.attacks.ball import Ball
from credibly.attacks.base import Attack, Task
from credibly.attacks.pgd import PGD
from credibly.attacks.system import System
from credibly.problem.fit_risk import FitRiskProblem
from credibly.solve.base import require, require_positive


@dataclass(frozen=True, kw_only=True)
class InverseMap(Attack):
    """A6: any x is the profile point of x0 = x + grad h(x), if the solver ends in its basin.

    Points of a wrong class are planted by PGD on the margin, in balls that may be larger than the
    attacker's. The inputs they belong to are projected into the ball, and the deployed solver says
    which of them is worst.

    Attributes:
        reach: sizes of the balls for planting, in units of eps.
    """

    reach: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)

    needs_profile: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(len(self.reach) > 0, "reach", "at least one number", self.reach)
        for size in self.reach:
            require_positive("reach", size)

    def run(self, task: Task) -> list[Tensor]:
        weights = self.system.weights_for(task.clf, task.ball.x0)
        found = []
        for size in self.reach:
            planted = self._planted(task, size * self.eps)
            problem = FitRiskProblem(task.clf, planted, weights)
            # at x = x0 the gradient of F is that of the fit alone: 2 grad h
            found.append(planted + problem.evaluate(planted).gradient / 2)
        return found

    def _planted(self, task: Task, eps: float) -> Tensor:
        plain = PGD(
            eps=eps, norm=self.norm, bounds=self.bounds, steps=self.steps, loss="goal",
            keep="best", system=System(),
        )  # fmt: skip
        ball = Ball.around(task.ball.x0, eps, self.norm, self.bounds)
        return plain.run(replace(task, ball=ball))[0]
