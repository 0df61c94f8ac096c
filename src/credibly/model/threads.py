"""As many threads as the work is worth, for as long as it lasts.

Threads of torch wait for each other by spinning. On small work that costs more than it brings, and
next to another busy process a hundred times as much: the pass of one image then takes seconds.

The number is that of the thread that works. Others, such as those of a service or a loader of data,
keep theirs, and threads that begin meanwhile get the number that was set before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Thread
from weakref import WeakKeyDictionary

import torch
from torch import nn

from credibly.model.derivatives import losses_only
from credibly.model.variable import Variable

LONG = 0.1
"""Seconds of work in one thread from which it is tried whether all threads are faster."""

TRIED, MANY = 8, 20
"""Samples on which that is tried, and how many times as many forwards must be ahead."""

WORTH_IT = 0.8
"""Share of the time of one thread that all threads may take, to be used for long."""

_SECONDS: WeakKeyDictionary[nn.Module, float] = WeakKeyDictionary()
"""Seconds of a forward of one sample in one thread, by network: measured once."""


@contextmanager
def fitting_threads(variable: Variable, *, passes: float) -> Iterator[None]:
    """Choose the number of threads for some passes over all samples; restore it afterwards."""
    before = torch.get_num_threads()
    if before == 1 or variable.start.device.type != "cpu" or len(variable) == 0:
        yield
        return
    try:
        _one_thread_here(others=before)
        forwards = 3 * passes * len(variable)
        if forwards * _seconds_of_one(variable) >= LONG:
            worth_trying = forwards >= MANY * min(len(variable), TRIED)
            if not worth_trying or _faster(_forward_of_some(variable), before):
                torch.set_num_threads(before)
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def threads_worth(work: Callable[[], object]) -> Iterator[None]:
    """One thread, or all if these are clearly faster at work that is done again and again."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    try:
        if not _faster(work, before, worth=WORTH_IT):
            _one_thread_here(others=before)
        yield
    finally:
        torch.set_num_threads(before)


def _one_thread_here(*, others: int) -> None:
    """Let this thread work alone.

    Torch also notes the number for all threads that have not used it yet, which would keep it for
    good. Another thread puts that back; it can change no number but its own.
    """
    torch.get_num_threads()  # the first time that a thread asks, torch sets its number
    torch.set_num_threads(1)
    thread = Thread(target=torch.set_num_threads, args=(others,))
    thread.start()
    thread.join()


def _seconds_of_one(variable: Variable) -> float:
    net = variable.net
    known = _SECONDS.get(net) if isinstance(net, nn.Module) else None
    if known is not None:
        return known
    one = variable.select(slice(0, 1))
    work = partial(losses_only, one, one.start.nan_to_num(0.0, 0.0, 0.0))
    work()  # the first one prepares what the others use
    found = seconds_of(work)
    if isinstance(net, nn.Module):
        _SECONDS[net] = found
    return found


def _forward_of_some(variable: Variable) -> Callable[[], object]:
    some = variable.select(slice(0, TRIED))
    return partial(losses_only, some, some.start.nan_to_num(0.0, 0.0, 0.0))


def _faster(work: Callable[[], object], threads: int, *, worth: float = 1.0) -> bool:
    """Whether all threads take less than `worth` of the time of one, as things are now."""
    found = []
    for use in (partial(torch.set_num_threads, threads), partial(_one_thread_here, others=threads)):
        use()
        work()
        found.append(seconds_of(work))
    torch.set_num_threads(threads)
    return found[0] < worth * found[1]


def seconds_of(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
