"""The base of all readers of inputs, and a watch for inputs that change while they are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from torch import Tensor

from credibly._validation import require, whole_number
from credibly.errors import FileFormatError
from credibly.io.fingerprints import digest_of_file
from credibly.model.classifier import Classifier

Ids = list[int] | list[str] | list[str | None] | list[int | None]

ARRAYS = (".npy", ".npz", ".safetensors")
TABLES = (".csv", ".tsv", ".parquet")

Stamp = Sequence[int]
"""Size, times and number of a file. Another content has another stamp, nearly always."""


def stamp_of(path: Path) -> Stamp:
    """Return the stamp of a file."""
    found = path.stat()
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class Source(ABC):
    """Rows of inputs on disk. Only the rows asked for are held in memory.

    Attributes:
        path: the file or folder.
        kind: the format, in a word.
        shape: shape of one input.
        id_type: 'int64' or 'string'.
        files: whether every row is a file, so that a row of NaN is a file that cannot be read.
        opened: the stamp of the file when it was opened; None for a folder.
    """

    path: Path
    kind: str
    shape: tuple[int, ...]
    id_type: Literal["int64", "string"] = "int64"
    files: bool = False
    opened: Stamp | None = None
    _rows: int

    def __len__(self) -> int:
        return self._rows

    def read(self, start: int, stop: int) -> tuple[Ids, Tensor]:
        """Return ids and inputs (n, ...) of the rows start <= row < stop; `stop` may be too large.

        Rows that cannot be read as numbers are NaN.
        """
        first, last = whole_number(start), whole_number(stop)
        rows, wanted = len(self), "whole numbers with 0 <= start <= stop"
        good = first is not None and last is not None and 0 <= first <= last
        require(good, "start, stop", wanted, f"{start!r}, {stop!r}", f"There are {rows} rows.")
        return self._take(min(first or 0, rows), min(last or 0, rows))

    @abstractmethod
    def _take(self, start: int, stop: int) -> tuple[Ids, Tensor]:
        """Return the rows of a range that lies inside."""

    def for_model(self, clf: Classifier) -> Source:  # noqa: ARG002
        """Return the same rows with the columns in the model's order, if it knows them by name.

        A table whose columns are not those of the model (of its fit, or of its `Space`) is refused.
        Arrays and images have no names and stay as they are.
        """
        return self

    def stamp(self, start: int = 0, stop: int | None = None) -> Stamp:  # noqa: ARG002
        """Return what is cheap to know of the content of some rows.

        That is the stamp of the file, whichever rows; where every row is a file, a number per row.
        """
        try:
            return stamp_of(self.path)
        except OSError as error:
            raise FileFormatError(f"{self.path}: cannot be read ({error.strerror}).") from error

    def fingerprint(self) -> str:
        """Return the SHA-256 of the bytes on disk, in hex."""
        return digest_of_file(self.path)

    @abstractmethod
    def options(self) -> dict[str, object]:
        """Return the options of the reader, and what it chose."""

    def describe(self) -> dict[str, object]:
        """Return what is read and how, as JSON can hold it."""
        return {
            "kind": self.kind,
            "name": self.path.name,
            "rows": len(self),
            "shape": list(self.shape),
            **self.options(),
        }

    def _limit(self, rows: int, limit: int | None) -> None:
        """Set the number of rows; refuse an empty source."""
        if rows < 1:
            raise FileFormatError(f"{self.path}: holds no rows.")
        self._rows = rows if limit is None else min(rows, limit)


class Watch:
    """The content of a source as it was at the start.

    Attributes:
        digest: its fingerprint.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._stamp = source.stamp()  # before the digest: a change in between is then noticed
        if source.opened not in (None, self._stamp):
            raise FileFormatError(
                f"{source.path}: changed after it was opened. Open it again, once it is complete."
            )
        self.digest = source.fingerprint()

    def look(self, start: int, stop: int) -> None:
        """Refuse another content if sizes or times say that these rows may have changed."""
        known = self._stamp[start:stop] if self._source.files else self._stamp
        if self._source.stamp(start, stop) != known:
            self._stamp = self._source.stamp()
            self.compare()  # it may have been touched only

    def compare(self) -> None:
        """Refuse another content; the whole file is read."""
        if self._source.fingerprint() != self.digest:
            raise FileFormatError(
                f"{self._source.path}: changed while it was read, so nothing was written. Wait "
                "until it is complete, or work on a copy, and run it again."
            )
