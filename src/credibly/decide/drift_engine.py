"""The streams that a `DriftWatch` bets on: all inputs, and those of each predicted class."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from credibly.decide.drift_bets import ROWS, Bets, Numbers, Ranks

Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class WatchSettings:
    """What a watch was begun with.

    Attributes:
        false_alarms: the chance of ever raising a false alarm, at most.
        by_class: whether half of it is spent on the predicted classes.
        seed: of the numbers that say where an input is among its equals.
        ordinary: inputs that the Judge was fitted on; p-values are multiples of 1 / (1 + this).
        classes: how many there are.
        reference: fresh ordinary inputs that new ones are ranked among; 0: those of the Judge.
        judge: digest of the Judge.
        compared: digest of these fresh inputs; '' where there are none.
    """

    false_alarms: float
    by_class: bool
    seed: int
    ordinary: int
    classes: int
    reference: int
    judge: str
    compared: str

    @property
    def log_threshold(self) -> float:
        """Log of what a martingale must reach: 1 / false_alarms, or twice that if two may alarm."""
        return math.log((2 if self.by_class else 1) / self.false_alarms)

    @property
    def class_threshold(self) -> float:
        """A class that reaches it alone lifts the average over the classes to its threshold."""
        return self.log_threshold + math.log(self.classes)


@dataclass(eq=False)
class Stream:
    """Inputs that are ranked among each other, and the bets on their ranks.

    Attributes:
        since: number of the input, from 1 on and of all inputs, with which its alarm rose.
    """

    ranks: Ranks
    bets: Bets
    since: int | None = None

    def after(self, places: Integers, chances: Numbers) -> Numbers:
        """Go on; the log of the martingale (N,) at each input."""
        self.bets, worth = self.bets.after(self.ranks.of_new(places, chances))
        return worth


@dataclass(frozen=True, eq=False)
class Trace:
    """What happened at each of some inputs, one after the other.

    Attributes:
        first: number of the first of them in the stream, from 0 on.
        whole: log of the martingale of all inputs (N,); where an input is unusable, the last one.
        mean: the same of the average over the classes (N,); 0 where classes are not watched.
        classes: the same of each class (N,) that is among them.
    """

    first: int
    whole: Numbers
    mean: Numbers
    classes: Mapping[int, Numbers]


@dataclass(eq=False)
class Engine:
    """Everything about a stream that changes.

    Attributes:
        whole: all inputs.
        classes: those of each predicted class that was seen.
        mean: log of the average of the martingales of all classes.
        seen, unusable: inputs so far, and those of them without a p-value.
        peak: the largest that `whole` or `mean` ever was.
        since: number of the input with which the alarm rose.
    """

    settings: WatchSettings
    whole: Stream
    classes: dict[int, Stream] = field(default_factory=dict)
    mean: float = 0.0
    seen: int = 0
    unusable: int = 0
    peak: float = 0.0
    since: int | None = None

    @classmethod
    def begin(cls, settings: WatchSettings) -> Engine:
        """Before the first input."""
        ranks = Ranks.none(settings.ordinary, between=not settings.reference)
        return cls(settings, Stream(ranks, Bets.none()))

    def know(self, places: Integers, predicted: Integers) -> None:
        """Take fresh ordinary inputs as those that all others are ranked among."""
        self.whole.ranks.add(places)
        if self.settings.by_class:
            for k in np.unique(predicted).tolist():
                self._of_class(k).ranks.add(places[predicted == k])

    def after(self, places: Integers, predicted: Integers) -> Iterator[Trace]:
        """Go on with inputs (N,), a few at a time; those without a place have 0 there."""
        for rows in _slices(len(places)):
            yield self._few(places[rows], predicted[rows])

    def _few(self, places: Integers, predicted: Integers) -> Trace:
        good = places > 0
        rows, last, count = np.flatnonzero(good), self.whole.bets.log_martingale, len(places)
        chances = self._chances(len(rows))
        worth = self.whole.after(places[rows], chances)
        whole = _filled(worth, rows, count, last)
        mean, paths = np.zeros(count), dict[int, Numbers]()
        if self.settings.by_class:
            paths = self._by_class(places[rows], predicted[rows], chances, rows, count)
            mean = self._average(paths, count)
        self._alarm(whole, mean)
        trace = Trace(self.seen, whole, mean, paths)
        self.seen += count
        self.unusable += count - len(rows)
        return trace

    def _chances(self, count: int) -> Numbers:
        """Uniform numbers in (0, 1] that depend on the seed and the place in the stream only."""
        drawn = self.seen - self.unusable
        generator = np.random.Generator(np.random.PCG64(self.settings.seed).advance(drawn))
        return 1 - generator.random(count)

    def _by_class(
        self, places: Integers, predicted: Integers, chances: Numbers, rows: Integers, count: int
    ) -> dict[int, Numbers]:
        """Log of the martingale (N,) of each class that is there, at each of `count` inputs."""
        paths = {}
        for k in np.unique(predicted).tolist():
            here, stream = predicted == k, self._of_class(k)
            last = stream.bets.log_martingale
            worth = stream.after(places[here], chances[here])
            paths[k] = _filled(worth, rows[here], count, last)
            high = np.flatnonzero(worth >= self.settings.class_threshold)
            if stream.since is None and len(high):
                stream.since = self.seen + int(rows[here][high[0]]) + 1
        return paths

    def _average(self, paths: Mapping[int, Numbers], count: int) -> Numbers:
        """Log of the average martingale of all classes (N,)."""
        idle = [s.bets.log_martingale for k, s in self.classes.items() if k not in paths]
        unseen = self.settings.classes - len(self.classes)  # worth 1 each
        rest = np.logaddexp.reduce([*idle, math.log(unseen) if unseen else -math.inf])
        total = np.logaddexp.reduce([*paths.values(), np.full(count, rest)], axis=0)
        mean: Numbers = total - math.log(self.settings.classes)
        self.mean = float(mean[-1])
        return mean

    def _of_class(self, k: int) -> Stream:
        if k not in self.classes:
            ranks = Ranks.none(self.settings.ordinary, between=False)
            self.classes[k] = Stream(ranks, Bets.none())
        return self.classes[k]

    def _alarm(self, whole: Numbers, mean: Numbers) -> None:
        larger = np.maximum(whole, mean)
        self.peak = max(self.peak, float(larger.max()))
        high = np.flatnonzero(larger >= self.settings.log_threshold)
        if self.since is None and len(high):
            self.since = self.seen + int(high[0]) + 1
        reached = np.flatnonzero(whole >= self.settings.log_threshold)
        if self.whole.since is None and len(reached):
            self.whole.since = self.seen + int(reached[0]) + 1


def _slices(count: int) -> Iterator[slice]:
    return (slice(first, first + ROWS) for first in range(0, count, ROWS))


def _filled(worth: Numbers, rows: Integers, count: int, last: float) -> Numbers:
    """The values at `rows`, and after each of them until the next, as (count,)."""
    place = np.zeros(count, np.int64)
    place[rows] = np.arange(1, len(rows) + 1)
    found: Numbers = np.concatenate([[last], worth])[np.maximum.accumulate(place)]
    return found
