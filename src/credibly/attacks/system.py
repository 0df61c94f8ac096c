"""What is attacked: how the deployed decision is made, and how far it is from being wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, Self

import torch
from torch import Tensor

from credibly._validation import choice, positive, real_number, require, share, whole
from credibly._validation import labels as check_labels
from credibly.errors import InvalidArgumentError
from credibly.model.classifier import Classifier
from credibly.model.derivatives import losses_only, ordinary, undisturbed
from credibly.model.variable import Inputs
from credibly.problem.fit_risk import FitRiskProblem
from credibly.problem.weights import resolve_weights
from credibly.profile.certificate import Certificate
from credibly.profile.credibility import solved_profile
from credibly.profile.profile import Profile, Settings
from credibly.solve.base import Solver
from credibly.solve.gradient_descent import Hybrid
from credibly.solve.status import Status
from credibly.types import CPU, Bounds, Labels

Score = Callable[[Profile], Tensor]
"""Trust in each sample of a profile (n,), higher is better; see `credibly.decide.scores`."""

Weights = tuple[float, ...]
Classes = tuple[Tensor, Tensor | None]
"""Labels (n,), and the classes the attacker wants (n,) or None."""


@dataclass(frozen=True)
class Outcome:
    """A system's answers to inputs, and how far they are from what the attacker wants.

    Attributes:
        classes: the decision (n,).
        accepted: whether the system answers at all (n,).
        scores: trust (n,), or None for a system without a score.
        margin: value of the right class minus that of the best other (n,); with targets, of the
            best other minus that of the target. Negative: the class is what the attacker wants;
            zero: a tie.
        goal: what an attack lowers (n,): the margin; with `aware`, once the class is as wanted,
            also how far the score is below the threshold.
        success: the class is what the attacker wants, and the system answers (n,).

    Example: see `System`.
    """

    classes: Tensor
    accepted: Tensor
    scores: Tensor | None
    margin: Tensor
    goal: Tensor
    success: Tensor


@dataclass(frozen=True, kw_only=True)
class System:
    """How a deployed decision is made. An immutable value; the model is passed to its methods.

    Attributes:
        decision: 'model', the class of the bare model, or 'profile', the most credible class.
        gamma: as in `credibility`, a number. 'auto' depends on the batch: call `auto_gamma` once.
        weights: one number per class instead.
        solver: the deployed solver; None: `Hybrid()`.
        bounds: of x+ in the deployed solve, as in `credibility`.
        score: trust in a sample; with `threshold`, samples below it are rejected.
        threshold: smallest score that is answered.
        transform: applied to inputs first, such as rounding; it needs no derivative.
        aware: whether attacks also try to pass the threshold; see `RejectionAware`.
        hinge: weight of the missing score in the goal of such attacks.
        confidence: margin below which only the score counts for them.
        chunk_size: samples solved at a time.

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(lambda x: x)
        >>> cr.attacks.System.bare().judge(clf, torch.eye(2), [0, 0]).success.tolist()
        [False, True]
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
        remedy = (
            "See docs/how-to/attacks.md; System.bare, System.most_credible and System.ranked help."
        )
        choice("decision", self.decision, ("model", "profile"), remedy)
        whole("chunk_size", self.chunk_size)
        positive("hinge", self.hinge)
        given = (self.gamma is not None) + (self.weights is not None)
        one = "exactly one of gamma and weights, since a profile is solved"
        got = "both" if given else "neither"
        require(not self.solves or given == 1, "gamma", one, got, "Pass gamma=200.0, for example.")
        number = self.gamma is None or real_number(self.gamma) is not None
        once = "Call auto_gamma once and pass its number."
        require(number, "gamma", "a number", repr(self.gamma), once)
        scored = self.threshold is None or self.score is not None
        require(scored, "score", "a score to compare with the threshold", "None", remedy)
        aware = not self.aware or self.threshold is not None
        require(aware, "threshold", "a number, since `aware` is set", repr(self.threshold), remedy)

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

    @property
    def weighed(self) -> bool:
        """Whether it has what a profile needs: gamma or weights."""
        return self.gamma is not None or self.weights is not None

    def calibrated(self, clf: Classifier, x: Tensor, *, coverage: float = 0.9) -> Self:
        """The same system with the threshold that answers this share of clean inputs.

        Inputs without a profile are never answered; if there are too many, all others are.
        """
        share("coverage", coverage, closed=True)
        if self.score is None:
            raise InvalidArgumentError(
                "coverage",
                expected="a system with a score",
                got="one without",
                remedy="Use System.ranked(score=..., gamma=...).",
            )
        scores = self.score(self.profile(clf, x)).double()
        known = scores[~scores.isnan()].sort(descending=True).values  # NaN would come first
        require(
            len(known) > 0,
            "x",
            "at least one input that can be solved",
            f"{len(scores)} inputs, none of them",
            "Look at system.profile(clf, x).status.",
        )
        last = min(max(1, round(coverage * len(scores))), len(known)) - 1
        return replace(self, threshold=float(known[last]))

    def profile(self, clf: Classifier, x: Tensor, *, solver: Solver | None = None) -> Profile:
        """Profiles by the deployed solver, or by another."""
        chosen = solver or self.solver or Hybrid()
        with undisturbed(Inputs(clf, x.detach())) as variable:
            w = self.weights_for(clf, variable.start)
            problem = FitRiskProblem(variable, w, self.bounds)
            return solved_profile(problem, chosen, chunk_size=self.chunk_size, bounds=self.bounds)

    def weights_for(self, clf: Classifier, x: Tensor) -> Tensor:
        """W (K,) like x."""
        return resolve_weights(Inputs(clf, x[:1]), gamma=self.gamma, weights=self.weights)

    def transformed(self, x: Tensor) -> Tensor:
        """Inputs after the transform, without a gradient."""
        return x if self.transform is None else ordinary(self.transform(x.detach())).detach()

    def judge(
        self, clf: Classifier, x: Tensor, labels: Labels, *, target: Labels | None = None
    ) -> Outcome:
        """Decide with the deployed solver, `chunk_size` samples at a time."""
        check_classes(labels, target, x)  # before the work
        profile = self._deployed(clf, self.transformed(x))
        known, wanted = check_classes(labels, target, x, profile.credence.shape[1])
        with torch.no_grad():
            margin = self.margin(profile, known, wanted)
            goal = self.goal(profile, known, wanted)
            scores = None if self.score is None else self.score(profile)
        accepted = torch.ones_like(known, dtype=torch.bool)
        if scores is not None and self.threshold is not None:
            accepted = scores.double() >= self.threshold
        classes = self._values(profile).argmax(1)
        # success depends on the class, not on the margin: in a tie the first class is answered
        reached = classes != known if wanted is None else classes == wanted
        success = accepted & reached & ~margin.isnan()
        return Outcome(classes, accepted, scores, margin, goal, success)

    def _deployed(self, clf: Classifier, x: Tensor) -> Profile:
        if self.solves:
            return self.profile(clf, x)
        values = -torch.cat([losses_only(clf, part) for part in torch.split(x, self.chunk_size)])
        return as_profile(values, values, x, x, ())

    def margin(self, profile: Profile, labels: Tensor, target: Tensor | None = None) -> Tensor:
        """The margin of `Outcome`; differentiable if the profile is attached to an input."""
        values = self._values(profile)
        own = (labels if target is None else target)[:, None]
        gap = values.gather(1, own).squeeze(1) - values.scatter(1, own, -torch.inf).amax(1)
        return gap if target is None else -gap

    def goal(self, profile: Profile, labels: Tensor, target: Tensor | None = None) -> Tensor:
        """The goal of `Outcome`; differentiable like the margin."""
        margin = self.margin(profile, labels, target)
        if not self.aware or self.score is None or self.threshold is None:
            return margin
        missing = (self.threshold - self.score(profile)).clamp(min=0).to(margin)
        lacking = missing / (1 + missing)  # below one, so a wrong class always counts more
        # enough margin is enough only while the score is below the threshold
        enough = torch.where(missing > 0, margin.clamp(min=-self.confidence), margin)
        wrong = enough + self.hinge * lacking
        # while the class is still right, the attacker does not want trust in it
        return torch.where(margin < 0, wrong, margin + self.hinge)

    def _values(self, profile: Profile) -> Tensor:
        return profile.credence if self.decision == "model" else profile.credibility


