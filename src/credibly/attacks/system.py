"""What is attacked: how the deployed decision is made, and how far it is from being wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

import torch
from torch import Tensor

from credibly.attacks.classes import checked_classes
from credibly.errors import InvalidArgumentError
from credibly.model.classifier import Classifier
from credibly.model.derivatives import losses_only, ordinary, undisturbed
from credibly.problem.fit_risk import FitRiskProblem
from credibly.problem.weights import resolve_weights
from credibly.profile.certificate import Certificate
from credibly.profile.credibility import solved_profile
from credibly.profile.profile import Profile, Settings
from credibly.solve.base import Solver, require, require_positive, require_whole
from credibly.solve.hybrid import Hybrid
from credibly.solve.status import Status
from credibly.types import Bounds, Labels, real_number

Score = Callable[[Profile], Tensor]
"""Trust in each sample of a profile (n,), higher is better; see `credibly.decide.scores`."""


@dataclass(frozen=True)
class Outcome:
    """What a system says to inputs, and how far that is from what the attacker wants.

    Attributes:
        classes: the decision (n,).
        accepted: whether the system answers at all (n,).
        scores: trust (n,), or None for a system that does not rank.
        margin: value of the right class less that of the best other (n,); with targets, of the
            best other less that of the target. Negative: the class is as the attacker wants it;
            zero: a tie.
        goal: what an attack lowers (n,): the margin; with `aware`, where the class is as wanted,
            what the score lacks to the threshold.
        success: the class is as the attacker wants it, and the system answers (n,).
    """

    classes: Tensor
    accepted: Tensor
    scores: Tensor | None
    margin: Tensor
    goal: Tensor
    success: Tensor

    @staticmethod
    def concatenate(parts: Sequence[Outcome]) -> Outcome:
        """One verdict of many."""
        joined: dict[str, Any] = {}
        for f in fields(Outcome):
            values = [getattr(part, f.name) for part in parts]
            joined[f.name] = None if values[0] is None else torch.cat(values)
        return Outcome(**joined)


@dataclass(frozen=True, kw_only=True)
class System:
    """How a deployed decision is made. An immutable value; the model is passed to its methods.

    Attributes:
        decision: 'model', the class of the bare model, or 'profile', the most credible class.
        gamma: as of `credibility`, a number. 'auto' depends on the batch: call `auto_gamma` once.
        weights: one number a class instead.
        solver: the deployed solver; None: `Hybrid()`.
        bounds: of x+ in the deployed solve, as of `credibility`.
        score: trust in a sample; with `threshold`, samples below it are rejected.
        threshold: smallest score that is answered.
        transform: applied to inputs before all else, such as rounding; it may have no derivative.
        aware: whether attacks are to get past the threshold, too; see `RejectionAware`.
        hinge: weight of the missing score in the goal of such attacks.
        confidence: margin below which they care for the score alone.
        chunk_size: samples solved at a time.
    """

    decision: Literal["model", "profile"] = "model"
    gamma: float | None = None
    weights: Sequence[float] | None = None
    solver: Solver | None = None
    bounds: Bounds | None = None
    score: Score | None = None
    threshold: float | None = None
    transform: Callable[[Tensor], Tensor] | None = None
    aware: bool = False
    hinge: float = 1.0
    confidence: float = 1.0
    chunk_size: int = 128

    def __post_init__(self) -> None:
        remedy = "See docs/attacks.md; System.bare, System.most_credible and System.ranked help."
        known = self.decision in ("model", "profile")
        require(known, "decision", "'model' or 'profile'", self.decision, remedy)
        require_whole("chunk_size", self.chunk_size)
        require_positive("hinge", self.hinge)
        given = (self.gamma is not None) + (self.weights is not None)
        if self.solves and given != 1:
            raise InvalidArgumentError(
                "gamma",
                expected="exactly one of gamma and weights, since a profile is solved",
                got="both" if given else "neither",
                remedy="Pass gamma=200.0 or weights=<K numbers>.",
            )
        number = self.gamma is None or real_number(self.gamma) is not None
        require(
            number, "gamma", "a number", self.gamma, "Call auto_gamma once and pass its number."
        )
        if self.threshold is not None and self.score is None:
            raise InvalidArgumentError(
                "score",
                expected="a score to compare with the threshold",
                got="None",
                remedy="Pass score=credibly.decide.scores.ratio or another.",
            )
        aware = not self.aware or self.threshold is not None
        require(aware, "threshold", "a number, since `aware` is set", self.threshold, remedy)

    @classmethod
    def bare(cls) -> Self:
        """The model's own class, always answered."""
        return cls()

    @classmethod
    def most_credible(cls, *, gamma: float, solver: Solver | None = None) -> Self:
        """System B: the class with the largest c+, always answered."""
        return cls(decision="profile", gamma=gamma, solver=solver)

    @classmethod
    def ranked(
        cls,
        *,
        score: Score,
        gamma: float,
        threshold: float | None = None,
        solver: Solver | None = None,
    ) -> Self:
        """System A: the model's class, answered where a score of the profile is high enough."""
        return cls(gamma=gamma, score=score, threshold=threshold, solver=solver)

    @property
    def solves(self) -> bool:
        """Whether the decision needs profiles."""
        return self.decision == "profile" or self.score is not None

    def calibrated(self, clf: Classifier, x: Tensor, *, coverage: float = 0.9) -> Self:
        """The same system with the threshold that answers this share of clean inputs.

        Those without a profile are never answered; where they are too many, all others are.
        """
        if self.score is None or not 0 < coverage <= 1:
            raise InvalidArgumentError(
                "coverage",
                expected="a share in (0, 1], of a system with a score",
                got=f"{coverage!r} with score {self.score!r}",
                remedy="Use System.ranked(score=..., gamma=...), and 0.9 to answer nine in ten.",
            )
        scores = self.score(self.profile(clf, x)).double()
        known = scores[~scores.isnan()].sort(descending=True).values  # NaN would come first
        if len(known) == 0:
            raise InvalidArgumentError(
                "x",
                expected="at least one input that can be solved",
                got=f"{len(scores)} inputs, none of them",
                remedy="Look at system.profile(clf, x).status.",
            )
        last = min(max(1, round(coverage * len(scores))), len(known)) - 1
        return replace(self, threshold=float(known[last]))

    def profile(self, clf: Classifier, x: Tensor, *, solver: Solver | None = None) -> Profile:
        """Profiles by the deployed solver, or by another."""
        chosen = solver or self.solver or Hybrid()
        with undisturbed(x) as x0:
            w = self.weights_for(clf, x0)
            problem = FitRiskProblem(clf, x0.detach(), w, self.bounds)
            return solved_profile(problem, chosen, chunk_size=self.chunk_size, bounds=self.bounds)

    def weights_for(self, clf: Classifier, x: Tensor) -> Tensor:
        """W (K,) like x."""
        return resolve_weights(clf, x[:1], gamma=self.gamma, weights=self.weights)

    def weight_numbers(self, clf: Classifier, x: Tensor) -> tuple[float, ...]:
        """The same as numbers, for the settings of a profile; none where there are no weights."""
        weighed = self.gamma is not None or self.weights is not None
        return tuple(self.weights_for(clf, x).tolist()) if weighed else ()

    def moved(self, x: Tensor) -> Tensor:
        """Inputs after the transform, without a gradient."""
        return x if self.transform is None else ordinary(self.transform(x.detach())).detach()

    def judge(
        self, clf: Classifier, x: Tensor, labels: Labels, *, target: Tensor | None = None
    ) -> Outcome:
        """Decide with the deployed solver, `chunk_size` samples at a time."""
        parts, labels = [], checked_classes("labels", labels, x, None)
        target = None if target is None else checked_classes("target", target, x, None)
        for rows in torch.split(torch.arange(len(x), device=x.device), self.chunk_size):
            wanted = None if target is None else target[rows]
            parts.append(self._judge(clf, x[rows], labels[rows], wanted))
        return Outcome.concatenate(parts)

    def _judge(self, clf: Classifier, x: Tensor, labels: Tensor, target: Tensor | None) -> Outcome:
        x = self.moved(x)
        if self.solves:
            profile = self.profile(clf, x)
        else:
            values = -losses_only(clf, x)
            profile = as_profile(values, values, x, x, ())
        for name, classes in (("labels", labels), ("target", target)):
            if classes is not None:
                checked_classes(name, classes, x, profile.credence.shape[1])
        with torch.no_grad():
            margin = self.margin(profile, labels, target)
            goal = self.goal(profile, labels, target)
            scores = None if self.score is None else self.score(profile)
        accepted = torch.ones_like(labels, dtype=torch.bool)
        if scores is not None and self.threshold is not None:
            accepted = scores.double() >= self.threshold
        classes = self._values(profile).argmax(1)
        # the class itself is asked, not the margin: of classes in a tie the first is answered
        wanted = classes != labels if target is None else classes == target
        success = accepted & wanted & ~margin.isnan()
        return Outcome(classes, accepted, scores, margin, goal, success)

    def margin(self, profile: Profile, labels: Tensor, target: Tensor | None = None) -> Tensor:
        """The margin of `Outcome`, differentiable where the profile is attached to something."""
        values = self._values(profile)
        own = (labels if target is None else target)[:, None]
        gap = values.gather(1, own).squeeze(1) - values.scatter(1, own, -torch.inf).amax(1)
        return gap if target is None else -gap

    def goal(self, profile: Profile, labels: Tensor, target: Tensor | None = None) -> Tensor:
        """The goal of `Outcome`, likewise."""
        margin = self.margin(profile, labels, target)
        if not self.aware or self.score is None or self.threshold is None:
            return margin
        missing = (self.threshold - self.score(profile)).clamp(min=0).to(margin)
        share = missing / (1 + missing)  # below one, so that a wrong class always counts more
        # enough margin is enough only while the score is short of the threshold
        enough = torch.where(missing > 0, margin.clamp(min=-self.confidence), margin)
        wrong = enough + self.hinge * share
        # while the class is still right, trust in it is nothing the attacker wants
        return torch.where(margin < 0, wrong, margin + self.hinge)

    def _values(self, profile: Profile) -> Tensor:
        return profile.credence if self.decision == "model" else profile.credibility


