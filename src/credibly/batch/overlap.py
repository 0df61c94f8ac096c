"""Reading, solving and writing at the same time: one thread reads ahead, one writes behind.

The order stays, memory stays bounded, and an error is raised where it would be raised without them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Self, TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")
Read = TypeVar("Read")

AHEAD = 2
"""Items that are read before they are asked for: one in use, one ready, one being read."""


def read_ahead(
    items: Iterable[Item], read: Callable[[Item], Read], *, ahead: int = AHEAD
) -> Generator[Read, None, None]:
    """`read` of every item in order, of the next ones in a thread while the caller works.

    An error of `read` is raised when its item is asked for. Closing the generator waits for the
    item that is being read; the others are not read.

    Args:
        items: what to read; they are taken from the iterable in the caller's thread.
        read: must not touch what the caller changes meanwhile.
        ahead: how many items at most are read before they are asked for; 0 reads in the caller's
            own thread, each when it is asked for.
    """
    if ahead == 0:
        yield from map(read, items)
        return
    waiting: deque[Future[Read]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="credibly-read") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(read, item))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for unread in waiting:
                unread.cancel()


class WriteBehind(Generic[Item]):
    """Writes each item in a thread while the caller makes the next one.

    At most one item waits. An error is raised by the next call or when the block ends; after it
    nothing more is written. If the block itself raises, what was passed before is still written.

    Args:
        write: called with one item after the other, in order.

    Example:
        >>> done = []
        >>> with WriteBehind(done.append) as write:
        ...     write(1)
        ...     write(2)
        >>> done
        [1, 2]
    """

    def __init__(self, write: Callable[[Item], object]) -> None:
        self._write = write
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="credibly-write")
        self._last: Future[object] | None = None

    def __call__(self, item: Item) -> None:
        """Pass an item on, as soon as the one before is written."""
        self._wait()
        self._last = self._pool.submit(self._write, item)

    def check(self) -> None:
        """Raise the error of what was written last, if there is one by now."""
        if self._last is not None and self._last.done():
            self._last.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown(wait=True)
        if kind is None:
            self._wait()

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()


def staged(x: Tensor, device: torch.device | None) -> Tensor:
    """The tensor in memory from which a GPU copies without stopping the CPU; else as it is.

    Call it in the thread that reads, and `onto` in the one that solves.
    """
    needed = device is not None and device.type == "cuda" and not x.is_cuda
    return x.pin_memory() if needed and not x.is_pinned() else x


def onto(x: Tensor, device: torch.device | None, dtype: torch.dtype | None = None) -> Tensor:
    """The tensor on a device and in a precision; from staged memory the CPU does not wait.

    The numbers travel as they are and are converted where they arrive.
    """
    beside = x.to(device=device, non_blocking=x.is_pinned()) if device is not None else x
    return beside if dtype is None else beside.to(dtype)
