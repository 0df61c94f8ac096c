"""One run at a time on one output: a lock that the system releases, however a run ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from credibly.batch.shards import writing
from credibly.errors import OutputError


@contextmanager
def locked(path: Path, out: Path) -> Iterator[None]:
    """Hold a lock on `path` while work on `out` is done, or say that another run does.

    The file is removed while it is still locked: a run that has opened it by then finds that it is
    gone, and no third one can hold it.
    """
    with writing(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not _acquired(handle) or not _still_there(handle, path):
            raise OutputError(
                f"another run is working on {out}",
                remedy="Wait for it, stop it, or choose another output.",
            )
        try:
            yield
        finally:
            _removed(handle, path)
    finally:
        os.close(handle)  # releases the lock


def _removed(handle: int, path: Path) -> None:
    if _still_there(handle, path):  # else it may be the lock of the next run by now
        with suppress(OSError):  # some systems keep a file that is open
            path.unlink()


def _acquired(handle: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _still_there(handle: int, path: Path) -> bool:
    """Whether the file is the very one that was opened, and not removed by a run that finished."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
