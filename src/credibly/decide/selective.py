"""Answer or abstain, by a threshold whose origin is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from credibly._validation import choice, require, share
from credibly.decide import thresholds
from credibly.decide.rule import Answers, Rule, make_answers
from credibly.decide.settings import check_own_profile, finite
from credibly.decide.trust_scores import Plain, TrustScore, as_score, failure_score, score_from_json
from credibly.io.labels import class_numbers
from credibly.profile.profile import Profile
from credibly.types import Labels

Answer = Literal["model", "credible"]


class Abstention(Enum):
    """The answer "I do not know". It is not a number, so no argmax and no index can mistake it."""

    ABSTAINED = "abstained"

    def __repr__(self) -> str:
        return "ABSTAINED"

    def __str__(self) -> str:
        return self.value


ABSTAINED = Abstention.ABSTAINED


@dataclass(frozen=True, eq=False, repr=False)
class Decision:
    """What was decided about each sample.

    Example: see `SelectiveClassifier`.

    Attributes:
        classes: the class of each sample, or ABSTAINED.
        accepted: which samples (N,) got a class.
        scores: the score of each (N,); NaN where there is no profile, which is never accepted.
        threshold: scores of at least this were accepted.
        names: names of the classes, if known.
        class_count: how many classes the model has, if known; labels are checked by it.
    """

    classes: tuple[int | Abstention, ...]
    accepted: Tensor
    scores: Tensor
    threshold: float
    names: tuple[str, ...] | None = None
    class_count: int | None = None

    @property
    def coverage(self) -> float:
        """Share of the samples that got a class."""
        return float(self.accepted.double().mean())

    def named(self) -> list[str]:
        """The name of each class, or 'abstained'."""
        return [
            c.value if isinstance(c, Abstention) else (self.names[c] if self.names else str(c))
            for c in self.classes
        ]

    def accuracy(self, labels: Labels) -> float:
        """Share of the answers that are right; NaN if there are none."""
        truth = class_numbers(labels, len(self.classes), self.class_count, self.names).tolist()
        right = [c == y for c, y in zip(self.classes, truth, strict=True) if c is not ABSTAINED]
        return sum(right) / len(right) if right else float("nan")

    def summary(self, labels: Labels | None = None) -> str:
        """How many were answered and, with labels, how many of the answers are right."""
        answered, count = int(self.accepted.sum()), len(self.classes)
        unsolved = int(self.scores.isnan().sum())
        why = thresholds.describe(self.threshold)
        why += f", {unsolved} of them without a profile" if unsolved else ""
        text = f"{answered} of {count} answered ({self.coverage:.1%}), {count - answered} abstained"
        if labels is None:
            return f"{text} ({why})"
        right = f"{self.accuracy(labels):.2%}" if answered else "nothing was answered"
        return f"{text} ({why})\nright among the answered: {right}"

    def __repr__(self) -> str:
        answered, count = int(self.accepted.sum()), len(self.classes)
        return f"Decision({answered} of {count} answered; {thresholds.describe(self.threshold)})"


def _check_answer(answer: Answer) -> Answer:
    remedy = "'model' keeps the model's class; 'credible' takes the most credible one."
    choice("answer", answer, ("model", "credible"), remedy)
    return answer


@dataclass(frozen=True, repr=False)
class SelectiveClassifier(Rule):
    """Answers where a score of the profile reaches a threshold, and abstains elsewhere.

    Attributes:
        threshold: smallest accepted score.
        score: what is compared with the threshold.
        answer: 'model' keeps the class the model predicts at x0; 'credible' takes the most credible
            class at x+, as the paper does.
        origin: how the threshold was chosen.
        settings: those of the profiles the threshold was chosen on; others are refused.

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(torch.nn.Linear(4, 3))
        >>> profile = cr.credibility(clf, torch.randn(20, 4), gamma=10.0)
        >>> cr.SelectiveClassifier.for_coverage(clf, profile, 0.8).decide(profile).coverage
        0.8
    """

    format = "credibly.selective"
    readers: ClassVar = {
        "threshold": finite,
        "score": score_from_json,
        "answer": _check_answer,
        "origin": dict,
    }

    threshold: float
    score: TrustScore
    answer: Answer
    origin: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def for_coverage(
        cls,
        clf: object,
        profile: Profile,
        coverage: float,
        *,
        score: str | TrustScore | None = None,
        answer: Answer = "model",
    ) -> SelectiveClassifier:
        """Answer this share of samples like those of the profile; no labels are needed.

        Args:
            clf: the classifier of the profile.
            profile: of a sample like those to come.
            coverage: in (0, 1].
            score: a name or a score; by default softmax and the profile together, balanced by
                this sample (`failure_score`); see docs/explanation/scores.md.
            answer: 'model' or 'credible'.
        """
        check_own_profile(clf, profile)
        _classes(profile, _check_answer(answer))
        chosen = failure_score(profile) if score is None else as_score(score)
        threshold = thresholds.for_coverage(chosen(profile), coverage)
        origin = {"rule": "coverage", "coverage": float(coverage), "samples": len(profile)}
        return cls(threshold, chosen, answer, origin, settings=profile.settings)

    @classmethod
    def for_error_rate(
        cls,
        clf: object,
        profile: Profile,
        labels: Labels,
        error_rate: float,
        *,
        confidence: float = 0.95,
        score: str | TrustScore | None = None,
        answer: Answer = "model",
    ) -> SelectiveClassifier:
        """Answer as much as possible while at most the share `error_rate` of the answers is wrong.

        The promise holds with probability `confidence` over the labelled sample, for new samples of
        the same distribution, and a score fixed beforehand. The default score fits its scales to
        this very sample, so the promise is approximate.

        Args:
            clf: the classifier of the profile.
            profile: of a labelled sample like those to come, not used in training.
            labels: its classes (N,).
            error_rate: share of wrong answers to allow, in (0, 1).
            confidence: of the promise, in (0, 1).
            score: as in `for_coverage`.
            answer: 'model' or 'credible'.
        """
        check_own_profile(clf, profile)
        _check_answer(answer)
        chosen = failure_score(profile) if score is None else as_score(score)
        names = profile.settings.classes
        truth = class_numbers(labels, len(profile), profile.class_count, names)
        correct = _classes(profile, answer).cpu() == truth
        values = chosen(profile).cpu()
        threshold = thresholds.for_error_rate(values, correct, error_rate, confidence)
        rates = {"error_rate": float(error_rate), "confidence": float(confidence)}
        origin = {"rule": "error_rate", **rates, "samples": len(profile)}
        return cls(threshold, chosen, answer, origin, settings=profile.settings)

    @classmethod
    def for_alpha(cls, clf: object, profile: Profile, alpha: float) -> SelectiveClassifier:
        """The paper's rule: the most credible class, if |c1| <= (1 - alpha) |c2|.

        Args:
            clf: the classifier of the profile.
            profile: any profile of it; only its settings are used.
            alpha: in (0, 1); larger abstains more.
        """
        check_own_profile(clf, profile)
        level = share("alpha", alpha)
        _classes(profile, "credible")
        origin = {"rule": "alpha", "alpha": level}
        return cls(level, Plain("ratio"), "credible", origin, settings=profile.settings)

    def decide(self, profile: Profile) -> Decision:
        """Answer or abstain for every sample; those without a profile are never answered."""
        self.check(profile)
        values = self.score(profile).double()
        accepted = values >= self.threshold
        pairs = zip(_classes(profile, self.answer).tolist(), accepted.tolist(), strict=True)
        classes = tuple(int(k) if yes else ABSTAINED for k, yes in pairs)
        names, count = profile.settings.classes, profile.class_count
        return Decision(classes, accepted, values, self.threshold, names, count)

    def answers(self, profile: Profile) -> Answers:
        """The classes of `decide`; see `Rule.answers`."""
        decision = self.decide(profile)
        classes = tuple(None if isinstance(k, Abstention) else k for k in decision.classes)
        columns = {"score": decision.scores.tolist()}
        notes = f"abstains: {thresholds.describe(self.threshold)}"
        return make_answers(profile, classes, columns, notes)

    def __str__(self) -> str:
        origin = ", ".join(f"{name} {value}" for name, value in self.origin.items())
        return (
            f"{self.score}; abstains: {thresholds.describe(self.threshold)}; "
            f"answer={self.answer!r}; {origin}"
        )


def _classes(profile: Profile, answer: Answer) -> Tensor:
    if answer == "model":
        return profile.predicted
    require(
        profile.kept is None,
        "answer",
        "'model' for a profile with `top`: where all other classes together are ahead, it has no "
        "most credible class",
        repr(answer),
        "Use answer='model', or solve without top.",
    )
    return profile.credibility.nan_to_num(-torch.inf).argmax(1)
