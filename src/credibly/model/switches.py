"""Switches of torch that are global to the process, turned off for a while and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from torch.backends import cuda, cudnn, mha


class Switch:
    """Off while any thread needs it off; the last one to leave restores the first value.

    If each thread restored the value it found itself, the switch could stay off for good.
    """

    def __init__(
        self, get: Callable[[], Any], put: Callable[[Any], None], *, off: Any = False
    ) -> None:
        self._get, self._put, self._off = get, put, off
        self._lock, self._users, self._before = Lock(), 0, off

    @contextmanager
    def off(self) -> Iterator[None]:
        """Keep it off inside."""
        with self._lock:
            if self._users == 0:
                self._before = self._get()
            self._put(self._off)
            self._users += 1  # only then: torch refuses where its global flags are frozen
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._put(self._before)


FAST_PATH = Switch(mha.get_fastpath_enabled, mha.set_fastpath_enabled)
"""The fast path of torch's own transformer layers, used in eval mode without gradients."""

CUDNN = Switch(lambda: bool(cudnn.enabled), lambda value: setattr(cudnn, "enabled", value))
"""The convolutions and recurrent layers of NVIDIA's library."""


_ATTENTION: dict[Callable[[], bool], Callable[[bool], None]] = {
    cuda.flash_sdp_enabled: cuda.enable_flash_sdp,
    cuda.mem_efficient_sdp_enabled: cuda.enable_mem_efficient_sdp,
    cuda.cudnn_sdp_enabled: cuda.enable_cudnn_sdp,
    cuda.math_sdp_enabled: cuda.enable_math_sdp,
}


def _set_attention(flags: list[bool]) -> None:
    for put, flag in zip(_ATTENTION.values(), flags, strict=True):
        put(flag)


FUSED_ATTENTION = Switch(
    lambda: [get() for get in _ATTENTION], _set_attention, off=[False, False, False, True]
)
"""Kernels of attention that have a first derivative only; off leaves the plain operations."""
