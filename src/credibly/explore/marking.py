"""The marks of a file of verdicts while it is explored: each change is on the disk at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from credibly.errors import FileFormatError
from credibly.io.files import writing
from credibly.io.marks import Mark, Marked, read_marks, write_marks

SHORT: dict[str, Mark] = {"right": "right", "wrong": "wrong", "foreign": "does not belong"}
"""What the page calls the marks."""

About = Callable[[int], tuple[str, str]]
"""From the number of a row to its id and its class, as text."""


class MarkStore:
    """Marks by row. Each change is written at once, after what others wrote has been read.

    A mark of a class that the row no longer has stays in the file, where a Judge can learn from it,
    and is not shown: it says nothing of today's class. What does not belong belongs to no class.

    Args:
        path: the file of marks; it is read if it exists.
        rows: how many rows there are.
        about: gives the id and the class of a row.
    """

    def __init__(self, path: Path, rows: int, about: About) -> None:
        self.path, self._rows, self._about = path, rows, about
        self._thread = threading.Lock()
        self._read()

    def put(self, row: Any, mark: Any) -> bool:
        """Set the mark of a row, or remove it (None); whether both made sense."""
        whole = isinstance(row, int) and not isinstance(row, bool)
        known = mark is None or (isinstance(mark, str) and mark in SHORT)
        if not whole or not 0 <= row < self._rows or not known:
            return False
        with self._thread, self._held():
            marks = self._read()
            marks.pop(row, None)
            if mark is not None:
                marks[row] = Marked(*self._about(row), SHORT[mark])
            write_marks(self.path, marks)
        return True

    def listed(self) -> list[tuple[int, str]]:
        """Row and mark of each that counts, as the page calls them."""
        names = {mark: name for name, mark in SHORT.items()}
        marks = sorted(self._read().items())
        return [(row, names[one.mark]) for row, one in marks if self._counts(row, one)]

    @property
    def stale(self) -> int:
        """How many are of another class than the row has now."""
        return sum(not self._counts(row, one) for row, one in self._read().items())

    def _counts(self, row: int, one: Marked) -> bool:
        return one.mark == "does not belong" or one.predicted == self._about(row)[1]

    def _read(self) -> dict[int, Marked]:
        """The marks as the file has them now; those of other verdicts are refused."""
        marks = read_marks(self.path) if self.path.is_file() else {}
        for row, one in marks.items():
            if row >= self._rows or self._about(row)[0] != one.id:
                raise FileFormatError(
                    f"{self.path}: has a mark of row {row} with the id {one.id!r}, which the "
                    "verdicts do not have there. It belongs to other verdicts: move it away."
                )
        return marks

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Keep other servers of the same file from writing meanwhile."""
        lock = FileLock(self.path.with_name(f"{self.path.name}.lock"), timeout=10)
        with writing(self.path):
            lock.acquire()  # a Timeout is an OSError, too
        try:
            yield
        finally:
            # removed while still locked; filelock gives no lock on a file that was removed
            with suppress(OSError):
                Path(lock.lock_file).unlink()
            lock.release()
