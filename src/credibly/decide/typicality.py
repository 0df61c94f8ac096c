"""How far an input is from the ordinary ones: nearest neighbours, correlations, ranges.

Each has two forms: for a new input against all ordinary ones, and for each ordinary input against
the others. One more input among the others can only bring neighbours nearer and widen a range, so
the second is never smaller than it would be with the new input among them: p-values from it are
never too small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations

import torch
from torch import Tensor

from credibly._validation import require
from credibly.decide.ranges import ITS, Ranges
from credibly.model.memory import most_compared
from credibly.types import CPU, norm

NEIGHBOURS = 3
"""Which nearest neighbour is measured: two broken inputs among the ordinary ones hide no third."""

COLUMNS = 1024
"""Features at most that are compared one by one, and by which inputs are near each other."""

CLIP = 4.0
"""Deviations of a column beyond this are as far as this; ranges see the rest."""

TINY = 1e-12

FEW, SAME = 32, 1e-6
"""Inputs by which others are known again, and how near they must be, by the largest value."""

AXES = 4
"""Axes of an input at most whose order is looked for."""


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Distances to the nearest ordinary inputs.

    Attributes:
        points: the ordinary inputs (n, d), in the metric of the distance.
    """

    points: Tensor

    def of_new(self, points: Tensor) -> Tensor:
        """Log of the distance (N,) to the third nearest ordinary input."""
        return self._distances(points, NEIGHBOURS)

    def of_own(self) -> Tensor:
        """The same (n,) of each ordinary input, among the others."""
        return self._distances(self.points, NEIGHBOURS + 1)  # the nearest is the input itself

    def _distances(self, points: Tensor, order: int) -> Tensor:
        here = self.points.to(points)
        order = min(order, len(here))
        parts = torch.split(points, most_compared(points.device))
        found = [nearest(part, here, order)[:, order - 1] for part in parts]
        return torch.cat(found).clamp(min=TINY).log().cpu()


def nearest(points: Tensor, here: Tensor, order: int, allowed: Tensor | None = None) -> Tensor:
    """Distances (N, order) to the nearest of `here`, rising; infinite where there are not so many.

    `allowed` (N, n) says which of them count.
    """
    # a matrix product is fast and cancels near zero: it only says who is near
    centre = here.mean(0)
    rough = torch.cdist(points - centre, here - centre)
    if allowed is not None:
        rough = rough.masked_fill(~allowed, torch.inf)
    near = rough.topk(min(2 * order, len(here)), dim=1, largest=False).indices
    gaps = (here[near] - points[:, None]).double()
    exact: Tensor = torch.linalg.vector_norm(gaps, dim=2)
    if allowed is not None:
        exact = exact.masked_fill(~allowed.gather(1, near), torch.inf)
    return exact.sort(1).values[:, :order]


def input_columns(x: Tensor) -> Tensor:
    """What ranges look at (n, d): statistics of each input and, if it is a table, its columns.

    Mean, deviation, smallest and largest value and, for images and signals, how rough they are: the
    mean difference of neighbours along the last axes.
    """
    flat = x.flatten(1).double()
    found = [flat.mean(1), flat.std(1, correction=0), flat.amin(1), flat.amax(1)]
    found += [x.diff(dim=axis).abs().flatten(1).mean(1).double() for axis in _axes(x)]
    statistics = torch.stack(found, 1)  # where the inputs are: only these few numbers travel
    return (torch.cat([flat, statistics], 1) if _is_table(x) else statistics).cpu()


def names_of_columns(x: Tensor, names: tuple[str, ...] | None) -> tuple[str, ...]:
    """The names of `input_columns`, for reasons in words."""
    found = [ITS + what for what in ("mean", "deviation", "smallest value", "largest value")]
    found += [f"{ITS}roughness along axis {axis}" for axis in _axes(x)]
    if not _is_table(x):
        return tuple(found)
    return (*(names or (f"column {k}" for k in range(x.shape[1]))), *found)


