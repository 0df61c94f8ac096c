"""One verdict a sample that a person can act on: trust, wrong class likely, outlier, tampered."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

from credibly.decide import thresholds
from credibly.decide.arguments import check_score
from credibly.decide.learned import (
    TrustScore,
    as_score,
    failure_score,
    outlier_score,
    score_from_json,
    tamper_score,
)
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

FORMAT, FORMAT_VERSION = "credibly.judge", 2


class Verdict(Enum):
    """What to make of a prediction."""

    TRUST = "trust"
    WRONG_CLASS_LIKELY = "wrong class likely"
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
    "some that do not belong raise none.",
    Verdict.WRONG_CLASS_LIKELY: "Ask a person, who should look at the most credible classes.",
    Verdict.OUTLIER: (
        "Its score for belonging is below that of almost any ordinary input: it may be of no "
        "class, damaged, or on the border of several. Look at where it comes from."
    ),
    Verdict.TAMPERED: (
        "The model is surer or less sure of it than of almost any ordinary input, or gives that up "
        "at another price: typical of attacks. Look at where it comes from."
    ),
    Verdict.NO_PROFILE: "It could not be solved; profile.status says why.",
}


@dataclass(frozen=True, repr=False)
class Judge:
    """Three scores of one solve with a threshold each, learned from ordinary inputs without labels.

    Attributes:
        scores: for "is this class wrong?", "does it not belong?" and "was it tampered with?".
        thresholds: below it the class is likely wrong, the input an outlier, or tampered with.
        settings: those of the profiles it was learned from; others are refused.
    """

    scores: tuple[TrustScore, TrustScore, TrustScore]
    thresholds: tuple[float, float, float]
    settings: Settings

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
        """Set thresholds by ordinary inputs; they need no labels.

        Args:
            clf: the classifier of the profile.
            profile: of ordinary inputs, not used in training.
            false_alarms: share of ordinary inputs to be called outliers, kept whatever their
                distribution (split conformal); and as many tampered, about kept, since the scales
                of that score are learned from the same profile.
            doubted: share of ordinary inputs whose class is to be doubted; about kept, likewise.
            outlier: a name or a score, fixed beforehand, for "does it not belong?"; by default
                `outlier_score()`. Which finds yours depends on what they are (docs/decisions.md).
        """
        check_score(outlier, "outlier")
        check_own_profile(clf, profile)
        thresholds.check_share("doubted", doubted)
        thresholds.check_share("false_alarms", false_alarms)
        if false_alarms >= 0.5:
            raise InvalidArgumentError(
                "false_alarms",
                expected="a share below 0.5, since it is used twice",
                got=repr(false_alarms),
                remedy="0.01 is one in a hundred for outliers, and again for tampering.",
            )
        belonging = outlier_score() if outlier is None else as_score(outlier, profile)
        scores = (failure_score(profile), belonging, tamper_score(profile))
        wrong, foreign, tampered = (
            thresholds.for_false_alarms(score(profile), rate)
            for score, rate in zip(scores, (doubted, false_alarms, false_alarms), strict=True)
        )
        return cls(scores, (wrong, foreign, tampered), profile.settings)

    def judge(self, profile: Profile) -> tuple[Verdict, ...]:
        """One verdict a sample; what does not belong is said first, then what is likely wrong."""
        refuse_other_settings(self.settings, profile)
        rows = zip(*(score(profile).tolist() for score in self.scores), strict=True)
        return tuple(self._one(*row) for row in rows)

    def _one(self, failure: float, belonging: float, tampering: float) -> Verdict:
        if math.isnan(failure + belonging + tampering):
            return Verdict.NO_PROFILE
        wrong, outlier, tampered = self.thresholds
        if belonging < outlier:
            return Verdict.OUTLIER
        if tampering < tampered:
            return Verdict.TAMPERED
        return Verdict.WRONG_CLASS_LIKELY if failure < wrong else Verdict.TRUST

    def __repr__(self) -> str:
        words = (Verdict.WRONG_CLASS_LIKELY, Verdict.OUTLIER, Verdict.TAMPERED)
        rules = zip(words, self.scores, self.thresholds, strict=True)
        said = "; ".join(f"{word}: {score} below {least:.4g}" for word, score, least in rules)
        return f"Judge({said}; {in_short(self.settings)})"

    def save(self, path: str | Path) -> None:
        """Write a JSON file; see `load`."""
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "scores": [score.as_json() for score in self.scores],
            "thresholds": list(self.thresholds),
            "settings": asdict(self.settings),
        }
        write_json(path, content)

    @classmethod
    def load(cls, path: str | Path) -> Judge:
        """Read what `save` wrote. Nothing in the file is executed."""
        content = read_json(path, FORMAT, FORMAT_VERSION)
        try:
            wrong, outlier, tampered = (finite(value) for value in content["thresholds"])
            first, second, third = (score_from_json(score) for score in content["scores"])
            return cls(
                (first, second, third),
                (wrong, outlier, tampered),
                settings_of(content["settings"]),
            )
        except UNREADABLE as error:
            raise FileFormatError(f"{path}: cannot be read ({error!r}).") from error


def summary(verdicts: tuple[Verdict, ...]) -> str:
    """How many of each, one line each."""
    counts = Counter(verdicts)
    return "\n".join(f"{counts[v]:>6} {v.value}: {v.advice}" for v in Verdict if counts[v])
