"""What happened along a stream, thinned out to what a picture can show."""

from __future__ import annotations

import numpy as np

from credibly.decide.drift_bets import Numbers
from credibly.decide.drift_engine import Trace

POINTS = 1000
"""Of a curve, at most."""


class DriftHistory:
    """The largest capital within each stretch of a stream, so that no peak is lost.

    Example: see `DriftWatch`.

    Attributes:
        first: inputs before the first of these.
        width: inputs in a stretch.
        whole, mean: of all inputs and of the average over the classes (M,), as logarithms.
        classes: of each class that was seen (M,).
    """

    def __init__(self, rows: int, first: int = 0) -> None:
        """Prepare for so many inputs, after `first` earlier ones."""
        self.first, self.width = first, max(1, -(-rows // POINTS))
        self._stretches = -(-rows // self.width)
        self.whole, self.mean = self._empty(), self._empty()
        self.classes: dict[int, Numbers] = {}

    def add(self, trace: Trace) -> None:
        """Note what happened at some inputs."""
        start = trace.first - self.first
        places = (start + np.arange(len(trace.whole))) // self.width
        np.maximum.at(self.whole, places, trace.whole)
        np.maximum.at(self.mean, places, trace.mean)
        for k, path in trace.classes.items():
            curve = self.classes.setdefault(k, self._empty())
            np.maximum.at(curve, places, path)

    @property
    def places(self) -> Numbers:
        """Number of the last input (M,) of each stretch."""
        found: Numbers = self.first + self.width * np.arange(1.0, self._stretches + 1)
        return found

    def of_class(self, k: int) -> Numbers:
        """The curve of a class, which stays where it was while others are seen."""
        curve = self.classes[k].copy()
        last = 0.0
        for n, value in enumerate(curve):
            last = value if np.isfinite(value) else last
            curve[n] = last
        return curve

    def _empty(self) -> Numbers:
        return np.full(self._stretches, -np.inf)
