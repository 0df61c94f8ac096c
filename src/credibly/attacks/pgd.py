"""Projected gradient descent (A0), the attack of the paper, and two attacks that run others.

The inverse map (A6) chooses the answer and computes the input it belongs to; awareness of rejection
(A8) counts what is accepted and wrong as success.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from credibly._validation import choice, positive, real_number, require
from credibly.attacks.ball import Ball
from credibly.attacks.base import SEE_DOCS, Ascent, Attack, Task
from credibly.attacks.system import Score, System, as_profile, choose, worst_verdict
from credibly.model.classifier import Classifier
from credibly.model.variable import Inputs
from credibly.problem.fit_risk import FitRiskProblem
from credibly.types import Array, Labels


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


@dataclass(frozen=True, kw_only=True)
class InverseMap(Attack):
    """A6: any x is the profile point of x0 = x + grad h(x), if the solver ends in its basin.

    Points of a wrong class are found by PGD on the margin, in balls that may be larger than the
    attacker's. The inputs they belong to are projected into the ball, and the deployed solver
    decides which of them is worst.

    Attributes:
        reach: sizes of the balls for these points, in units of eps.

    Example: see docs/how-to/attacks.md.
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


@dataclass(frozen=True)
class RejectionAware:
    """A8: another attack that also wants its inputs to be answered.

    The inner attack first lowers its margin, to -confidence. Once the class is wrong, it also
    lowers how far the score is below the threshold, times `hinge`; before that the score often
    favours the right class. Attacks with gradients (`PGD`, `BPDA`, `ImplicitGradient`, `Unrolled`,
    `Surrogate`) and `Square` use both in their search; the others only choose by both. Since a
    score can also mislead, the inner attack runs unaware as well, and the worse result counts:
    twice the cost.

    Attributes:
        inner: the attack, on a system with gamma.
        threshold: smallest score that is answered, fixed on clean data.
        score: of a profile.
        hinge: weight of the missing score.
        confidence: margin that is enough.

    Example: see docs/how-to/attacks.md.
    """

    inner: Attack
    threshold: float
    score: Score
    _: KW_ONLY
    hinge: float = 1.0
    confidence: float = 1.0

    def __post_init__(self) -> None:
        require(isinstance(self.inner, Attack), "inner", "an attack", repr(self.inner), SEE_DOCS)
        number = real_number(self.threshold) is not None
        require(number, "threshold", "a number", repr(self.threshold), SEE_DOCS)
        _ = self.attack  # its checks run now, not at the first call

    @property
    def attack(self) -> Attack:
        """The inner attack, on the system with the threshold."""
        system = replace(
            self.inner.system,
            score=self.score,
            threshold=self.threshold,
            aware=True,
            hinge=self.hinge,
            confidence=self.confidence,
        )
        return self.inner.on(system)

    def __call__(
        self, clf: Classifier, x: Array, labels: Labels, *, target: Labels | None = None
    ) -> Tensor:
        """As `Attack`: the worse for the system of what it finds aware and unaware."""
        aware = self.attack
        found = [
            attack(clf, x, labels, target=target) for attack in (aware, aware.on(self._unaware))
        ]
        judged = [aware.system.judge(clf, one, labels, target=target) for one in found]
        return choose(torch.stack(found), worst_verdict(judged))

    def all_restarts(
        self, clf: Classifier, x: Array, labels: Labels, *, target: Labels | None = None
    ) -> Tensor:
        """As `Attack`, for the aware attack only."""
        return self.attack.all_restarts(clf, x, labels, target=target)

    @property
    def _unaware(self) -> System:
        return replace(self.attack.system, aware=False)