def worst_verdict(verdicts: Sequence[Outcome]) -> Tensor:
    """Which verdict is worst for the system (n,): a success first, then the lowest goal."""
    success = torch.stack([verdict.success for verdict in verdicts])
    goal = torch.stack([verdict.goal for verdict in verdicts]).nan_to_num(nan=torch.inf)
    return torch.where(success | ~success.any(0), goal, torch.inf).argmin(0)


def as_profile(
    fit: Tensor, credibility: Tensor, x0: Tensor, perturbed: Tensor, weights: tuple[float, ...]
) -> Profile:
    """A profile as scores see it, whose tensors may be attached to an input; not certified."""
    count = len(x0)
    nothing = torch.full((count,), torch.nan, dtype=x0.dtype, device=x0.device)
    w = torch.tensor(weights or (1.0,)).to(x0)
    return Profile(
        credibility=credibility,
        credence=fit,
        risk=(perturbed - x0).flatten(1).square().sum(1),
        x0=x0,
        perturbed=perturbed,
        multipliers=-2 * credibility / w,
        certificate=Certificate(*[nothing] * len(fields(Certificate))),
        steps=torch.zeros(count, dtype=torch.long, device=x0.device),
        passes=torch.zeros(count, dtype=torch.float64, device=x0.device),
        codes=torch.full((count,), int(Status.CONVERGED), dtype=torch.int8, device=x0.device),
        settings=Settings(weights=weights, solver="", loss="", dtype=str(x0.dtype)),
    )
