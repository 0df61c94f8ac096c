"""Bets against a stream of p-values: a conformal test martingale, and ranks that it may bet on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

POWERS = (0.2, 0.4, 0.7)
"""Exponents k of the bets k p^(k - 1): the smaller, the more is won by very small p-values."""

SHARES = (0.25, 0.25, 0.25, 0.125, 0.125)
"""Of the capital: three bets on small p-values, two on large ones (the last two `POWERS`)."""

SMALLEST = 2.0**-53
"""P-values are kept this far from 0 and 1; closer ones win less than they could, never more."""

ROWS = 512
"""P-values handled at a time: those within are compared pairwise."""


def log_bets(p: Numbers) -> Numbers:
    """Log of the factor (..., N, 5) by which each bet grows at the p-values (..., N).

    Every factor is a density on [0, 1]: where p is uniform, its mean is 1.
    """
    powers = np.array([*POWERS, *POWERS[1:]])
    near = np.clip(p, SMALLEST, 1 - SMALLEST)[..., None]
    side = np.concatenate([np.repeat(near, 3, -1), np.repeat(1 - near, 2, -1)], -1)
    found: Numbers = np.log(powers) + (powers - 1) * np.log(side)
    return found


def waiting(count: Numbers) -> Numbers:
    """Share of the capital that is not yet staked after `count` p-values: 1 / (1 + log(1 + t))."""
    return 1 / (1 + np.log1p(count))


def staked(count: Numbers) -> Numbers:
    """Share that is staked for the first time at p-value number `count`, from 1 on.

    It is `waiting(count - 1) - waiting(count)`, without the cancellation.
    """
    found: Numbers = np.log1p(1 / count) / ((1 + np.log(count)) * (1 + np.log1p(count)))
    return found


@dataclass(frozen=True, eq=False)
class Bets:
    """An average of martingales, one for each bet and each moment at which it may begin.

    The martingale that begins at t is 1 before t and multiplies its bet from then on. If each
    p-value is uniform given the earlier ones, every one of them is a martingale, and so is their
    average with weights that were fixed before: M = waiting(t) + sum of what was staked. It never
    falls below `waiting(t)`, so a change after a million ordinary inputs is found nearly as fast as
    an early one. By Ville's inequality M ever reaches 1 / a with a chance of at most a.

    Attributes:
        logs: log of what each bet is worth (..., 5).
        count: of the p-values seen.
    """

    logs: Numbers
    count: int

    @classmethod
    def none(cls, *streams: int) -> Bets:
        """Before the first p-value, of one stream or of many side by side."""
        return cls(np.full((*streams, len(SHARES)), -np.inf), 0)

    def after(self, p: Numbers) -> tuple[Bets, Numbers]:
        """After more p-values (..., N); also the log of the martingale (..., N) at each of them."""
        if not p.shape[-1]:
            return self, np.zeros_like(p)
        steps = self.count + np.arange(1.0, p.shape[-1] + 1)
        grows = log_bets(p)
        total = np.cumsum(grows, -2)
        begins = np.log(staked(steps))[:, None] + np.log(SHARES) - (total - grows)
        stakes = np.concatenate([self.logs[..., None, :], begins], -2)
        logs = total + np.logaddexp.accumulate(stakes, axis=-2)[..., 1:, :]
        worth = np.logaddexp(np.log(waiting(steps)), np.logaddexp.reduce(logs, -1))
        return Bets(logs[..., -1, :], self.count + p.shape[-1]), worth

    @cached_property  # of many classes most stay as they are
    def log_martingale(self) -> float:
        """Of one stream, now."""
        staked_logs = float(np.logaddexp.reduce(self.logs))
        return float(np.logaddexp(np.log(waiting(np.array(float(self.count)))), staked_logs))


@dataclass(eq=False)
class Ranks:
    """Where each new number ranks among all before it: smoothed online conformal p-values.

    The numbers are places 1 ... n + 1 among n ordinary inputs, so counts of them are all there is
    to remember: ranks are exact, and memory does not grow with the stream.

    Attributes:
        counts: how often each place was seen (n + 2,).
        between: whether the n ordinary inputs themselves count, one between any two places.
    """

    counts: NDArray[np.int64]
    between: bool

    @classmethod
    def none(cls, ordinary: int, *, between: bool) -> Ranks:
        """Before the first number."""
        return cls(np.zeros(ordinary + 2, np.int64), between)

    @property
    def seen(self) -> int:
        """How many numbers there are, the ordinary inputs not counted."""
        return int(self.counts.sum())

    def add(self, places: NDArray[np.int64]) -> None:
        """Remember numbers without ranking them."""
        self.counts += np.bincount(places, minlength=len(self.counts))

    def of_new(self, places: NDArray[np.int64], chances: Numbers) -> Numbers:
        """P-values (N,) of numbers in their order, which are remembered.

        Args:
            places: of the inputs; a small one is strange.
            chances: uniform numbers in (0, 1] that say where among its equals an input is.
        """
        found = [
            self._of_few(places[k : k + ROWS], chances[k : k + ROWS])
            for k in range(0, len(places), ROWS)
        ]
        return np.concatenate([np.zeros(0), *found])

    def _of_few(self, places: NDArray[np.int64], chances: Numbers) -> Numbers:
        below = np.concatenate([[0], np.cumsum(self.counts)])[places]
        earlier = np.tri(len(places), k=-1, dtype=bool)
        below = below + ((places[None] < places[:, None]) & earlier).sum(1)
        equal = self.counts[places] + ((places[None] == places[:, None]) & earlier).sum(1)
        total = self.seen + np.arange(1, len(places) + 1)
        if self.between:
            below, total = below + places - 1, total + len(self.counts) - 2
        self.add(places)
        found: Any = (below + chances * (equal + 1)) / total
        return np.asarray(found, np.float64)
