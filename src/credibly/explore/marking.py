"""The marks of a file of verdicts while it is explored: kept in memory, and whole on the disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from credibly.errors import FileFormatError
from credibly.io.marks import Mark, Marked, read_marks, write_marks

SHORT: dict[str, Mark] = {"right": "right", "wrong": "wrong", "foreign": "does not belong"}
"""What the page calls the marks."""

About = Callable[[int], tuple[str, str]]
"""From the number of a row to its id and its class, as text."""


class MarkStore:
    """Marks by row; each change is written at once.

    Args:
        path: the file of marks; it is read if it exists.
        rows: how many rows there are.
        about: gives the id and the class of a row.
    """

    def __init__(self, path: Path, rows: int, about: About) -> None:
        self.path, self._rows, self._about = path, rows, about
        self._lock = threading.Lock()
        self._marks = read_marks(path) if path.exists() else {}
        for row, one in self._marks.items():
            if row >= rows or about(row)[0] != one.id:
                raise FileFormatError(
                    f"{path}: has a mark of row {row} with the id {one.id!r}, which the verdicts "
                    "do not have there. It belongs to other verdicts: move it away."
                )

    def put(self, row: Any, mark: Any) -> bool:
        """Set the mark of a row, or remove it (None); whether both made sense."""
        whole = isinstance(row, int) and not isinstance(row, bool)
        known = mark is None or (isinstance(mark, str) and mark in SHORT)
        if not whole or not 0 <= row < self._rows or not known:
            return False
        with self._lock:
            marks = dict(self._marks)
            marks.pop(row, None)
            if mark is not None:
                marks[row] = Marked(*self._about(row), SHORT[mark])
            write_marks(self.path, marks)
            self._marks = marks
        return True

    def listed(self) -> list[tuple[int, str]]:
        """Row and mark of each, as the page calls them."""
        names = {mark: name for name, mark in SHORT.items()}
        return [(row, names[one.mark]) for row, one in sorted(self._marks.items())]