@dataclass(frozen=True, eq=False)
class InputMetric:
    """Inputs as points whose distance says how alike they are.

    Columns of a table are measured in their deviations, each up to four of them, since they may
    have any unit. Images and signals are measured as they are, by at most 1024 of their values.

    Attributes:
        places: the values that are used (d,), by their place in a flat input.
        centre, unit: of each column; 0 and 1 where inputs are measured as they are.
    """

    places: Tensor
    centre: Tensor
    unit: Tensor

    @classmethod
    def fit(cls, x: Tensor) -> InputMetric:
        """From ordinary inputs (n, ...)."""
        size = x[0].numel()
        places = torch.arange(size, device=CPU)
        if size > COLUMNS:
            generator = torch.Generator(CPU).manual_seed(0)
            places = torch.randperm(size, generator=generator, device=CPU)[:COLUMNS].sort().values
        flat = x.flatten(1).cpu()[:, places]
        centre, unit = torch.zeros_like(flat[0]), torch.ones_like(flat[0])
        if _is_table(x):
            centre, unit = flat.median(0).values, flat.std(0)
            floor = 1e-6 * flat.abs().amax(0)
            unit = torch.where(unit > floor, unit, torch.where(floor > 0, 1e6 * floor, 1.0))
        return cls(places, centre, unit)

    def __call__(self, x: Tensor) -> Tensor:
        """The points (n, d) of inputs (n, ...)."""
        deviations = self.deviations(x)
        return deviations.clamp(-CLIP, CLIP) if _is_table(x) else deviations

    def deviations(self, x: Tensor) -> Tensor:
        """The values (n, d) in units of the metric, however far they are."""
        flat = x.flatten(1)[:, self.places.to(x.device)]
        return (flat - self.centre.to(flat)) / self.unit.to(flat)


@dataclass(frozen=True, eq=False)
class Correlations:
    """How far the columns of a table contradict each other: Mahalanobis' distance.

    Attributes:
        centre: of the ordinary inputs (d,).
        root: that makes them uncorrelated (d, d).
    """

    centre: Tensor
    root: Tensor

    @classmethod
    def fit(cls, points: Tensor) -> Correlations:
        """From the columns (n, d) of ordinary inputs, in units of their deviations."""
        count, size = points.shape
        bent = _bent(points)
        centre = bent.mean(0)
        spread = (bent - centre).T @ (bent - centre) / max(count - 1, 1)
        # few inputs of many columns tell little about the narrow directions
        ridge = (0.01 + 0.1 * size / count) * torch.eye(size, dtype=spread.dtype, device=CPU)
        values, vectors = torch.linalg.eigh(spread + ridge)
        return cls(centre, (vectors / values.sqrt()).contiguous())  # as it comes back from a file

    def of_new(self, points: Tensor) -> Tensor:
        """Log of the distance (N,) from the centre."""
        return norm((_bent(points) - self.centre) @ self.root).clamp(min=TINY).log()

    @classmethod
    def of_own(cls, points: Tensor) -> Tensor:
        """The same (n,) of ordinary inputs, each without its tenth of them in the fit."""
        found, tenth = torch.zeros(len(points), dtype=torch.float64, device=CPU), 10
        for first in range(tenth):
            here = torch.arange(len(points), device=CPU) % tenth == first
            found[here] = cls.fit(points[~here]).of_new(points[here])
        return found


def _bent(points: Tensor) -> Tensor:
    """Deviations in double precision, far ones drawn in: columns may have long tails."""
    return 2 * torch.asinh(points.double().cpu() / 2)


