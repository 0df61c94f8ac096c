"""Times, memory and waits of pieces of work, and the words they are printed with."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Work = Callable[[], object]

ROUNDS, ENOUGH = 5, 1.5
"""Runs that are timed, fewer where together they would take longer than these seconds."""


class Bench:
    """What was measured so far, and how much time is left for the rest.

    Args:
        device: "cpu" or "cuda".
        limit: seconds from now on; sections that would take longer are left out, and said to be.
    """

    def __init__(self, device: str, limit: float = float("inf")) -> None:
        self.device, self.rows = device, dict[str, Any]()
        self.begin, self.limit = time.perf_counter(), limit

    @property
    def cuda(self) -> bool:
        """Whether there is a GPU to wait for."""
        return self.device == "cuda"

    def has_time(self, name: str, needs: float) -> bool:
        """Print the name of a section, and whether there is time for it."""
        spent = time.perf_counter() - self.begin
        fits = self.limit - spent >= needs
        print(f"\n== {name} ({spent:.0f} s){'' if fits else ': left out, no time'}", flush=True)
        return fits

    def seconds(self, work: Work) -> float:
        """The median of some runs after a first one, the device waited for."""
        found: list[float] = []
        work()
        while len(found) < ROUNDS and (not found or sum(found) + found[-1] < ENOUGH):
            found.append(self.once(work))
        return sorted(found)[len(found) // 2]

    def once(self, work: Work) -> float:
        """One run, the device waited for."""
        self.wait()
        begin = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - begin

    def wait(self) -> None:
        """Wait for the device."""
        if self.cuda:
            torch.cuda.synchronize()

    def note(self, name: str, seconds: float, count: int, bare: float | None = None) -> float:
        """Print and keep images per second, and how many bare passes the same time would take."""
        rate = count / seconds
        passes = "" if bare is None else f"; {seconds / bare:6.2f} bare passes"
        print(f"{name:<62} {rate:>12,.1f} images/s, {1e3 * seconds:9.2f} ms{passes}", flush=True)
        self.rows[name] = {"images": count, "seconds": seconds, "images_per_second": rate}
        if bare is not None:
            self.rows[name]["bare_passes"] = seconds / bare
        return seconds

    def say(self, name: str, value: Any, words: str) -> None:
        """Print and keep something that is not a time."""
        print(f"{name}: {words}", flush=True)
        self.rows[name] = value

    def peak(self, work: Work) -> float:
        """Bytes of a GPU at the most, above what was there before; 0 on a CPU."""
        if not self.cuda:
            return 0.0
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return float(torch.cuda.max_memory_allocated() - before)


def waits_of(work: Work) -> int:
    """How often the CPU waits for the GPU in a piece of work, by torch's own count."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(one.message) for one in found)


def one_pass(net: nn.Module, x: Tensor) -> Tensor:
    """Forward and backward by the input, and nothing else."""
    given = x.detach().requires_grad_(True)
    (slope,) = torch.autograd.grad(net(given).float().logsumexp(1).sum(), given)
    return slope


def one_forward(net: nn.Module, x: Tensor) -> Tensor:
    """A forward and nothing else."""
    with torch.no_grad():
        outputs: Tensor = net(x)
    return outputs
