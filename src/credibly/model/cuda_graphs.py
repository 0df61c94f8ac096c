"""Work recorded as a CUDA graph, on the GPU where its tensors are, whatever thread asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]
Run = Callable[[Tensors], Tensors]

WARM_UPS = 2
"""Runs before a recording, in which libraries prepare buffers."""

_CAPTURING = Lock()
"""Held while a graph is captured: torch can do one at a time in a process."""


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
        # graphs and streams belong to the current device, which need not be that of the tensors
        with torch.cuda.device(self.given[0].device):
            for own, new in zip(self.given, given, strict=True):
                own.copy_(new)
            self.graph.replay()
            return tuple(part.clone() for part in self.found)


class GraphMaker:
    """Records work on a GPU; its recordings share memory for what is in between.

    They may: each result is copied before anything else is replayed.
    """

    def __init__(self) -> None:
        self._places: dict[torch.device, tuple[Any, torch.cuda.Stream]] = {}

    def __call__(self, work: Run, given: Tensors) -> Recording:
        place = given[0].device
        with _CAPTURING, torch.cuda.device(place):
            if place not in self._places:  # one stream: recordings of others do not share memory
                stream = torch.cuda.Stream(place)  # type: ignore[no-untyped-call]
                self._places[place] = (torch.cuda.graph_pool_handle(), stream)
            try:
                return _record(work, given, *self._places[place])
            except Exception:
                del self._places[place]  # a capture that failed may leave them unusable
                raise


def _record(work: Run, given: Tensors, pool: Any, stream: torch.cuda.Stream) -> Recording:
    own = tuple(part.clone() for part in given)
    here = torch.cuda.current_stream()
    stream.wait_stream(here)
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            work(own)
    here.wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    capture = torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local")
    with torch.cuda.stream(here), capture:  # torch leaves its own stream if the capture fails
        found = work(own)
    return Recording(graph, own, found, work)


class Turns:
    """Lets threads use the same buffers one after the other, on whatever streams they run."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last: dict[torch.device, torch.cuda.Event] = {}

    @contextmanager
    def on(self, device: torch.device) -> Iterator[None]:
        """Wait for the work of the thread before; a lock alone does not: GPUs work later."""
        with self._lock:
            if device.type != "cuda":
                yield
                return
            stream = torch.cuda.current_stream(device)
            if device in self._last:
                stream.wait_event(self._last[device])
            try:
                yield
            finally:
                self._last[device] = stream.record_event()

    @contextmanager
    def over(self) -> Iterator[None]:
        """Wait until all work is over, and let nobody begin."""
        with self._lock:
            for event in self._last.values():
                event.synchronize()
            yield


def give_back() -> None:
    """Return unused memory to the GPU; not during a capture, which that would end."""
    if torch.cuda.is_available():
        with _CAPTURING:
            torch.cuda.empty_cache()
