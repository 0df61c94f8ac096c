"""What a Judge was asked for, and what it was fitted with."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from credibly._validation import choice, positive, require, share, whole
from credibly.decide.alarm import ProfileUse
from credibly.decide.recipe import RECIPES
from credibly.decide.surprise import inputs_needed
from credibly.decide.thresholds import samples_needed
from credibly.errors import FileFormatError
from credibly.model.memory import ChunkSize, check_size
from credibly.model.views import View, check_views


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The settings of `Judge.fit`, checked before any work."""

    false_alarms: float
    error_rate: float | None
    confidence: float
    by_class: bool
    doubted: float
    profile: ProfileUse
    gamma: float | Literal["auto"]
    features: str | None
    chunk_size: ChunkSize
    views: tuple[View, ...] = ()

    def __post_init__(self) -> None:
        check_views(self.views)
        remedy = "Pass error_rate=0.05, say, or leave by_class out."
        require(
            not self.by_class or self.error_rate is not None,
            "error_rate",
            "a share",
            "none",
            remedy,
        )
        share("false_alarms", self.false_alarms)
        share("doubted", self.doubted)
        share("confidence", self.confidence)
        check_size(self.chunk_size)
        remedy = "'never' costs one forward, and on most networks nothing was better."
        choice("profile", self.profile, get_args(ProfileUse), remedy)
        if self.error_rate is not None:
            share("error_rate", self.error_rate)
        if self.gamma != "auto":
            positive("gamma", self.gamma, "'auto' sets it from the model.")

    @property
    def tested_confidence(self) -> float:
        """With which each recipe of trust must keep the error rate, so that the chosen one does."""
        return 1 - (1 - self.confidence) / RECIPES

    def check_counts(self, inputs: int, labels: int | None) -> None:
        """Refuse too few inputs or labels for what is promised, and say how many are needed."""
        needed = inputs_needed(self.false_alarms)
        require(
            inputs >= needed,
            "ordinary",
            f"at least {needed} usable inputs for false alarms of {self.false_alarms:g}",
            f"{inputs}",
            f"Bring more, or allow more: {_rounded_up(1 / (inputs + 1))} is possible with these.",
        )
        if self.error_rate is None:
            return
        least = samples_needed(self.error_rate, self.tested_confidence)
        require(
            labels is not None and labels >= least,
            "labels",
            f"at least {least} labels for an error rate of {self.error_rate:g} with confidence "
            f"{self.confidence:g}, and more if the model errs",
            "none" if labels is None else f"{labels}",
            "Label more ordinary inputs, allow a larger error rate, or leave error_rate out.",
        )


def _rounded_up(share: float) -> float:
    """To three digits, so that the rounded rate is allowed as well."""
    unit = float(10 ** (2 - math.floor(math.log10(share))))
    return math.ceil(share * unit) / unit


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a Judge was fitted with.

    Attributes:
        false_alarms: the promised rate.
        error_rate: the promised rate, if labels allowed one.
        confidence: of the error rate.
        profile: when profiles are used.
        samples: ordinary inputs in use.
        labelled: whether they had labels.
        left_out: numbers of the ordinary inputs that were broken or not ordinary.
        shares_right: the share of ordinary inputs of each verdict whose class is right.
        cost: mean passes per ordinary input.
        classes: how many there are.
        model: digest of the model.
        version: of credibly.
    """

    false_alarms: float
    error_rate: float | None
    confidence: float
    profile: ProfileUse
    samples: int
    labelled: bool
    left_out: tuple[int, ...]
    cost: float
    classes: int
    model: str
    version: str
    shares_right: dict[str, float] = field(default_factory=dict)

    @property
    def proved(self) -> float:
        """What false alarms never exceed on average over draws of the ordinary inputs.

        For exchangeable inputs; cross-conformal p-values are valid up to a factor of two.
        """
        return min(1.0, 2 * self.false_alarms)

    def as_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Facts:
        """Read what `as_json` wrote."""
        read = dict(content)
        read["left_out"] = tuple(whole("left_out", n, least=0) for n in read["left_out"])
        read["shares_right"] = {str(k): float(v) for k, v in read["shares_right"].items()}
        for name in ("false_alarms", "confidence"):
            share(name, read[name])
        if read["error_rate"] is not None:
            share("error_rate", read["error_rate"])
        whole("samples", read["samples"])
        whole("classes", read["classes"], least=2)
        positive("cost", read["cost"])
        choice("profile", read["profile"], get_args(ProfileUse), "Fit the Judge again.")
        good = isinstance(read["labelled"], bool)
        words = all(isinstance(read[name], str) for name in ("model", "version"))
        shares = all(0 <= value <= 1 for value in read["shares_right"].values())
        if not (good and words and shares):
            raise FileFormatError("expected the facts of a Judge")
        return cls(**read)
