"""Work of a fixed shape recorded once as a CUDA graph, and replayed.

Launching the kernels of a small batch takes longer than running them. A graph launches all of them
at once. It fits one batch size, so batches are cut into pieces of a few sizes, the last one padded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import nullcontext
from functools import partial
from threading import Lock
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from credibly.model.cuda_graphs import GraphMaker, Run, Tensors, Turns, give_back
from credibly.types import Model, norm

Faster = Callable[[Model], Model]
Work = Callable[[Tensors, Faster], Tensors]
"""From tensors with one row per sample to others; no value is looked at on the way.

It runs each network as the second argument gives it: compiled, where it is recorded.
"""

SIZES = (1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048)
"""Sizes of pieces. Those of a compiled network are fewer: each is compiled by itself."""

COMPILED_SIZES = (1, 32, 256, 2048)

SMALL, FULL_ENOUGH = 32, 0.7
"""Up to so many samples, or where so much of it is filled, a piece is padded rather than cut."""

RECOMPILED = 64
"""Forms of one piece of code that torch.compile may make; eight, its default, are too few."""

KEPT, REMEMBERED, NOTED = 32, 1024, 20
"""Recordings, sizes that came once, and failures that are kept at most."""

ROUGH = 0.1
"""Differences of a replay from the work itself, as a share, that rounding explains: compiled, or in
half precision. Numbers of other inputs are further off."""

_ALL: WeakSet[Recorder] = WeakSet()
_ALL_LOCK = Lock()


def forget_recordings() -> None:
    """Free the memory of all recordings; they are made again when they are needed."""
    with _ALL_LOCK:
        known = list(_ALL)
    for recorder in known:
        recorder.forget()


class Recorder:
    """Replays work that it has met before; what cannot be recorded runs as it is.

    Args:
        sizes: of pieces, rising.
        compiles: whether networks run through torch.compile inside recordings.
        record: makes a recording; tests on a CPU pass another one.

    Attributes:
        failures: why work could not be recorded, one text each.
    """

    def __init__(
        self,
        *,
        sizes: tuple[int, ...] = SIZES,
        compiles: bool = False,
        record: Callable[[Run, Tensors], Run] | None = None,
    ) -> None:
        self.sizes, self.compiles, self._given = sizes, compiles, record
        self._record: Callable[[Run, Tensors], Run] = record or GraphMaker()
        self.failures: list[str] = []
        self._met: OrderedDict[Hashable, None] = OrderedDict()
        self._made: OrderedDict[Hashable, Run] = OrderedDict()
        self._compiled: dict[int, tuple[nn.Module, Any]] = {}
        self._turns = Turns()  # a recording has one set of buffers
        with _ALL_LOCK:
            _ALL.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, also those in other processes, record anew: a graph reads what it was made of."""
        again = partial(Recorder, sizes=self.sizes, compiles=self.compiles, record=self._given)
        return again, ()

    def run(self, key: Hashable, work: Work, given: Tensors) -> Tensors:
        """Do the work on all rows; `key` says everything that it depends on but the rows."""
        parts = []
        with self._turns.on(given[0].device):
            for rows, size in pieces(len(given[0]), self.sizes):
                piece = tuple(part[rows] for part in given)
                parts.append(self._piece((key, size), work, piece, size))
        return tuple(torch.cat(column) for column in zip(*parts, strict=True))

    def forget(self) -> None:
        """Drop all recordings, and the memory that they hold."""
        with self._turns.over():
            self._made.clear()

    def faster(self, net: Model) -> Model:
        """The network as it runs inside recordings."""
        if not self.compiles or not isinstance(net, nn.Module):
            return net
        if id(net) not in self._compiled:
            self._compiled[id(net)] = (net, torch.compile(net, dynamic=False))
        found: Model = self._compiled[id(net)][1]
        return found

    def _piece(self, key: Hashable, work: Work, piece: Tensors, size: int) -> Tensors:
        """One piece; it is recorded when its size comes for the second time."""
        if key not in self._met:
            _keep(self._met, key, None, REMEMBERED)
            return work(piece, as_it_is)
        padded = tuple(padded_to(part, size) for part in piece)
        if key in self._made:
            found = self._made[key](padded)
            self._made.move_to_end(key)
        else:
            run, found = self._recorded(work, padded)
            _keep(self._made, key, run, KEPT)
        return tuple(part[: len(piece[0])] for part in found)

    def _recorded(self, work: Work, padded: Tensors) -> tuple[Run, Tensors]:
        """A recording, or the work itself where none can be made; and what it gives here."""
        try:
            with _many_shapes() if self.compiles else nullcontext():
                return self._tried(partial(_with, work, self.faster), padded)
        except Exception as error:  # noqa: BLE001  # no memory, or a network that no graph can hold
            self._note(f"{type(error).__name__}: {error}")
        give_back()
        run = partial(_with, work, as_it_is)
        return run, run(padded)

    def _tried(self, run: Run, padded: Tensors) -> tuple[Run, Tensors]:
        """Record with other inputs: a replay of stale numbers then differs from the work itself."""
        made = self._record(run, tuple(_other(part) for part in padded))
        expected, found = run(padded), made(padded)
        if not all(_alike(*pair) for pair in zip(found, expected, strict=True)):
            raise RuntimeError("a replay gave other numbers than the work itself")
        return made, found

    def _note(self, failure: str) -> None:
        if failure not in self.failures:
            self.failures.append(failure)
        del self.failures[:-NOTED]


def _keep(known: OrderedDict[Hashable, Any], key: Hashable, value: Any, most: int) -> None:
    """Add an entry; the one that came first goes."""
    known[key] = value
    if len(known) > most:
        known.popitem(last=False)


def _other(part: Tensor) -> Tensor:
    """Numbers of the same kind that differ from these."""
    return torch.where(part == 0, 0.5, 0.5 * part) if part.is_floating_point() else part


def _alike(found: Tensor, expected: Tensor) -> bool:
    """Whether at least half of the rows are the same up to rounding; kinks can move some."""
    one, other = (part.reshape(len(part), -1).double() for part in (found, expected))
    same = (one == other) | (one.isnan() & other.isnan())
    gap, size = (one - other).masked_fill(same, 0.0), other.nan_to_num(0.0, 0.0, 0.0)
    return bool((norm(gap) <= ROUGH * norm(size)).double().mean() >= 0.5)


def _many_shapes() -> Any:
    """Let one network be compiled for all sizes, with gradients and without."""
    return torch._dynamo.config.patch(recompile_limit=RECOMPILED)  # noqa: SLF001


def as_it_is(net: Model) -> Model:
    """The network itself."""
    return net


def _with(work: Work, faster: Faster, given: Tensors) -> Tensors:
    return work(given, faster)


def pieces(count: int, sizes: tuple[int, ...]) -> Iterator[tuple[slice, int]]:
    """Rows, and the size that they are padded to; the largest pieces come first."""
    first = 0
    while first < count:
        rest = count - first
        fits = [size for size in sizes if size <= rest]
        above = next((size for size in sizes if size >= rest), None)
        padded = above is not None and (above <= SMALL or rest >= FULL_ENOUGH * above)
        size = above if above is not None and (padded or not fits) else fits[-1]
        yield slice(first, min(first + size, count)), size
        first += size


def padded_to(rows: Tensor, size: int) -> Tensor:
    """The rows, with the last one repeated."""
    missing = size - len(rows)
    return rows if missing == 0 else torch.cat([rows, rows[-1:].expand(missing, *rows.shape[1:])])
