"""One verdict per sample that a person can act on: trust, doubtful, outlier, tampered."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import torch

from credibly._validation import require, share
from credibly.decide import thresholds
from credibly.decide.learned import (
    TrustScore,
    as_score,
    failure_score,
    outlier_score,
    score_from_json,
    tamper_score,
)
from credibly.decide.rule import Answers, Rule, make_answers, predicted_where
from credibly.decide.settings import check_own_profile, finite
from credibly.profile.profile import Profile
from credibly.types import CPU


class Verdict(Enum):
    """What to make of a prediction.

    Example:
        >>> import credibly as cr
        >>> print(cr.Verdict.DOUBTFUL, "-", cr.Verdict.DOUBTFUL.advice)
        doubtful - The model is less sure than usual: ask a person to check the class.
    """

    TRUST = "trust"
    DOUBTFUL = "doubtful"
    OUTLIER = "outlier"
    TAMPERED = "tampered"
    NO_PROFILE = "no profile"

    def __str__(self) -> str:
        return self.value

    @property
    def advice(self) -> str:
        """What to do."""
        return _ADVICE[self]


_ADVICE = {
    Verdict.TRUST: "No alarm; use the model's class if you know where the input comes from: "
    "some inputs that do not belong raise none.",
    Verdict.DOUBTFUL: "The model is less sure than usual: ask a person to check the class.",
    Verdict.OUTLIER: "Its score is below that of almost any ordinary input: it may belong to no "
    "class, be damaged, or lie between several classes. Check where it comes from.",
    Verdict.TAMPERED: "The model is more or less sure of it than of almost any ordinary input, or "
    "changes its mind at an unusual cost: typical of attacks. Check where it comes from.",
    Verdict.NO_PROFILE: "It could not be solved; profile.status says why.",
}


def _three(values: Any, read: Any) -> tuple[Any, ...]:
    first, second, third = values
    return read(first), read(second), read(third)


@dataclass(frozen=True, repr=False)
class Judge(Rule):
    """Three scores of one solve with a threshold each, set by ordinary inputs without labels.

    Attributes:
        scores: for "is this class wrong?", "does it not belong?" and "was it tampered with?".
        thresholds: below these the class is doubtful, the input an outlier, or tampered with.
        settings: those of the profiles it was made from; profiles of others are refused.

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(torch.nn.Linear(4, 3))
        >>> profile = cr.credibility(clf, torch.randn(120, 4), gamma=10.0)
        >>> len(cr.Judge.fit(clf, profile).judge(profile))
        120
    """

    format = "credibly.judge"
    readers: ClassVar = {
        "scores": lambda values: _three(values, score_from_json),
        "thresholds": lambda values: _three(values, finite),
    }

    scores: tuple[TrustScore, TrustScore, TrustScore]
    thresholds: tuple[float, float, float]

    @classmethod
    def fit(
        cls,
        clf: object,
        profile: Profile,
        *,
        false_alarms: float = 0.01,
        doubted: float = 0.1,
        outlier: str | TrustScore | None = None,
    ) -> Judge:
        """Set the thresholds by ordinary inputs; they need no labels.

        Args:
            clf: the classifier of the profile.
            profile: of ordinary inputs, not used in training.
            false_alarms: share of ordinary inputs that are called outliers, at most, for any
                distribution (split conformal); and about as many are called tampered. That rate is
                approximate, since the scales of that score are fitted to the same profile.
            doubted: share of ordinary inputs that are called doubtful; approximate, likewise.
            outlier: a name, or a score that was fixed beforehand, for "does it not belong?"; by
                default `outlier_score()`. The best one depends on your data (docs/decisions.md).
        """
        belonging = outlier_score() if outlier is None else as_score(outlier, "outlier")
        check_own_profile(clf, profile)
        rates = share("doubted", doubted), share("false_alarms", false_alarms)
        remedy = "0.01 is one in a hundred for outliers, and again for tampering."
        expected = "a share below 0.5, since it is used twice"
        require(rates[1] < 0.5, "false_alarms", expected, repr(false_alarms), remedy)
        scores = (failure_score(profile), belonging, tamper_score(profile))
        doubtful, foreign, tampered = (
            thresholds.for_false_alarms(score(profile), rate)
            for score, rate in zip(scores, (*rates, rates[1]), strict=True)
        )
        return cls(scores, (doubtful, foreign, tampered), settings=profile.settings)

    def judge(self, profile: Profile) -> tuple[Verdict, ...]:
        """One verdict per sample; outliers come before tampered, and these before doubtful."""
        self.check(profile)
        rows = zip(*(score(profile).tolist() for score in self.scores), strict=True)
        return tuple(self._one(*row) for row in rows)

    def _one(self, failure: float, belonging: float, tampering: float) -> Verdict:
        if math.isnan(failure + belonging + tampering):
            return Verdict.NO_PROFILE
        doubtful, outlier, tampered = self.thresholds
        if belonging < outlier:
            return Verdict.OUTLIER
        if tampering < tampered:
            return Verdict.TAMPERED
        return Verdict.DOUBTFUL if failure < doubtful else Verdict.TRUST

    def answers(self, profile: Profile) -> Answers:
        """The class of the model where the verdict is to trust it; see `Rule.answers`."""
        verdicts = self.judge(profile)
        columns: dict[str, list[Any]] = {"verdict": [verdict.value for verdict in verdicts]}
        for name, score in zip(
            ("score", "outlier_score", "tamper_score"), self.scores, strict=True
        ):
            columns[name] = score(profile).tolist()
        trusted = torch.tensor(
            [verdict is Verdict.TRUST for verdict in verdicts], dtype=torch.bool, device=CPU
        )
        classes = predicted_where(trusted, profile)
        return make_answers(profile, classes, columns, summarise(verdicts))

    def __str__(self) -> str:
        verdicts = (Verdict.DOUBTFUL, Verdict.OUTLIER, Verdict.TAMPERED)
        parts = zip(verdicts, self.scores, self.thresholds, strict=True)
        return "; ".join(f"{verdict}: {score} below {least:.4g}" for verdict, score, least in parts)


def summarise(verdicts: tuple[Verdict, ...]) -> str:
    """How many of each verdict, one line each."""
    counts = Counter(verdicts)
    return "\n".join(f"{counts[v]:>6} {v.value}: {v.advice}" for v in Verdict if counts[v])
