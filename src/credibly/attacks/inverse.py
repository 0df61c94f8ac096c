"""The inverse map as an attack (A6): choose the answer, and compute the input it belongs to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from credibly._validation import positive, require
from credibly.attacks.ball import Ball
from credibly.attacks.base import SEE_DOCS, Attack, Task
from credibly.attacks.pgd import PGD
from credibly.model.variable import Inputs
from credibly.problem.fit_risk import FitRiskProblem


@dataclass(frozen=True, kw_only=True)
class InverseMap(Attack):
    """A6: any x is the profile point of x0 = x + grad h(x), if the solver ends in its basin.

    Points of a wrong class are found by PGD on the margin, in balls that may be larger than the
    attacker's. The inputs they belong to are projected into the ball, and the deployed solver
    decides which of them is worst.

    Attributes:
        reach: sizes of the balls for these points, in units of eps.

    Example: see docs/attacks.md.
    """

    reach: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)

    needs_profile: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(len(self.reach) > 0, "reach", "at least one number", repr(self.reach), SEE_DOCS)
        for size in self.reach:
            positive("reach", size)

    def run(self, task: Task) -> list[Tensor]:
        weights = self.system.weights_for(task.clf, task.ball.x0)
        found = []
        for size in self.reach:
            planted = self._planted(task, size * self.eps)
            problem = FitRiskProblem(Inputs(task.clf, planted), weights)
            # at x = x0 the gradient of F is 2 grad h alone
            found.append(planted + problem.evaluate(planted).gradient / 2)
        return found

    def _planted(self, task: Task, eps: float) -> Tensor:
        pgd = PGD(eps=eps, norm=self.norm, steps=self.steps, loss="goal", keep="best")
        ball = Ball.around(task.ball.x0, eps, self.norm, self.bounds)
        return pgd.run(replace(task, ball=ball))[0]
