"""What a `DriftWatch` says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from credibly.decide.drift_engine import Engine

_LOG_10 = math.log(10)


@dataclass(frozen=True, kw_only=True)
class ClassDrift:
    """The inputs of one predicted class.

    Example: see `DriftWatch`.

    Attributes:
        seen: how many there were.
        log_martingale: log of the evidence that they changed.
        since: number of the input, of all and from 1 on, with which its alarm rose; or None.
    """

    seen: int
    log_martingale: float
    since: int | None

    @property
    def alarm(self) -> bool:
        """Whether this class alone raised the alarm."""
        return self.since is not None


@dataclass(frozen=True, kw_only=True)
class DriftState:
    """What a `DriftWatch` says after some inputs.

    Example: see `DriftWatch`.

    Attributes:
        seen: inputs so far.
        unusable: those of them that have no p-value; nothing is bet on them.
        since: number of the input, from 1 on, with which the alarm rose; None as long as it did
            not. An alarm stays.
        log_martingale: log of the evidence of all inputs that the stream changed.
        log_classes: the same of the average of the classes; 0 where they are not watched.
        log_threshold: what either must reach.
        log_peak: the largest that either ever was.
        whole_since: the same as `since` for the martingale of all inputs alone.
        by_class: of each predicted class that was seen.
        false_alarms: the promised rate.
    """

    seen: int
    unusable: int
    since: int | None
    log_martingale: float
    log_classes: float
    log_threshold: float
    log_peak: float
    whole_since: int | None
    by_class: Mapping[int, ClassDrift] = field(repr=False)
    false_alarms: float

    @property
    def alarm(self) -> bool:
        """Whether the stream left what the Judge was fitted on."""
        return self.since is not None

    @property
    def martingale(self) -> float:
        """Evidence of all inputs that the stream changed; infinite where a float cannot hold it."""
        return _exp(self.log_martingale)

    @property
    def threshold(self) -> float:
        """What the martingale of all inputs, or the average of those of the classes, must reach."""
        return _exp(self.log_threshold)

    @property
    def p_value(self) -> float:
        """The chance, at most, that ordinary inputs ever give as much evidence as there was."""
        return self.false_alarms * min(
            1 / self.false_alarms, _exp(self.log_threshold - self.log_peak)
        )

    @property
    def classes(self) -> tuple[int, ...]:
        """The classes that raised the alarm by themselves, the earliest first."""
        rose = [(found.since, k) for k, found in self.by_class.items() if found.since is not None]
        return tuple(k for _, k in sorted(rose))

    def as_json(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """All numbers; classes by name where names are given, evidence as decimal logarithms."""
        return {
            "alarm": self.alarm,
            "since": self.since,
            "seen": self.seen,
            "unusable": self.unusable,
            "p_value": self.p_value,
            "false_alarms": self.false_alarms,
            "log10_martingale": self.log_martingale / _LOG_10,
            "log10_classes": self.log_classes / _LOG_10,
            "log10_threshold": self.log_threshold / _LOG_10,
            "by_class": {
                str(k) if names is None else names[k]: {
                    "alarm": found.alarm,
                    "since": found.since,
                    "seen": found.seen,
                    "log10_martingale": found.log_martingale / _LOG_10,
                }
                for k, found in self.by_class.items()
            },
        }

    def summary(self, names: Sequence[str] | None = None) -> str:
        """A line to read; classes by name where names are given."""
        if self.since is None:
            return (
                f"no drift in {self.seen} inputs (p {self.p_value:.2g}; an alarm needs "
                f"{self.false_alarms:g})"
            )
        who = ["all inputs"] if self.whole_since is not None else []
        who += [f"class {k if names is None else names[k]}" for k in self.classes]
        return (
            f"drift: alarm at input {self.since} of {self.seen} "
            f"({', '.join(who) or 'several classes together'}; p {self.p_value:.2g})"
        )


def state_of(engine: Engine) -> DriftState:
    """What is known now."""
    settings = engine.settings
    by_class = {
        k: ClassDrift(
            seen=stream.bets.count,
            log_martingale=stream.bets.log_martingale,
            since=stream.since,
        )
        for k, stream in sorted(engine.classes.items())
    }
    return DriftState(
        seen=engine.seen,
        unusable=engine.unusable,
        since=engine.since,
        log_martingale=engine.whole.bets.log_martingale,
        log_classes=engine.mean,
        log_threshold=settings.log_threshold,
        log_peak=engine.peak,
        whole_since=engine.whole.since,
        by_class=by_class,
        false_alarms=settings.false_alarms,
    )


def _exp(log: float) -> float:
    return math.exp(log) if log < 709 else math.inf
