"""One input, one decision: answer or abstain, by a threshold whose origin is on record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from credibly.decide import thresholds
from credibly.decide.arguments import check_score, checked_labels
from credibly.decide.learned import Plain, TrustScore, as_score, score_from_json
from credibly.decide.records import (
    UNREADABLE,
    check_own_profile,
    finite,
    in_short,
    read_json,
    refuse_other_settings,
    settings_of,
    write_json,
)
from credibly.errors import FileFormatError, InvalidArgumentError
from credibly.profile.profile import Profile, Settings
from credibly.types import Labels

FORMAT, FORMAT_VERSION = "credibly.selective", 1

Answer = Literal["model", "credible"]


class Abstention(Enum):
    """The answer "I do not know". It is no number, so no argmax and no index can mistake it."""

    ABSTAINED = "abstained"

    def __repr__(self) -> str:
        return "ABSTAINED"

    def __str__(self) -> str:
        return self.value


ABSTAINED = Abstention.ABSTAINED


@dataclass(frozen=True, eq=False, repr=False)
class Decision:
    """What was decided about each sample.

    Attributes:
        classes: the class of each sample, or ABSTAINED.
        accepted: which samples (N,) got a class.
        scores: the score of each (N,); NaN where there is no profile, which is never accepted.
        threshold: scores at least this were accepted.
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
        """Names for people: of the class, or 'abstained'."""
        return [
            c.value if isinstance(c, Abstention) else (self.names[c] if self.names else str(c))
            for c in self.classes
        ]

    def accuracy(self, labels: Labels) -> float:
        """Share of the answers that are right; NaN if there are none."""
        truth = checked_labels(labels, len(self.classes), self.class_count).tolist()
        right = [c == y for c, y in zip(self.classes, truth, strict=True) if c is not ABSTAINED]
        return sum(right) / len(right) if right else float("nan")

    def summary(self, labels: Labels | None = None) -> str:
        """A few lines a person reads."""
        answered = int(self.accepted.sum())
        unsolved = int(self.scores.isnan().sum())
        lines = [
            f"{answered} of {len(self.classes)} answered ({self.coverage:.1%}), "
            f"{len(self.classes) - answered} abstained ({thresholds.in_words(self.threshold)}"
            + (f", {unsolved} of them without a profile)" if unsolved else ")")
        ]
        if labels is not None:
            right = self.accuracy(labels)
            share = f"{right:.2%}" if answered else "nothing was answered"
            lines.append(f"right among the answered: {share}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        answered, count = int(self.accepted.sum()), len(self.classes)
        return f"Decision({answered} of {count} answered; {thresholds.in_words(self.threshold)})"


@dataclass(frozen=True, repr=False)
class SelectiveClassifier:
    """Answers where a score of the profile reaches a threshold, and abstains elsewhere.

    Attributes:
        threshold: smallest accepted score.
        score: what is compared with the threshold.
        answer: 'model' keeps the class the model predicts at x0; 'credible' takes the most credible
            class at x+, as the paper does.
        settings: those of the profiles the threshold was chosen on; others are refused.
        origin: how the threshold was chosen.
    """

    threshold: float
    score: TrustScore
    answer: Answer
    settings: Settings
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
                this sample (`failure_score`); see docs/scores.md.
            answer: 'model' or 'credible'.
        """
        _check(clf, profile, answer)
        check_score(score)
        chosen = as_score(score, profile)
        threshold = thresholds.for_coverage(chosen(profile), coverage)
        origin = {"rule": "coverage", "coverage": float(coverage), "samples": len(profile)}
        return cls(threshold, chosen, answer, profile.settings, origin)

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
        the same distribution, and a score fixed beforehand; see `thresholds.for_error_rate`. The default
        score learns its scales from this very sample, which leaves the promise approximate.

        Args:
            clf: the classifier of the profile.
            profile: of a labelled sample like those to come, not used in training.
            labels: its classes (N,).
            error_rate: share of wrong answers to allow, in (0, 1).
            confidence: of the promise, in (0, 1).
            score: as in `for_coverage`.
            answer: 'model' or 'credible'.
        """
        _check(clf, profile, answer)
        check_score(score)
        chosen = as_score(score, profile)
        truth = checked_labels(labels, *profile.credence.shape)
        correct = _answers(profile, answer).cpu() == truth
        threshold = thresholds.for_error_rate(
            chosen(profile).cpu(), correct, error_rate, confidence
        )
        origin = {
            "rule": "error_rate", "error_rate": float(error_rate), "confidence": float(confidence),
            "samples": len(profile),
        }  # fmt: skip
        return cls(threshold, chosen, answer, profile.settings, origin)

    @classmethod
    def for_alpha(cls, clf: object, profile: Profile, alpha: float) -> SelectiveClassifier:
        """The paper's rule: the most credible class, if |c1| <= (1 - alpha) |c2|.

        Args:
            clf: the classifier of the profile.
            profile: any profile of it; only its settings count.
            alpha: in (0, 1); larger abstains more.
        """
        _check(clf, profile, "credible")
        thresholds.check_share("alpha", alpha)
        origin = {"rule": "alpha", "alpha": float(alpha)}
        return cls(float(alpha), Plain("ratio"), "credible", profile.settings, origin)

    def decide(self, profile: Profile) -> Decision:
        """Answer or abstain for every sample; those without a profile are never answered."""
        refuse_other_settings(self.settings, profile)
        values = self.score(profile).double()
        accepted = values >= self.threshold
        answers = _answers(profile, self.answer)
        classes = tuple(
            int(k) if yes else ABSTAINED
            for k, yes in zip(answers.tolist(), accepted.tolist(), strict=True)
        )
        return Decision(
            classes,
            accepted,
            values,
            self.threshold,
            profile.settings.classes,
            profile.credence.shape[1],
        )

    def __repr__(self) -> str:
        origin = ", ".join(f"{name} {value}" for name, value in self.origin.items())
        return (
            f"SelectiveClassifier({self.score}; abstains: {thresholds.in_words(self.threshold)}; "
            f"answer={self.answer!r}; {origin}; {in_short(self.settings)})"
        )

    def save(self, path: str | Path) -> None:
        """Write a JSON file; see `load`."""
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "threshold": self.threshold,
            "score": self.score.as_json(),
            "answer": self.answer,
            "settings": asdict(self.settings),
            "origin": dict(self.origin),
        }
        write_json(path, content)

    @classmethod
    def load(cls, path: str | Path) -> SelectiveClassifier:
        """Read what `save` wrote. Nothing in the file is executed."""
        content = read_json(path, FORMAT, FORMAT_VERSION)
        try:
            if content["answer"] not in ("model", "credible"):
                raise FileFormatError(f"unknown answer {content['answer']!r}")
            return cls(
                finite(content["threshold"]),
                score_from_json(content["score"]),
                content["answer"],
                settings_of(content["settings"]),
                dict(content["origin"]),
            )
        except UNREADABLE as error:
            raise FileFormatError(f"{path}: cannot be read ({error!r}).") from error


def _check(clf: object, profile: Profile, answer: Answer) -> None:
    check_own_profile(clf, profile)
    if answer not in ("model", "credible"):
        raise InvalidArgumentError(
            "answer",
            expected="'model' or 'credible'",
            got=repr(answer),
            remedy="'model' keeps the model's class; 'credible' takes the most credible one.",
        )


def _answers(profile: Profile, answer: Answer) -> Tensor:
    source = profile.credence if answer == "model" else profile.credibility
    return source.nan_to_num(-torch.inf).argmax(1)
