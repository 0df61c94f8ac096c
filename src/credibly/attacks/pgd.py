"""Projected gradient descent on the bare model (A0), the attack of the paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from credibly._validation import choice
from credibly.attacks.base import SEE_DOCS, Ascent, Task
from credibly.attacks.system import as_profile


@dataclass(frozen=True, kw_only=True)
class PGD(Ascent):
    """A0: raises the model's own loss of the true class from a random start (Madry et al. 2018).

    It does not use the profile. `all_restarts` gives every restart; the call gives the worst for
    the system, sample by sample. Steps never wait for the device.

    Attributes:
        loss: 'own', the classifier's loss of the label (cross-entropy by default), or 'goal', what
            the system decides by, as if x+ were x: the margin, which does not saturate.
        keep: the 'last' iterate, as usual, or the 'best', for one more pass per restart.
        random_start: start at a random point of the ball; False: at the input itself.

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(lambda x: x)
        >>> attack = cr.attacks.PGD(eps=0.25, steps=5, random_start=False)
        >>> attack(clf, torch.tensor([[2.0, 0.0]]), [0]).tolist()
        [[1.75, 0.25]]
    """

    loss: Literal["own", "goal"] = "own"
    keep: Literal["last", "best"] = "last"
    random_start: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("loss", self.loss, ("own", "goal"), SEE_DOCS)
        choice("keep", self.keep, ("last", "best"), SEE_DOCS)

    @property
    def keeps_best(self) -> bool:
        return self.keep == "best"

    def start(self, task: Task) -> Tensor:
        return super().start(task) if self.random_start else task.ball.x0

    def objective(self, task: Task) -> Callable[[Tensor], Tensor]:
        clf, system = task.clf, self.system
        weights: tuple[float, ...] = ()
        if system.weighed:
            weights = tuple(system.weights_for(clf, task.ball.x0).tolist())
        chosen = task.labels if task.target is None else task.target
        sign = -1.0 if task.target is None else 1.0

        def own(x: Tensor) -> Tensor:
            return sign * clf.losses(x).gather(1, chosen[:, None]).squeeze(1)

        def goal(x: Tensor) -> Tensor:
            values = -clf.losses(x)
            return system.goal(as_profile(values, values, x, x, weights), task.labels, task.target)

        return own if self.loss == "own" and not system.aware else goal
