"""Does this input not belong? One question, with a stated rate of false alarms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch import Tensor

from credibly._validation import share
from credibly.decide import thresholds
from credibly.decide.rule import Answers, Rule, make_answers, predicted_where
from credibly.decide.settings import check_own_profile, finite
from credibly.decide.trust_scores import TrustScore, as_score, outlier_score, score_from_json
from credibly.profile.profile import Profile


@dataclass(frozen=True, repr=False)
class OutlierFlag(Rule):
    """Flags inputs whose score is lower than that of almost any ordinary input.

    Attributes:
        threshold: scores below it are flagged.
        score: what is compared with it.
        false_alarms: the rate it was set for.
        samples: ordinary samples it was set by, those without a profile included.
        settings: those of the ordinary profiles; profiles of others are refused.

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(torch.nn.Linear(4, 3))
        >>> profile = cr.credibility(clf, torch.randn(50, 4), gamma=10.0)
        >>> cr.OutlierFlag.fit(clf, profile, false_alarms=0.1).flag(profile).shape
        torch.Size([50])
    """

    format = "credibly.outlier-flag"
    readers: ClassVar = {
        "threshold": finite,
        "score": score_from_json,
        "false_alarms": partial(share, "false_alarms"),
        "samples": int,
    }

    threshold: float
    score: TrustScore
    false_alarms: float
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
            score: a name, or a score that was fixed beforehand; by default `outlier_score()`.
        """
        check_own_profile(clf, profile)
        chosen = outlier_score() if score is None else as_score(score)
        values = chosen(profile)
        threshold = thresholds.for_false_alarms(values, false_alarms, unsolved_are_flagged=True)
        return cls(threshold, chosen, float(false_alarms), len(values), settings=profile.settings)

    def flag(self, profile: Profile) -> Tensor:
        """Which samples (N,) do not belong; those without a profile are flagged."""
        self.check(profile)
        values = self.score(profile).double()
        return (values < self.threshold) | values.isnan()

    def answers(self, profile: Profile) -> Answers:
        """The class of the model for what is not flagged; see `Rule.answers`."""
        flagged = self.flag(profile).cpu()
        columns = {"flagged": flagged.tolist(), "score": self.score(profile).tolist()}
        notes = f"flagged: {thresholds.describe(self.threshold)}, or without a profile"
        return make_answers(profile, predicted_where(~flagged, profile), columns, notes)

    def __str__(self) -> str:
        return (
            f"{self.score} below {self.threshold:.4g}; false alarms {self.false_alarms:g}, "
            f"{self.samples} samples"
        )
