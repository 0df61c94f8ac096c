"""Projected gradient descent on the bare model (A0), the attack of the paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from credibly.attacks.base import Ascent, Task
from credibly.attacks.system import as_profile
from credibly.model.derivatives import gradient_of
from credibly.solve.base import require


@dataclass(frozen=True, kw_only=True)
class PGD(Ascent):
    """The model's own loss of the true class, raised from a uniform start (Madry et al. 2018).

    It does not know of the profile. `all_restarts` gives every restart by itself; the call gives
    the worst for the system, image by image. Steps never wait for the device.

    Attributes:
        loss: 'own', the classifier's loss of the label (cross-entropy by default), or 'goal', what
            the system decides by, as if x+ were x: the margin, which does not saturate.
        keep: 'last' iterate, as usual, or the 'best' on the way, for one more pass a restart.
        random_start: a random point of the ball; False: the input itself.
    """

    loss: Literal["own", "goal"] = "own"
    keep: Literal["last", "best"] = "last"
    random_start: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.loss in ("own", "goal"), "loss", "'own' or 'goal'", self.loss)
        require(self.keep in ("last", "best"), "keep", "'last' or 'best'", self.keep)

    def run(self, task: Task) -> list[Tensor]:
        if self.keep == "best":
            return super().run(task)
        x = self.start(task)
        objective = self.objective(task)
        for _ in range(self.steps):
            _, slope = gradient_of(task.clf, x, objective)
            x = task.ball.step(x, -slope, self.step_length)
        return [x]

    def start(self, task: Task) -> Tensor:
        return super().start(task) if self.random_start else task.ball.x0

    def objective(self, task: Task) -> Callable[[Tensor], Tensor]:
        clf, system = task.clf, self.system
        weights = system.weight_numbers(clf, task.ball.x0)
        chosen = task.labels if task.target is None else task.target
        sign = -1.0 if task.target is None else 1.0

        def own(x: Tensor) -> Tensor:
            return sign * clf.losses(x).gather(1, chosen[:, None]).squeeze(1)

        def goal(x: Tensor) -> Tensor:
            values = -clf.losses(x)
            return system.goal(as_profile(values, values, x, x, weights), task.labels, task.target)

        return own if self.loss == "own" and not system.aware else goal
