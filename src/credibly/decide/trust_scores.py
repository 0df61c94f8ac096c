"""Scores that can be saved, and those with a scale fitted to a sample of ordinary profiles."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from credibly._validation import require
from credibly.decide.scores import SCORES
from credibly.errors import FileFormatError
from credibly.profile.profile import Profile


class TrustScore(ABC):
    """A score of a profile that can be saved: (N,), higher is more trustworthy.

    Example: see `failure_score`.
    """

    @abstractmethod
    def __call__(self, profile: Profile) -> Tensor:
        """One number per sample; NaN where there is no profile."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """What `score_from_json` reads."""


@dataclass(frozen=True)
class Plain(TrustScore):
    """One of `SCORES`, by name."""

    name: str

    def __post_init__(self) -> None:
        check_score(self.name)

    def __call__(self, profile: Profile) -> Tensor:
        return SCORES[self.name](profile)

    def as_json(self) -> dict[str, Any]:
        return {"kind": "plain", "name": self.name}

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Balanced(TrustScore):
    """A sum of plain scores, each divided by its spread among ordinary profiles.

    Example: see `failure_score`.

    Attributes:
        names: of the scores.
        shares: the weight of each, once they have the same spread.
        spreads: the interquartile range of each.
    """

    names: tuple[str, ...]
    shares: tuple[float, ...]
    spreads: tuple[float, ...]

    @staticmethod
    def fit(profile: Profile, names: Sequence[str], shares: Sequence[float]) -> Balanced:
        """Spreads from a sample of ordinary profiles; no labels are needed."""
        spreads = tuple(spread_of(Plain(name)(profile)) for name in names)
        return Balanced(tuple(names), tuple(float(share) for share in shares), spreads)

    def __call__(self, profile: Profile) -> Tensor:
        parts = zip(self.names, self.shares, self.spreads, strict=True)
        return torch.stack(
            [share / unit * Plain(name)(profile) for name, share, unit in parts]
        ).sum(0)

    def as_json(self) -> dict[str, Any]:
        return {"kind": "balanced", **{name: list(part) for name, part in vars(self).items()}}

    def __str__(self) -> str:
        parts = zip(self.shares, self.names, strict=True)
        return " + ".join(name if share == 1 else f"{share:g} {name}" for share, name in parts)


@dataclass(frozen=True)
class DistanceFromUsual(TrustScore):
    """Minus the distances of plain scores from their medians among ordinary profiles, summed.

    Example: see `tamper_score`.

    Attributes:
        names: of the scores.
        centres: their medians.
        spreads: their interquartile ranges, the units of the distances.
    """

    names: tuple[str, ...]
    centres: tuple[float, ...]
    spreads: tuple[float, ...]

    @staticmethod
    def fit(profile: Profile, *names: str) -> DistanceFromUsual:
        """Centres and spreads from a sample of ordinary profiles; no labels are needed."""
        found = [_median_and_spread(Plain(name)(profile)) for name in names]
        return DistanceFromUsual(names, *zip(*found, strict=True))

    def __call__(self, profile: Profile) -> Tensor:
        parts = zip(self.names, self.centres, self.spreads, strict=True)
        far = [(Plain(name)(profile) - centre).abs() / unit for name, centre, unit in parts]
        return -torch.stack(far).sum(0)

    def as_json(self) -> dict[str, Any]:
        return {"kind": "distance", **{name: list(part) for name, part in vars(self).items()}}

    def __str__(self) -> str:
        return f"distance of {', '.join(self.names)}"


FAILURE_PARTS = {"softmax_ratio": 1.0, "predicted_ratio": 0.5}
"""Scores of the default for failures, and the weight of each once they have the same spread."""
TAMPER_PARTS = ("shift", "elasticity", "softmax_ratio")
"""Scores of the default for tampering: unusual in any of them, on either side."""


def failure_score(profile: Profile) -> Balanced:
    """The default for "is this class wrong?": softmax, and with half the weight the ratio at x+.

    On two ResNet-18 (docs/explanation/scores.md) it ranks the errors of clean and damaged images
    as well as softmax or better, and on CIFAR-10 much better where images were attacked a little.
    On small networks softmax alone mostly ranks better: use `score="max_softmax"` there.

    Args:
        profile: of ordinary inputs; the scales of both parts are fitted to it, without labels.

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(torch.nn.Linear(4, 3))
        >>> profile = cr.credibility(clf, torch.randn(20, 4), gamma=10.0)
        >>> print(cr.scores.failure_score(profile))
        softmax_ratio + 0.5 predicted_ratio
    """
    return Balanced.fit(profile, tuple(FAILURE_PARTS), tuple(FAILURE_PARTS.values()))


def outlier_score() -> Plain:
    """The default for "does this input not belong?": |c+ - c0|, small for outliers.

    Example:
        >>> import credibly as cr
        >>> print(cr.scores.outlier_score())
        shift
    """
    return Plain("shift")


def tamper_score(profile: Profile) -> DistanceFromUsual:
    """The default for "was it tampered with?": a profile or a softmax unlike the ordinary ones.

    Three distances from the median of an unlabelled sample, chosen on held-out training images
    (docs/explanation/scores.md): of |c+ - c0|, of the movement per unit of it, and of log(p1 / p2).
    Strong attacks make a network too sure; those that stop at the boundary leave it not sure
    enough.

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(torch.nn.Linear(4, 3))
        >>> profile = cr.credibility(clf, torch.randn(20, 4), gamma=10.0)
        >>> print(cr.scores.tamper_score(profile))
        distance of shift, elasticity, softmax_ratio
    """
    return DistanceFromUsual.fit(profile, *TAMPER_PARTS)


def as_score(score: str | TrustScore, argument: str = "score") -> TrustScore:
    """A score by its name, or as it is."""
    check_score(score, argument)
    return Plain(score) if isinstance(score, str) else score


def check_score(score: object, argument: str = "score") -> None:
    """A score is a name, or an object that can be saved."""
    known = isinstance(score, str) and score in SCORES
    require(
        known or isinstance(score, TrustScore),
        argument,
        f"one of {', '.join(sorted(SCORES))}, or a TrustScore such as "
        "credibly.scores.failure_score(profile)",
        repr(score),
        "docs/how-to/decisions.md lists the names; for your own function, write a subclass of "
        "credibly.scores.TrustScore.",
    )


def score_from_json(content: Mapping[str, Any]) -> TrustScore:
    """Read what `as_json` wrote; nothing is executed."""
    kind = content.get("kind")
    if kind == "plain":
        return Plain(content["name"])
    if kind not in ("balanced", "distance"):
        raise FileFormatError(f"an unknown kind of score, {kind!r}")
    scaled, key = (Balanced, "shares") if kind == "balanced" else (DistanceFromUsual, "centres")
    names = tuple(Plain(name).name for name in content["names"])
    numbers, spreads = (tuple(map(float, content[part])) for part in (key, "spreads"))
    good = all(0 < spread < math.inf for spread in spreads)
    if not good or not len(names) == len(numbers) == len(spreads) > 0:
        raise FileFormatError("expected a number and a positive spread for each score")
    return scaled(names, numbers, spreads)


def spread_of(values: Tensor) -> float:
    """The interquartile range of the known values, by which scores are balanced."""
    return _median_and_spread(values)[1]


def _median_and_spread(values: Tensor) -> tuple[float, float]:
    """The median, and the range between the quartiles; 1 where they coincide."""
    known = values[~values.isnan()]
    require(
        len(known) > 0,
        "profile",
        "at least one sample that was solved, to fit a scale to",
        f"{len(values)} samples, none of them" if len(values) else "an empty profile",
        "Look at profile.status." if len(values) else "Choose samples that exist.",
    )
    points = torch.tensor([0.25, 0.5, 0.75], dtype=known.dtype, device=known.device)
    low, middle, high = known.quantile(points).tolist()
    return middle, (high - low) or 1.0  # a score that does not vary has no scale of its own
