"""One verdict a sample that a person can act on: trust, wrong class likely, outlier, tampered."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

from credibly.decide import thresholds
from credibly.decide.learned import TrustScore, failure_score, outlier_score, score_from_json
from credibly.decide.records import (
    UNREADABLE,
    check_own_profile,
    finite,
    read_json,
    refuse_other_settings,
    settings_of,
)
from credibly.errors import FileFormatError, InvalidArgumentError
from credibly.profile.profile import Profile, Settings

FORMAT, FORMAT_VERSION = "credibly.judge", 1


class Verdict(Enum):
    """What to make of a prediction."""

    TRUST = "trust"
    WRONG_CLASS_LIKELY = "wrong class likely"
    OUTLIER = "outlier"
    TAMPERED = "tampered"
    NO_PROFILE = "no profile"

    @property
    def advice(self) -> str:
        """What to do."""
        return _ADVICE[self]


_ADVICE = {
    Verdict.TRUST: "Use the model's class.",
    Verdict.WRONG_CLASS_LIKELY: "Ask a person, who should look at the most credible classes.",
    Verdict.OUTLIER: (
        "The input gives up less credibility than almost any ordinary one: it may be of no class, "
        "damaged, or on the border of several. Look at where it comes from."
    ),
    Verdict.TAMPERED: (
        "The model is surer of it than of almost any ordinary input, and gives that up at once: "
        "typical of an attack that maximises confidence. Look at where it comes from."
    ),
    Verdict.NO_PROFILE: "It could not be solved; profile.status says why.",
}


@dataclass(frozen=True)
class Judge:
    """Three thresholds on two scores of one solve, learned from ordinary inputs without labels.

    Attributes:
        failure: the score of "is this class wrong?".
        belonging: the score of "does it belong?", too small for outliers, too large for tampering.
        least_failure: below it the class is likely wrong.
        low: below it an input is an outlier.
        high: above it an input was tampered with.
        settings: those of the profiles it was learned from; others are refused.
    """

    failure: TrustScore
    belonging: TrustScore
    least_failure: float
    low: float
    high: float
    settings: Settings

    @classmethod
    def learn(
        cls, clf: object, profile: Profile, *, false_alarms: float = 0.01, doubted: float = 0.1
    ) -> Judge:
        """Set thresholds by ordinary inputs; they need no labels.

        Args:
            clf: the classifier of the profile.
            profile: of ordinary inputs, not used in training.
            false_alarms: share of ordinary inputs to be called outliers, and as many tampered; kept
                whatever their distribution (split conformal).
            doubted: share of ordinary inputs whose class is to be doubted; about kept, since the
                scales of the score are learned from the same profile.
        """
        check_own_profile(clf, profile)
        thresholds.check_share("doubted", doubted)
        thresholds.check_share("false_alarms", false_alarms)
        if false_alarms >= 0.5:
            raise InvalidArgumentError(
                "false_alarms",
                expected="a share below 0.5, since it is used on both sides",
                came=repr(false_alarms),
                remedy="0.01 is one in a hundred on each side.",
            )
        failure, belonging = failure_score(profile), outlier_score()
        values = belonging(profile)
        return cls(
            failure=failure,
            belonging=belonging,
            least_failure=thresholds.for_false_alarms(failure(profile), doubted),
            low=thresholds.for_false_alarms(values, false_alarms),
            high=-thresholds.for_false_alarms(-values, false_alarms),
            settings=profile.settings,
        )

    def judge(self, profile: Profile) -> tuple[Verdict, ...]:
        """One verdict a sample; what does not belong is said first, then what is likely wrong."""
        refuse_other_settings(self.settings, profile.settings)
        rows = zip(self.failure(profile).tolist(), self.belonging(profile).tolist(), strict=True)
        return tuple(self._one(failure, belonging) for failure, belonging in rows)

    def _one(self, failure: float, belonging: float) -> Verdict:
        if failure != failure or belonging != belonging:  # noqa: PLR0124  # NaN
            return Verdict.NO_PROFILE
        if belonging < self.low:
            return Verdict.OUTLIER
        if belonging > self.high:
            return Verdict.TAMPERED
        return Verdict.WRONG_CLASS_LIKELY if failure < self.least_failure else Verdict.TRUST

    def save(self, path: str | Path) -> None:
        """Write a JSON file; see `load`."""
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "failure": self.failure.as_json(),
            "belonging": self.belonging.as_json(),
            "thresholds": [self.least_failure, self.low, self.high],
            "settings": asdict(self.settings),
        }
        Path(path).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Judge:
        """Read what `save` wrote. Nothing in the file is executed."""
        content = read_json(path, FORMAT, FORMAT_VERSION)
        try:
            least, low, high = (finite(value) for value in content["thresholds"])
            return cls(
                score_from_json(content["failure"]),
                score_from_json(content["belonging"]),
                least,
                low,
                high,
                settings_of(content["settings"]),
            )
        except UNREADABLE as error:
            raise FileFormatError(f"{path}: cannot be read ({error!r}).") from error


def summary(verdicts: tuple[Verdict, ...]) -> str:
    """How many of each, one line each."""
    counts = Counter(verdicts)
    return "\n".join(f"{counts[v]:>6} {v.value}: {v.advice}" for v in Verdict if counts[v])
