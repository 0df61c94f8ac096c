"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Where to write what shall become `path` once all of it is there.

    An old file outlives a full disk. It keeps its mode, and a link goes on pointing to it. What is
    there and must not be replaced, or cannot be, is written to itself.
    """
    if _stays(Path(path)):
        yield Path(path)
        return
    target = Path(path).resolve()
    aside = target.with_name(f"{target.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        yield aside
        with aside.open("rb+") as file:  # on the disk before it takes the place of the old one
            os.fsync(file.fileno())
        if target.exists():
            aside.chmod(stat.S_IMODE(target.stat().st_mode))
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)


def _stays(path: Path) -> bool:
    """A pipe for instance, a file that is write-protected, or one whose folder takes no others."""
    if not path.exists():
        return False
    if not path.is_file():
        return True
    target = path.resolve()
    return not (os.access(target, os.W_OK) and os.access(target.parent, os.W_OK))
