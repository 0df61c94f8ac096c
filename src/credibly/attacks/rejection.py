"""Attacks on systems that may refuse to answer (A8): success is accepted and wrong."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from credibly._validation import real_number, require
from credibly.attacks.base import SEE_DOCS, Attack
from credibly.attacks.system import Score, System, choose, worst_verdict
from credibly.model.classifier import Classifier
from credibly.types import Array, Labels


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

    Example: see docs/attacks.md.
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
