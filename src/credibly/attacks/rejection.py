"""Attacks on systems that may refuse to answer (A8): success is accepted and wrong."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from credibly.attacks.base import Attack
from credibly.attacks.system import Score, System, worst_verdict
from credibly.model.classifier import Classifier
from credibly.solve.base import require
from credibly.types import Array, Labels, real_number


@dataclass(frozen=True)
class RejectionAware:
    """A8: another attack that wants its inputs to be answered, too.

    The inner attack first lowers its margin, to -confidence, and from where the class is wrong also
    what the score lacks to the threshold, times `hinge`. Before that the score is left alone: it
    often speaks for the right class. Attacks with gradients (`PGD`, `BPDA`, `ImplicitGradient`,
    `Unrolled`, `Surrogate`) follow both; `Square` asks for both; the others only choose by both.
    Since a score can also lead astray, the inner attack runs unaware, too, and the worse result
    counts: twice the price.

    Attributes:
        inner: the attack, on a system with gamma.
        threshold: smallest score that is answered, fixed on clean data.
        score: of a profile.
        hinge: weight of the missing score.
        confidence: margin that is enough.
    """

    inner: Attack
    threshold: float
    score: Score
    _: KW_ONLY
    hinge: float = 1.0
    confidence: float = 1.0

    def __post_init__(self) -> None:
        require(isinstance(self.inner, Attack), "inner", "an attack", self.inner)
        known = real_number(self.threshold) is not None
        require(known, "threshold", "a number", self.threshold)
        _ = self.attack  # its own checks speak now, not at the first call

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
        self, clf: Classifier, x: Array, labels: Labels, *, target: Tensor | None = None
    ) -> Tensor:
        """As of `Attack`: of what it finds aware and unaware, the worse for the system."""
        aware = self.attack
        found = [
            attack(clf, x, labels, target=target) for attack in (aware, aware.on(self._unaware))
        ]
        judged = [aware.system.judge(clf, one, labels, target=target) for one in found]
        best = worst_verdict(judged)
        return torch.stack(found)[best, torch.arange(len(best), device=best.device)]

    def all_restarts(
        self, clf: Classifier, x: Array, labels: Labels, *, target: Tensor | None = None
    ) -> Tensor:
        """As of `Attack`, of the aware attack alone."""
        return self.attack.all_restarts(clf, x, labels, target=target)

    @property
    def _unaware(self) -> System:
        return replace(self.attack.system, aware=False)
