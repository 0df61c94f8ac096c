"""One question alone, with a stated rate of false alarms: does this input not belong?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from credibly.decide import thresholds
from credibly.decide.arguments import check_score
from credibly.decide.learned import Plain, TrustScore, outlier_score, score_from_json
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
from credibly.errors import FileFormatError
from credibly.profile.profile import Profile, Settings

FORMAT, FORMAT_VERSION = "credibly.outlier-flag", 1


@dataclass(frozen=True, repr=False)
class OutlierFlag:
    """Flags inputs whose score is lower than that of almost any ordinary one.

    Attributes:
        threshold: scores below it are flagged.
        score: what is compared with it.
        false_alarms: the rate it was set for.
        settings: those of the ordinary profiles; profiles of others are refused.
        samples: ordinary samples it was set by, those without a profile included.
    """

    threshold: float
    score: TrustScore
    false_alarms: float
    settings: Settings
    samples: int

    @classmethod
    def fit(
        cls,
        clf: object,
        profile: Profile,
        *,
        false_alarms: float = 0.01,
        score: str | TrustScore | None = None,
    ) -> OutlierFlag:
        """Set the threshold by ordinary inputs; they need no labels.

        Args:
            clf: the classifier of the profile.
            profile: of ordinary inputs, not used in training. Those without a profile will be
                flagged, so they count as false alarms; too many of them are refused.
            false_alarms: chance that one more ordinary input is flagged, at most (split conformal).
            score: a name or a score that was fixed beforehand; by default `outlier_score()`.
        """
        check_own_profile(clf, profile)
        check_score(score)
        named = Plain(score) if isinstance(score, str) else score
        chosen = outlier_score() if named is None else named
        values = chosen(profile)
        threshold = thresholds.for_false_alarms(values, false_alarms, unsolved_are_flagged=True)
        return cls(threshold, chosen, float(false_alarms), profile.settings, len(values))

    def flag(self, profile: Profile) -> Tensor:
        """Which samples (N,) do not belong; those without a profile count as such."""
        refuse_other_settings(self.settings, profile)
        values = self.score(profile).double()
        return (values < self.threshold) | values.isnan()

    def __repr__(self) -> str:
        return (
            f"OutlierFlag({self.score} below {self.threshold:.4g}; false alarms "
            f"{self.false_alarms:g}, {self.samples} samples; {in_short(self.settings)})"
        )

    def save(self, path: str | Path) -> None:
        """Write a JSON file; see `load`."""
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "threshold": self.threshold,
            "score": self.score.as_json(),
            "false_alarms": self.false_alarms,
            "settings": asdict(self.settings),
            "samples": self.samples,
        }
        write_json(path, content)

    @classmethod
    def load(cls, path: str | Path) -> OutlierFlag:
        """Read what `save` wrote. Nothing in the file is executed."""
        content = read_json(path, FORMAT, FORMAT_VERSION)
        try:
            thresholds.check_share("false_alarms", content["false_alarms"])
            return cls(
                finite(content["threshold"]),
                score_from_json(content["score"]),
                finite(content["false_alarms"]),
                settings_of(content["settings"]),
                int(content["samples"]),
            )
        except UNREADABLE as error:
            raise FileFormatError(f"{path}: cannot be read ({error!r}).") from error
