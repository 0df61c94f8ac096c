"""The rows of a run, one chunk at a time: what any work on them shares.

A row that cannot be used gets a status and does not affect other rows, whatever the work is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import Tensor

from credibly.batch.overlap import onto, staged
from credibly.batch.tally import FAILED, OUTSIDE, UNREADABLE
from credibly.errors import ModelError
from credibly.io.source import Ids
from credibly.io.sources import Source
from credibly.model.bind import bind
from credibly.model.classifier import Classifier
from credibly.model.derivatives import losses_only, undisturbed
from credibly.model.in_space import InSpace
from credibly.model.space import Space
from credibly.model.variable import Variable
from credibly.types import Bounds, finite_rows, per_sample

if TYPE_CHECKING:
    import pandas as pd

AUTO_ROWS = 256
"""Rows at the start of the data on which the model is checked and gamma='auto' is set."""

T = TypeVar("T")

Work = Callable[[Variable], T]
"""What is done with the rows of a chunk."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows, and the model that takes them.

    Attributes:
        clf: the classifier.
        source: where the rows come from.
        chunk: rows at a time.
        shard: rows in a part of the output.
        bounds: between which rows must lie.
    """

    clf: Classifier
    source: Source
    chunk: int
    shard: int
    bounds: Bounds | None = None

    @property
    def columns(self) -> Sequence[str] | None:
        """Names of the features, if the source has any."""
        found: Sequence[str] | None = getattr(self.source, "columns", None)
        return found


@dataclass(frozen=True, eq=False)
class Chunk(Generic[T]):
    """What the work gave for the rows of a chunk.

    Attributes:
        result: of the work; rows that could not be used were NaN to it.
        statuses: which rows (n,) could not be used, by the words for it.
    """

    result: T
    statuses: Mapping[str, Tensor]

    def mark(self, frame: pd.DataFrame) -> None:
        """Write the words into the column `status`."""
        for words, rows in self.statuses.items():
            frame.loc[rows.cpu().numpy(), "status"] = words


@dataclass(frozen=True, eq=False)
class Read:
    """The rows of a chunk, as they were read.

    Attributes:
        first: number of the first row.
        ids: of the rows.
        x: their values.
        carried: what goes into the output beside the ids.
    """

    first: int
    ids: Ids
    x: Tensor
    carried: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(self.x)


def read_rows(rows: Rows, first: int, stop: int) -> Read:
    """Read the rows first <= row < stop. Sources go forward: one thread reads at a time."""
    with _READING:
        ids, x = rows.source.read(first, stop)
        carried = rows.source.carried(first, first + len(ids))
    return Read(first, ids, staged(x, rows.clf.device), carried)


_READING = RLock()


def work_on(rows: Rows, work: Work[T], read: Read) -> Chunk[T]:
    """Do the work on a chunk."""
    x, first = read.x, read.first
    unread = ~finite_rows(x) & rows.source.files
    x, outside = prepare(rows, x)
    failing = torch.zeros_like(outside)
    try:
        result = use(rows.clf, work, x)
    except Exception as error:  # noqa: BLE001  # a model may raise anything
        result, failing = _without_failing(rows, work, x, first, error)
    return Chunk(result, {UNREADABLE: unread, OUTSIDE: outside, FAILED: failing})


def _without_failing(
    rows: Rows, work: Work[T], x: Tensor, first: int, error: Exception
) -> tuple[T, Tensor]:
    """Do the work with a working row in the place of those on which the model raises.

    To the work these become NaN. Returns its result and which rows they are (n,).
    """
    failing = raising(partial(use, rows.clf, work), x)
    working = _working_row(rows, work) if bool(failing.any()) else None
    if working is None:
        raise model_failed(first, len(x), error) from error
    replaced = torch.where(per_sample(failing, x), working, x)
    try:
        result = use(rows.clf, work, replaced, without=failing)
    except Exception as again:
        raise model_failed(first, len(x), again) from again
    return result, failing & finite_rows(x)  # the status of the others says more


def use(clf: Classifier, work: Work[T], x: Tensor, *, without: Tensor | None = None) -> T:
    """Do the work on a batch; the rows `without` (n,) become NaN. The model was checked before."""
    variable = bind(clf, x)
    if without is not None:
        start = variable.start
        start = torch.where(per_sample(without, start), torch.nan, start)
        variable = dataclasses.replace(variable, start=start)
    with undisturbed(variable) as variable:
        return work(variable)


def prepare(rows: Rows, x: Tensor) -> tuple[Tensor, Tensor]:
    """Move inputs to the model's device and precision; rows outside the bounds become NaN.

    Returns the inputs and which rows lie outside (n,).
    """
    x = onto(x, rows.clf.device, rows.clf.dtype)
    outside = _outside(rows, x) & finite_rows(x)
    return torch.where(per_sample(outside, x), torch.nan, x), outside


def _outside(rows: Rows, x: Tensor) -> Tensor:
    """Find the rows (n,) with a movable value outside the bounds of the run or of the space."""
    clf, bounds = rows.clf, rows.bounds
    none = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    if clf.space is None and clf.module is None:
        return none if bounds is None else ((x < bounds[0]) | (x > bounds[1])).flatten(1).any(1)
    space = clf.space or Space()
    if bounds is None and space.bounds is None:
        return none
    bare = copy(clf)
    bare.space = dataclasses.replace(space, bounds=None)  # else one row outside would raise for all
    try:
        found = bind(bare, x)
    except ModelError:  # the model raises on some row, which gets its status later
        return torch.cat([_outside(rows, row) for row in torch.split(x, 1)]) if len(x) > 1 else none
    assert isinstance(found, InSpace)  # noqa: S101  # as all that bind gives
    own = space.bounds_of(found.paths[0], tuple(found.shapes[0]))
    low, high = (None, None) if own is None else (side.to(found.values) for side in own)
    return dataclasses.replace(found.coordinates, low=low, high=high).outside(bounds)


def run(clf: Classifier, x: Tensor) -> None:
    """Run the model once on the finite rows."""
    variable = bind(clf, x)  # a named module is found by running the model
    finite = finite_rows(variable.start)
    if clf.module is None and bool(finite.any()):
        losses_only(variable.select(finite), variable.start[finite])


def raising(call: Callable[[Tensor], object], x: Tensor) -> Tensor:
    """Find the rows (n,) on which `call` raises, one at a time."""
    failing = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for n in range(len(x)):
        try:
            call(x[n : n + 1])
        except Exception:  # noqa: BLE001  # a model may raise anything
            failing[n] = True
    return failing


def _working_row(rows: Rows, work: Work[T]) -> Tensor | None:
    """Find one of the first rows that can be used (1, ...), or None."""
    x, _ = prepare(rows, read_rows(rows, 0, AUTO_ROWS).x)
    for n in finite_rows(x).nonzero().flatten().tolist():
        if not bool(raising(partial(use, rows.clf, work), x[n : n + 1]).any()):
            return x[n : n + 1]
    return None


def model_failed(first: int, count: int, error: Exception) -> ModelError:
    """Return the error of a model that fails on all rows, or not because of a row."""
    reason = (str(error).splitlines() or [""])[0]
    return ModelError(
        f"the model failed on rows {first} to {first + count - 1} with "
        f"{type(error).__name__}: {reason}",
        remedy="Finished rows are kept. Try a smaller chunk_size (--chunk-size) if memory ran out.",
    )