def check_classes(
    labels: Labels, target: Labels | None, x: Tensor, count: int | None = None
) -> Classes:
    """Labels and targets as whole numbers on the device of x, below `count` if that is known."""
    known = check_labels(labels, len(x), count).to(x.device)
    if target is None:
        return known, None
    return known, check_labels(target, len(x), count, "target").to(x.device)


def worst_verdict(verdicts: Sequence[Outcome]) -> Tensor:
    """Which verdict is worst for the system (n,): a success first, then the lowest goal."""
    success = torch.stack([verdict.success for verdict in verdicts])
    goal = torch.stack([verdict.goal for verdict in verdicts]).nan_to_num(nan=torch.inf)
    return torch.where(success | ~success.any(0), goal, torch.inf).argmin(0)


def choose(candidates: Tensor, best: Tensor) -> Tensor:
    """Of candidates (R, n, ...) the chosen one for each sample."""
    return candidates[best, torch.arange(len(best), device=best.device)]


def as_profile(
    credence: Tensor, credibility: Tensor, x0: Tensor, perturbed: Tensor, weights: Weights
) -> Profile:
    """A profile for scores, whose tensors may be attached to an input; not certified."""
    count = len(x0)
    nothing = x0.new_full((count,), torch.nan)
    w = torch.tensor(weights or (1.0,), device=CPU).to(x0)
    return Profile(
        credibility=credibility,
        credence=credence,
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
