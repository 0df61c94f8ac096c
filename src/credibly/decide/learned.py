"""Scores with a scale learned from an unlabelled sample of ordinary profiles, and their files."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from credibly.decide.scores import SCORES
from credibly.errors import FileFormatError, InvalidArgumentError
from credibly.profile.profile import Profile


class TrustScore(ABC):
    """A score of a profile that can be written down: (N,), higher is more trustworthy."""

    @abstractmethod
    def __call__(self, profile: Profile) -> Tensor:
        """One number a sample; NaN without a profile."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """What `score_from_json` reads."""


@dataclass(frozen=True)
class Plain(TrustScore):
    """One of `scores.SCORES`, by name."""

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name not in SCORES:
            raise InvalidArgumentError(
                "score",
                expected=f"one of {', '.join(sorted(SCORES))}",
                got=repr(self.name),
                remedy="docs/scores.md says which suits which question.",
            )

    def __call__(self, profile: Profile) -> Tensor:
        return SCORES[self.name](profile)

    def as_json(self) -> dict[str, Any]:
        return {"kind": "plain", "name": self.name}

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Balanced(TrustScore):
    """A sum of plain scores, each divided by its spread among ordinary profiles.

    Attributes:
        names: of the scores.
        shares: what each counts, once they have the same spread.
        spreads: the interquartile range of each.
    """

    names: tuple[str, ...]
    shares: tuple[float, ...]
    spreads: tuple[float, ...]

    @staticmethod
    def fit(profile: Profile, names: Sequence[str], shares: Sequence[float]) -> Balanced:
        """Spreads from a sample of ordinary profiles; no labels are needed."""
        spreads = tuple(_quartiles(Plain(name)(profile))[2] for name in names)
        return Balanced(tuple(names), tuple(float(share) for share in shares), spreads)

    def __call__(self, profile: Profile) -> Tensor:
        terms = [
            share / spread * Plain(name)(profile)
            for name, share, spread in zip(self.names, self.shares, self.spreads, strict=True)
        ]
        return torch.stack(terms).sum(0)

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": "balanced", "names": list(self.names), "shares": list(self.shares),
            "spreads": list(self.spreads),
        }  # fmt: skip

    def __str__(self) -> str:
        parts = zip(self.shares, self.names, strict=True)
        return " + ".join(name if share == 1 else f"{share:g} {name}" for share, name in parts)


@dataclass(frozen=True)
class TwoSided(TrustScore):
    """Minus the distances of plain scores from their medians among ordinary profiles, summed.

    Attributes:
        names: of the scores.
        centres: their medians.
        spreads: their interquartile ranges, the units of the distances.
    """

    names: tuple[str, ...]
    centres: tuple[float, ...]
    spreads: tuple[float, ...]

    @staticmethod
    def fit(profile: Profile, *names: str) -> TwoSided:
        """Centres and spreads from a sample of ordinary profiles; no labels are needed."""
        found = [_quartiles(Plain(name)(profile)) for name in names]
        return TwoSided(names, tuple(f[1] for f in found), tuple(f[2] for f in found))

    def __call__(self, profile: Profile) -> Tensor:
        terms = [
            (Plain(name)(profile) - centre).abs() / spread
            for name, centre, spread in zip(self.names, self.centres, self.spreads, strict=True)
        ]
        return -torch.stack(terms).sum(0)

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": "two-sided", "names": list(self.names), "centres": list(self.centres),
            "spreads": list(self.spreads),
        }  # fmt: skip

    def __str__(self) -> str:
        return f"distance of {', '.join(self.names)}"


FAILURE_PARTS = {"softmax_ratio": 1.0, "predicted_ratio": 0.5}
"""Scores of the default for failures, and what each counts once they have the same spread."""
TAMPER_PARTS = ("shift", "elasticity", "softmax_ratio")
"""Scores of the default for tampering: unlike ordinary inputs in any of them, on either side."""


def spread_of(values: Tensor) -> float:
    """The range between the quartiles of the known values, by which scores are balanced."""
    return _quartiles(values)[2]


def failure_score(profile: Profile) -> Balanced:
    """The default for "is this class wrong?": softmax, and half as much what survives at x+.

    On two ResNet-18 (docs/scores.md) it ranks the errors of clean and damaged images as well as
    softmax or better, and on CIFAR-10 much better where images were attacked a little. On small
    networks softmax alone mostly ranks better: there `score="max_softmax"` is the one to take.

    Args:
        profile: of ordinary inputs; the scales of both parts are learned from it, without labels.
    """
    return Balanced.fit(profile, tuple(FAILURE_PARTS), tuple(FAILURE_PARTS.values()))


def outlier_score() -> Plain:
    """The default for "does this input not belong?": |c+ - c0|, small for outliers."""
    return Plain("shift")


def tamper_score(profile: Profile) -> TwoSided:
    """The default for "was it tampered with?": a profile or a softmax unlike the ordinary ones.

    Three distances from the median of an unlabelled sample, chosen on held-out training images
    (docs/scores.md): of |c+ - c0|, of what a unit of it costs, and of log(p1 / p2). Strong attacks
    make a network too sure, those that stop at the boundary leave it too unsure.
    """
    return TwoSided.fit(profile, *TAMPER_PARTS)


def as_score(score: str | TrustScore | None, profile: Profile) -> TrustScore:
    """A score by name or as it is; None: the default for failures, learned from the profile."""
    if score is None:
        return failure_score(profile)
    return score if isinstance(score, TrustScore) else Plain(score)


def score_from_json(content: Mapping[str, Any]) -> TrustScore:
    """The inverse of `as_json`; nothing is executed."""
    kind = content.get("kind")
    if kind == "plain":
        return Plain(str(content["name"]))
    if kind == "two-sided" and "name" in content:  # as the first version of it was written
        content = {"names": [content["name"]], "centres": [content["centre"]],
                   "spreads": [content["spread"]]}  # fmt: skip
    if kind in ("two-sided", "balanced"):
        other, made = ("centres", TwoSided) if kind == "two-sided" else ("shares", Balanced)
        names = tuple(Plain(str(name)).name for name in content["names"])
        numbers, spreads = (tuple(map(float, content[key])) for key in (other, "spreads"))
        if len(names) == len(numbers) == len(spreads) > 0:
            return made(names, numbers, tuple(_spread(value) for value in spreads))
    raise FileFormatError(f"an unknown kind of score, {kind!r}")


def _quartiles(values: Tensor) -> tuple[float, float, float]:
    """Lower quartile, median, and the range between the quartiles; 1 where they coincide."""
    known = values[~values.isnan()]
    if len(known) == 0:
        raise InvalidArgumentError(
            "profile",
            expected="at least one sample that was solved, to learn a scale from",
            got=f"{len(values)} samples, none of them" if len(values) else "an empty profile",
            remedy="Look at profile.status."
            if len(values)
            else "Nothing was left by the choice of samples; a class that is never predicted, say, "
            "has none to make a rule of.",
        )
    points = torch.tensor([0.25, 0.5, 0.75], dtype=known.dtype, device=known.device)
    low, middle, high = known.quantile(points).tolist()
    return low, middle, (high - low) or 1.0  # a score that does not vary has no scale of its own


def _spread(value: float) -> float:
    if not 0 < value < math.inf:
        raise FileFormatError(f"a spread of {value}, where a positive number should stand")
    return value
