"""A file of a store, read in ranges as they are asked for, with the errors of its place."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import IO, Any, cast

RANGE = 1 << 20
"""Bytes that are asked for at once, at least."""


class StoreFile(io.RawIOBase):
    """Passes reads on to a file of pyarrow; nothing is kept but the position."""

    def __init__(self, native: Any, reading: Callable[[], AbstractContextManager[None]]) -> None:
        self._native, self._reading = native, reading

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with self._reading():
            return int(self._native.seek(offset, whence))

    def tell(self) -> int:
        return int(self._native.tell())

    def readinto(self, buffer: Any) -> int:
        with self._reading():
            return int(self._native.readinto(buffer))

    def close(self) -> None:
        if not self.closed:
            with self._reading():
                self._native.close()
        super().close()


def buffered(native: Any, reading: Callable[[], AbstractContextManager[None]]) -> IO[bytes]:
    """A file that can be read from any position, by few requests where it is read in order."""
    return cast("IO[bytes]", io.BufferedReader(StoreFile(native, reading), RANGE))
