"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Where to write what shall become `path` once all of it is there.

    An old file outlives a full disk. It keeps its mode, and a link goes on pointing to it. What is
    there and is no plain file, a pipe for instance, is written to itself: it must not be replaced.
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        yield target
        return
    aside = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        yield aside
        if target.exists():
            aside.chmod(stat.S_IMODE(target.stat().st_mode))
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