@dataclass(frozen=True, eq=False)
class TypicalInputs:
    """What ordinary inputs are like, whatever the network makes of them.

    Attributes:
        metric, points: the inputs as points, and the ordinary ones.
        alike, statistics: the same for the columns of `input_columns`.
        ranges: of these columns.
        correlations: of the columns of a table; None for other inputs.
        shape: of one input.
    """

    metric: InputMetric
    points: Neighbours
    alike: InputMetric
    statistics: Neighbours
    ranges: Ranges
    correlations: Correlations | None
    shape: tuple[int, ...]

    @classmethod
    def fit(cls, x: Tensor, columns: Tensor, names: tuple[str, ...] | None) -> TypicalInputs:
        """From ordinary inputs (n, ...), whose `input_columns` are known."""
        metric = InputMetric.fit(x)
        alike, points = InputMetric.fit(columns), Neighbours(metric(x).float())
        ranges = Ranges.fit(columns, names_of_columns(x, names))
        statistics = Neighbours(alike(columns).float())
        shape = tuple(x.shape[1:])
        correlations = Correlations.fit(metric.deviations(x)) if _is_table(x) else None
        return cls(metric, points, alike, statistics, ranges, correlations, shape)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the signals."""
        last = "statistics" if self.correlations is None else "correlations"
        return "inputs", "range", last

    def check_shape(self, x: Tensor) -> None:
        """Refuse inputs of another shape, before a model fails on them."""
        got = tuple(x.shape[1:])
        expected = f"inputs of the shape of the ordinary ones, {self.shape}"
        require(got == self.shape, "x", expected, f"{got}", _reshaped(tuple(x.shape), self.shape))

    def are_ordinary(self, x: Tensor) -> bool:
        """Whether these inputs are the very ordinary ones, as far as a few of them tell.

        Where ordinary inputs are copies of each other, as in tables of few values, nothing is said.
        """
        here = self.points.points
        if tuple(x.shape[1:]) != self.shape or not len(x) >= FEW:
            return False
        some = self.metric(x[:FEW]).float().to(here)
        same = SAME * float(here.abs().amax())
        if not float(nearest(some, here, 1).amax()) <= same:  # NaN is none of them
            return False
        return float(nearest(here[:FEW], here, 2)[:, 1].median()) > same

    def of_new(self, x: Tensor, columns: Tensor) -> dict[str, Tensor]:
        """Signals of new inputs, whose `input_columns` are known."""
        self.check_shape(x)
        found = {
            "inputs": self.points.of_new(self.metric(x).float()),
            "range": self.ranges.of_new(columns),
        }
        if self.correlations is None:  # of a table the statistics are its columns
            found["statistics"] = self.statistics.of_new(self.alike(columns).float())
        else:
            found["correlations"] = self.correlations.of_new(self.metric.deviations(x))
        return found

    def of_own(self, x: Tensor, columns: Tensor) -> dict[str, Tensor]:
        """Signals of the ordinary inputs themselves, each among the others."""
        found = {
            "inputs": self.points.of_own(),
            "range": self.ranges.of_own(columns),
        }
        if self.correlations is None:
            found["statistics"] = self.statistics.of_own()
        else:
            found["correlations"] = Correlations.of_own(self.metric.deviations(x))
        return found


def _reshaped(got: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """How to pass a batch of another shape, where its axes tell."""
    if got == shape:
        return "This is one input, without the axis of samples: pass x[None]."
    if len(got) - 1 == len(shape) <= AXES:
        for order in permutations(range(1, len(got))):
            if tuple(got[axis] for axis in order) == shape:
                return f"Its axes are in another order: pass x.permute{(0, *order)}."
    if len(got) == len(shape) and 1 in shape and tuple(n for n in shape if n > 1) == got[1:]:
        axis = shape.index(1) + 1
        return f"Add the missing axis: pass x[{':, ' * axis}None]."
    if len(got) == 2 and got[1] == math.prod(shape):
        return f"They have as many numbers: pass x.reshape{(-1, *shape)}."
    if len(got) == len(shape) + 1 == 4 and got[2:] == shape[1:]:
        return "Convert them to the same number of channels, grey or colour."
    return "Resize them as the ordinary ones are." if len(shape) == 3 else _FIT


_FIT = "Pass inputs like the ordinary ones that the Judge was fitted on."


def _axes(x: Tensor) -> range:
    """The axes along which neighbours are alike: the last one of signals, two of images."""
    first = max(2, x.dim() - 2)
    return (
        range(first, x.dim())
        if all(x.shape[axis] > 1 for axis in range(first, x.dim()))
        else (range(0))
    )


def _is_table(x: Tensor) -> bool:
    return x.dim() == 2 and x.shape[1] <= COLUMNS
