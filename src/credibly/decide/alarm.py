"""Is something wrong with this input? Surprise over several signals, ranked by ordinary inputs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from credibly.decide.recipe import (
    BLEND,
    DOUBTFUL,
    FROM_PROFILE,
    HELD_BACK,
    OUTLIER,
    UNUSUAL,
    affordable,
)
from credibly.decide.signals import Signals
from credibly.decide.surprise import Surprise
from credibly.errors import FileFormatError
from credibly.types import CPU

ProfileUse = Literal["always", "doubtful", "never"]

Question = Literal["outlier", "tampered", "either"]

QUESTIONS: tuple[Question, ...] = get_args(Question)

Answers = dict[Question, Tensor]
"""Numbers (n,) for every question."""

FOLDS = 5
"""Parts of the ordinary inputs; each is ranked by scales that were fitted to the others."""


@dataclass(frozen=True, eq=False)
class Scales:
    """How strange signals are, by the signals of ordinary inputs.

    Attributes:
        strange: surprise of each signal of outliers; the sign of those that are strange where they
            are small is changed.
        blended: surprise of all of these together; None if nothing varies.
        middles: median and interquartile range of each signal of tampering.
        unusual: surprise of how far the confidence alone, and all signals of tampering together,
            are from usual.
        gate: strangeness, by one forward, from which an input is looked at again.
    """

    strange: dict[str, Surprise]
    blended: Surprise | None
    middles: dict[str, tuple[float, float]]
    unusual: dict[str, Surprise]
    gate: float

    @classmethod
    def fit(cls, signals: Signals, use: ProfileUse, used: Collection[str]) -> Scales:
        """From the signals of ordinary inputs; the names of those that are `used`."""
        strange = {n: Surprise.fit(OUTLIER[n] * signals[n]) for n in OUTLIER if n in used}
        middles = {n: _middle(signals[n]) for n in UNUSUAL["together"] if n in signals}
        gate = torch.inf if use == "never" else -torch.inf
        found = cls(_varying(strange), None, middles, {}, gate)
        far = {
            name: Surprise.fit(found._distance(signals, parts))
            for name, parts in UNUSUAL.items()
            if f"unusual {name}" in used
        }
        found = replace(found, unusual=_varying(far))
        if use == "doubtful":
            found = replace(found, gate=float(found.first_look(signals).quantile(1 - DOUBTFUL)))
        together = _blend(found.surprises(found.seen(signals)), signals)
        return replace(found, blended=Surprise.fit(together))

    def first_look(self, signals: Signals) -> Tensor:
        """Strangeness (n,) by one forward; from `gate` on an input is looked at again."""
        forward = {name: v for name, v in signals.items() if name not in FROM_PROFILE}
        unusual = {f"unusual {name}": v for name, v in self.unusualness(forward).items()}
        return _blend(self.surprises(forward) | unusual, signals)

    def look_again(self, signals: Signals) -> Tensor:
        """Which inputs (n,) one forward does not settle."""
        if math.isinf(self.gate):  # it settles all, or none
            return torch.full_like(signals["confidence"], self.gate < 0, dtype=torch.bool)
        return ~(self.first_look(signals) < self.gate)

    def strangeness(self, signals: Signals) -> Answers:
        """The surprise (n,) for every question.

        Signals of a profile are not looked at where one forward settles the input, and where they
        are NaN.
        """
        seen = self.seen(signals)
        outlier = torch.zeros_like(signals["confidence"])
        if self.blended is not None:
            outlier = self.blended(_blend(self.surprises(seen), signals))
        unusual = list(self.unusualness(seen).values())
        tampered = torch.zeros_like(outlier)
        if unusual:
            tampered = torch.stack([part.nan_to_num(0.0) for part in unusual]).amax(0)
        either = torch.maximum(outlier, tampered - HELD_BACK)
        return {"outlier": outlier, "tampered": tampered, "either": either}

    def seen(self, signals: Signals) -> Signals:
        """The signals (n,) that count: those of a profile only where one is looked at."""
        if not FROM_PROFILE & signals.keys():
            return signals
        again = self.look_again(signals)
        return {
            name: torch.where(again, values, torch.nan) if name in FROM_PROFILE else values
            for name, values in signals.items()
        }

    def surprises(self, signals: Signals) -> Signals:
        """The surprise (n,) of each signal of outliers that is used and that the inputs have."""
        return {
            name: scale(OUTLIER[name] * signals[name])
            for name, scale in self.strange.items()
            if name in signals
        }

    def unusualness(self, signals: Signals) -> Signals:
        """The surprises (n,) of the signals of tampering."""
        return {
            name: scale(self._distance(signals, UNUSUAL[name]))
            for name, scale in self.unusual.items()
            if all(part in signals for part in UNUSUAL[name])
        }

    def _distance(self, signals: Signals, names: tuple[str, ...]) -> Tensor:
        """Log of 1 + how far signals are from their medians, in units of their spread, summed (n,).

        The distances have long tails, which the logarithm makes exponential.
        """
        pairs = [(signals[name], *self.middles[name]) for name in names]
        return torch.stack([(v - middle).abs() / unit for v, middle, unit in pairs]).sum(0).log1p()

    def as_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return {
            "strange": {name: scale.as_json() for name, scale in self.strange.items()},
            "blended": None if self.blended is None else self.blended.as_json(),
            "middles": {name: list(pair) for name, pair in self.middles.items()},
            "unusual": {name: scale.as_json() for name, scale in self.unusual.items()},
            "gate": str(self.gate),  # may be infinite, which JSON cannot hold
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Scales:
        """Read what `as_json` wrote."""
        strange, unusual = (
            {str(name): Surprise.from_json(scale) for name, scale in content[part].items()}
            for part in ("strange", "unusual")
        )
        blended = content["blended"]
        blended = None if blended is None else Surprise.from_json(blended)
        middles = {str(n): (float(a), float(b)) for n, (a, b) in content["middles"].items()}
        gate, known = float(content["gate"]), {*UNUSUAL["together"]}
        needed = {part for name in unusual for part in UNUSUAL[name]}
        good = all(math.isfinite(a) and 0 < b < math.inf for a, b in middles.values())
        if not strange.keys() <= OUTLIER.keys() or not needed <= middles.keys() <= known:
            raise FileFormatError("expected scales of signals that are known")
        if not good or math.isnan(gate):
            raise FileFormatError("expected finite middles, positive units and a gate")
        return cls(strange, blended, middles, unusual, gate)


@dataclass(frozen=True, eq=False)
class Alarm:
    """Ranks the strangeness of an input among that of ordinary ones.

    An input is first looked at by what one forward tells. If none of that is strange, it is settled
    there. The others are looked at again, with a profile. The strangeness of an input blends its
    signals, of those that were looked at; ordinary inputs went the same way, so its rank among them
    is a p-value for the whole. Scales are fitted to ordinary inputs, too: therefore
    each fifth of them is ranked by scales that were fitted to the others, and so is the new input
    when it is compared with that fifth (cross-conformal p-values, Vovk 2015).

    Attributes:
        whole: scales fitted to all ordinary inputs; they say who is looked at again, and why.
        parts: scales fitted to all but one part each.
        ordinary: strangeness of that part by these scales, sorted, for every question.
    """

    whole: Scales
    parts: tuple[Scales, ...]
    ordinary: tuple[Answers, ...]

    @classmethod
    def fit(cls, signals: Signals, use: ProfileUse, rate: float) -> tuple[Alarm, Answers]:
        """From the signals of ordinary inputs; also their own strangeness (n,).

        `rate` is that of the false alarms: with few inputs it allows only some of the signals.
        """
        known = {n: v for n, v in signals.items() if use != "never" or n not in FROM_PROFILE}
        unusual = [f"unusual {name}" for name, parts in UNUSUAL.items() if {*parts} <= {*known}]
        used = affordable({*known, *unusual}, len(known["confidence"]), rate)
        own = {question: torch.zeros_like(known["confidence"]) for question in QUESTIONS}
        parts, ordinary = [], []
        for rows, others in _folds(len(known["confidence"])):
            parts.append(Scales.fit(_rows(known, others), use, used))
            found = parts[-1].strangeness(_rows(known, rows))
            ordinary.append({question: found[question].sort().values for question in QUESTIONS})
            for question in QUESTIONS:
                own[question][rows] = found[question]
        return cls(Scales.fit(known, use, used), tuple(parts), tuple(ordinary)), own

    def p_values(self, signals: Signals) -> Answers:
        """The p-value (n,) for every question."""
        above = {question: torch.ones_like(signals["confidence"]) for question in QUESTIONS}
        for part, ordinary in zip(self.parts, self.ordinary, strict=True):
            for question, values in part.strangeness(signals).items():
                known = ordinary[question]
                above[question] += len(known) - torch.searchsorted(known, values.contiguous())
        count = sum(len(ordinary["either"]) for ordinary in self.ordinary)
        return {question: values / (count + 1) for question, values in above.items()}


def _blend(surprises: Signals, like: Signals) -> Tensor:
    """All surprises (n,) as one; those that are NaN do not count."""
    if not surprises:
        return torch.zeros_like(like["confidence"])
    parts = torch.stack([part.nan_to_num(-torch.inf) for part in surprises.values()])
    return BLEND * (parts / BLEND).logsumexp(0)


def _folds(count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The numbers of each part of the ordinary inputs, and of all others; the seed is fixed."""
    generator = torch.Generator(CPU).manual_seed(0)
    part = torch.randperm(count, generator=generator, device=CPU) % FOLDS
    for number in range(FOLDS):
        yield (part == number).nonzero().squeeze(1), (part != number).nonzero().squeeze(1)


def _rows(signals: Signals, rows: Tensor) -> Signals:
    return {name: values[rows] for name, values in signals.items()}


def _varying(scales: dict[str, Surprise | None]) -> dict[str, Surprise]:
    return {name: scale for name, scale in scales.items() if scale is not None}


def _middle(values: Tensor) -> tuple[float, float]:
    """The median and the range between the quartiles; 1 where they coincide."""
    known = values[~values.isnan()]
    points = torch.tensor([0.25, 0.5, 0.75], dtype=known.dtype, device=CPU)
    low, middle, high = known.quantile(points).tolist() if len(known) else (0.0, 0.0, 0.0)
    return middle, (high - low) or 1.0
