"""How far the values of an input lie beyond those of the ordinary ones, and in which column."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from credibly.types import CPU

ITS = "its "
"""How the names of statistics of a whole input begin."""

IMPOSSIBLE = 20.0
"""Deviations by which a fraction lies outside a column that holds whole numbers alone. If it were
more, a single ordinary fraction in such a column would hide whatever else lies outside."""

SAME = 1e-6
"""Numbers that differ by no more than this share are the same but for rounding."""

ROUNDING = 1e-3
"""A number this near a whole one is taken for it."""

LEAST = 1e-6
"""In logarithms values are at least this share of the smallest ordinary one."""


@dataclass(frozen=True, eq=False)
class Ranges:
    """How far the columns of an input lie beyond those of the ordinary ones.

    Columns of a table that are positive, and less skewed so, are measured in logarithms: a
    hundredth of a price may be hardly a deviation below the smallest one. Where all ordinary values
    are whole numbers, a fraction lies outside: an age in decades, a yearly count divided by twelve.
    Where n ordinary values are all the same, any other lies sqrt(n) deviations outside: as far as
    an ordinary one would that is alone in being different.

    Attributes:
        low, high: the two smallest and the two largest values of each column (2, d).
        in_logs: whether a column (d,) is measured in logarithms.
        unit: the standard deviation of a column (d,) as it is measured; of a column of a table that
            does not vary, what makes any difference sqrt(n) deviations.
        fractions: how many of its ordinary values (d,) are not whole; -1 where that means nothing.
        names: of the columns.
    """

    low: Tensor
    high: Tensor
    in_logs: Tensor
    unit: Tensor
    fractions: Tensor
    names: tuple[str, ...]

    @classmethod
    def fit(cls, columns: Tensor, names: tuple[str, ...]) -> Ranges:
        """From the columns (n, d) of ordinary inputs."""
        ordered = columns.sort(0).values
        own = torch.tensor([not name.startswith(ITS) for name in names], device=CPU)
        logs = torch.where(ordered[0] > 0, columns, 1.0).log()
        in_logs = own & (ordered[0] > 0) & (_skewness(logs) < _skewness(columns))
        measured = torch.where(in_logs, logs, columns)
        unit, size = measured.std(0), measured.abs().amax(0)
        unit = torch.where(unit > 1e-6 * size, unit, torch.where(size > 0, size, 1.0))
        unit = torch.where(own & _same(ordered[0], ordered[-1]), len(columns) ** -0.5, unit)
        fractions = torch.where(own, _is_fraction(columns).sum(0), -1).double()
        return cls(ordered[:2], ordered[-2:].flip(0), in_logs, unit, fractions, names)

    def of_new(self, columns: Tensor) -> Tensor:
        """Log of 1 + the largest excess (N,) over the range, in units of its column; 0 inside."""
        return self._of_new(columns).amax(1).log1p()

    def of_own(self, columns: Tensor) -> Tensor:
        """The same (n,) of each ordinary input, against the others."""
        low = torch.where(columns == self.low[0], self.low[1], self.low[0])
        high = torch.where(columns == self.high[0], self.high[1], self.high[0])
        others = self.fractions - _is_fraction(columns).double()
        return self._excess(columns, low, high, others).amax(1).log1p()

    def outside(self, columns: Tensor) -> str:
        """What lies furthest out in one input (d,), in words; '' if nothing lies outside.

        A column of a table says more than the mean of all of them, which follows from it.
        """
        excess = self._of_new(columns[None])[0].tolist()
        beyond = [k for k, far in enumerate(excess) if far > 0]
        own = [k for k in beyond if not self.names[k].startswith(ITS)]
        if not beyond:
            return ""
        k = max(own or beyond, key=excess.__getitem__)
        value = f"{self.names[k]}, {float(columns[k]):.4g},"
        low, high = float(self.low[0][k]), float(self.high[0][k])
        if excess[k] == IMPOSSIBLE and low <= float(columns[k]) <= high:
            return f"{value} is not a whole number, as all ordinary ones are"
        return f"{value} lies outside {low:.4g} to {high:.4g}"

    def _of_new(self, columns: Tensor) -> Tensor:
        return self._excess(columns, self.low[0], self.high[0], self.fractions)

    def _excess(self, columns: Tensor, low: Tensor, high: Tensor, fractions: Tensor) -> Tensor:
        here, least, most = (self._measured(values) for values in (columns, low, high))
        gap = torch.maximum(least - here, here - most).clamp(min=0)
        alike = _same(self.low[0], self.high[0]) & (self.fractions >= 0)
        gap = torch.where(alike, (~_same(columns, self.low[0])).double(), gap)
        beyond = gap / self.unit
        broken = _is_fraction(columns) & (fractions == 0)
        return torch.maximum(beyond, torch.where(broken, IMPOSSIBLE, 0.0))

    def _measured(self, columns: Tensor) -> Tensor:
        positive = torch.where(self.in_logs, torch.maximum(columns, LEAST * self.low[0]), 1.0)
        return torch.where(self.in_logs, positive.log(), columns)


def _same(one: Tensor, other: Tensor) -> Tensor:
    """Whether numbers are equal but for rounding."""
    return (one - other).abs() <= SAME * torch.maximum(one.abs(), other.abs())


def _is_fraction(columns: Tensor) -> Tensor:
    return (columns - columns.round()).abs() > ROUNDING


def _skewness(columns: Tensor) -> Tensor:
    """How lopsided each column (d,) is, whichever way; 0 where it does not vary."""
    gaps = columns - columns.mean(0)
    spread = gaps.square().mean(0).sqrt()
    skewness = gaps.pow(3).mean(0).abs() / spread.clamp(min=1e-100).pow(3)
    return torch.where(spread > 1e-9 * columns.abs().amax(0), skewness, 0.0)
