"""Work of a fixed shape recorded once as a CUDA graph, and replayed.

Launching the kernels of a small batch takes longer than running them. A graph launches all of them
at once. It fits one batch size, so batches are cut into pieces of a few sizes, the last one padded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from credibly.types import Model

Tensors = tuple[Tensor, ...]
Faster = Callable[[Model], Model]
Work = Callable[[Tensors, Faster], Tensors]
"""From tensors with one row per sample to others; no value is looked at on the way.

It runs each network as the second argument gives it: compiled, where it is recorded.
"""

Run = Callable[[Tensors], Tensors]

SIZES = (1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048)
"""Sizes of pieces. Those of a compiled network are fewer: each is compiled by itself."""

COMPILED_SIZES = (1, 32, 256, 2048)

SMALL, FULL_ENOUGH = 32, 0.7
"""Up to so many samples, or where so much of it is filled, a piece is padded rather than cut."""

RECOMPILED = 64
"""Forms of one piece of code that torch.compile may make; eight, its default, are too few."""

KEPT, WARM_UPS = 32, 2
"""Recordings that are kept at most, and runs before one, in which libraries prepare buffers."""


@dataclass
class Recording:
    """A graph, what it reads and what it writes.

    It also reads constants of the work, such as weights, at the places where they were: the work is
    kept so that they stay there.
    """

    graph: torch.cuda.CUDAGraph
    given: Tensors
    found: Tensors
    work: Run

    def __call__(self, given: Tensors) -> Tensors:
        for own, new in zip(self.given, given, strict=True):
            own.copy_(new)
        self.graph.replay()
        return tuple(part.clone() for part in self.found)


def record(work: Run, given: Tensors, pool: Any = None) -> Run:
    """Record work on a GPU; recordings of one pool share memory for what is in between.

    They may: each result is copied before anything else is replayed.
    """
    own = tuple(part.clone() for part in given)
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch gives it no types
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UPS):
            work(own)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        found = work(own)
    return Recording(graph, own, found, work)


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
        self.sizes, self.compiles = sizes, compiles
        self._record = self._on_gpu if record is None else record
        self.failures: list[str] = []
        self._pool: Any = None
        self._met: set[Hashable] = set()
        self._made: OrderedDict[Hashable, Run] = OrderedDict()
        self._compiled: dict[int, tuple[nn.Module, Any]] = {}
        self._lock = Lock()

    def run(self, key: Hashable, work: Work, given: Tensors) -> Tensors:
        """Do the work on all rows; `key` says everything that it depends on but the rows."""
        parts = []
        with self._lock:  # a recording has one set of buffers
            for rows, size in pieces(len(given[0]), self.sizes):
                piece = tuple(part[rows] for part in given)
                parts.append(self._piece((key, size), work, piece, size))
        return tuple(torch.cat(column) for column in zip(*parts, strict=True))

    def _on_gpu(self, work: Run, given: Tensors) -> Run:
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        return record(work, given, self._pool)

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
            self._met.add(key)
            return work(piece, as_it_is)
        padded = tuple(padded_to(part, size) for part in piece)
        if key not in self._made:
            self._made[key] = self._recorded(work, padded)
            if len(self._made) > KEPT:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        found = self._made[key](padded)
        return tuple(part[: len(piece[0])] for part in found)

    def _recorded(self, work: Work, padded: Tensors) -> Run:
        """A recording, or the work itself where none can be made or it does not fit."""
        try:
            with _many_shapes() if self.compiles else nullcontext():
                return self._record(partial(_with, work, self.faster), padded)
        except Exception as error:  # noqa: BLE001  # no memory, or a network that no graph can hold
            self.failures.append(f"{type(error).__name__}: {error}")
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            return partial(_with, work, as_it_is)


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
