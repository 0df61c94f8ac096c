"""Switches of torch that are one for the whole process, turned off for a while and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from torch.backends import cudnn, mha


class Switch:
    """Off while anyone needs it off: the last to leave puts it back as the first found it.

    Threads that each put back what they found themselves would leave it off for good.
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


def _put_cudnn(value: bool) -> None:  # noqa: FBT001  # as torch's own setters
    cudnn.enabled = value


FAST_PATH = Switch(mha.get_fastpath_enabled, mha.set_fastpath_enabled)
"""Of torch's own transformer layers, in eval mode without gradients."""

CUDNN = Switch(lambda: bool(cudnn.enabled), _put_cudnn)
"""The convolutions and recurrent layers of NVIDIA's library."""
