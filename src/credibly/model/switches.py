"""Switches of torch that are global to the process, turned off for a while and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from torch.backends import cudnn, mha


class Switch:
    """Off while any thread needs it off; the last one to leave restores the first value.

    If each thread restored the value it found itself, the switch could stay off for good.
    """

    def __init__(self, get: Callable[[], bool], put: Callable[[bool], None]) -> None:
        self._get, self._put = get, put
        self._lock, self._users, self._before = Lock(), 0, True

    @contextmanager
    def off(self) -> Iterator[None]:
        """Keep it off inside."""
        with self._lock:
            if self._users == 0:
                self._before = self._get()
            self._put(False)
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
