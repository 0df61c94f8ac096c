"""The base of all readers of inputs, and a watch for inputs that change while they are read."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Literal

from torch import Tensor

from credibly._validation import require, whole_number
from credibly.errors import FileFormatError
from credibly.io.fingerprints import digest_of_file, digest_of_parts
from credibly.io.places import Place, full_name, is_below, is_same_file
from credibly.model.classifier import Classifier

Ids = list[int] | list[str] | list[str | None] | list[int | None]

Where = Path | Place
"""A file, folder or glob of this machine, or one in a store; as text it is what the user named."""

Plain = Literal["int64", "double", "string"]
"""Types of columns that are carried from the input to the output, as Arrow calls them."""

ARRAYS = (".npy", ".npz", ".safetensors")
TABLES = (".csv", ".tsv", ".parquet")

KEPT = 16
"""Ranges whose labels are kept until they are asked for."""

PAUSE = 10.0
"""Seconds between two questions to a store whether it holds what it held."""

Stamp = Sequence[int]
"""Size, times and number of a file. Another content has another stamp, nearly always."""


def stamp_of(path: Where) -> Stamp:
    """Return the stamp of a file."""
    if isinstance(path, Place):
        return path.stamp()
    found = path.stat()
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@contextmanager
def naming(path: Where) -> Iterator[None]:
    """Turn an error of the file system into a `FileFormatError` that names the file."""
    try:
        yield
    except OSError as error:
        name = error.filename or path
        raise FileFormatError(f"{name}: cannot be read ({error.strerror}).") from error


class NoRowsError(FileFormatError):
    """A file without rows, which is no error among others."""


class Kept:
    """Labels of the rows just read, until they are asked for, perhaps by another thread."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[Any]] = {}

    def keep(self, start: int, stop: int, labels: list[Any]) -> None:
        """Keep them; the oldest of many are dropped."""
        while len(self._known) >= KEPT:
            self._known.pop(next(iter(self._known)), None)
        self._known[start, stop] = labels

    def take(self, start: int, stop: int) -> list[Any] | None:
        """Return and forget them."""
        return self._known.pop((start, stop), None)


def open_where(path: Where) -> IO[bytes]:
    """Open a file to be read."""
    return path.open_input() if isinstance(path, Place) else path.open("rb")


class Source(ABC):
    """Rows of inputs on disk or in a store. Only the rows asked for are held in memory.

    Attributes:
        path: the file or folder.
        kind: the format, in a word.
        shape: shape of one input.
        id_type: 'int64' or 'string'.
        files: whether every row is a file, so that a row of NaN is a file that cannot be read.
        opened: the stamp of the file when it was opened; None for a folder.
        label: what names the true classes in the data, which are carried along; None for none.
        label_type: their type, as Arrow calls it.
        spec: the arguments of `open_source` that gave it.
    """

    path: Where
    kind: str
    shape: tuple[int, ...]
    id_type: Literal["int64", "string"] = "int64"
    files: bool = False
    opened: Stamp | None = None
    label: str | None = None
    label_type: Plain = "string"
    spec: Mapping[str, Any] = MappingProxyType({})
    _rows: int

    def __len__(self) -> int:
        return self._rows

    def read(self, start: int, stop: int) -> tuple[Ids, Tensor]:
        """Return ids and inputs (n, ...) of the rows start <= row < stop; `stop` may be too large.

        Rows that cannot be read as numbers are NaN.
        """
        return self._take(*self._inside(start, stop))

    def carried(self, start: int, stop: int) -> dict[str, list[Any]]:
        """Return what goes into the output beside the ids of some rows: the `label`, if named.

        Asked for after `read` of the same rows, nothing is read twice.
        """
        return {} if self.label is None else {"label": self._labels(*self._inside(start, stop))}

    @property
    def carried_types(self) -> dict[str, Plain]:
        """The types of what is carried, the same for all rows."""
        return {} if self.label is None else {"label": self.label_type}

    def reads(self, where: Where) -> bool:
        """Whether a file is among those that are read here, or a folder holds one of them."""
        name = full_name(where)
        return any(
            is_below(name, full_name(own)) or is_same_file(where, own) for own in self._places()
        )

    def _places(self) -> Iterator[Where]:
        """The files that are read."""
        yield self.path

    @property
    def is_afar(self) -> bool:
        """Whether it is in a store, where every question costs time."""
        return isinstance(self.path, Place) and not self.path.is_local

    def reopen_spec(self, folder: Path | None = None) -> dict[str, Any]:  # noqa: ARG002
        """Return what `reopen_source` needs to open the same rows again, as JSON can hold it.

        Also in another process, where the path and the store mean the same.

        Args:
            folder: where a long list of files is written to, which is not listed again then. Keep
                it as long as the result is used.
        """
        return {"options": dict(self.spec), "known": self._known()}

    def _known(self) -> dict[str, Any]:
        """What was found at opening and costs time to find again."""
        return {}

    def _labels(self, start: int, stop: int) -> list[Any]:
        """Return the labels of a range that lies inside."""
        raise NotImplementedError

    def _inside(self, start: int, stop: int) -> tuple[int, int]:
        first, last = whole_number(start), whole_number(stop)
        rows, wanted = len(self), "whole numbers with 0 <= start <= stop"
        good = first is not None and last is not None and 0 <= first <= last
        require(good, "start, stop", wanted, f"{start!r}, {stop!r}", f"There are {rows} rows.")
        return min(first or 0, rows), min(last or 0, rows)

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

        That is the stamp of the file, whichever rows; for many files, numbers for those files that
        hold the rows.
        """
        with naming(self.path):
            return stamp_of(self.path)

    def stamped(self, start: int, stop: int) -> slice:  # noqa: ARG002
        """Return where in the stamp of all rows that of some rows is."""
        return slice(None)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the bytes on disk, in hex; of size and time in a store."""
        if self.is_afar:
            return digest_of_parts([("stored", str(list(self.stamp())))])
        return digest_of_file(str(self.path))

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
            **({} if self.label is None else {"label": self.label}),
            **self.options(),
        }

    def _limit(self, rows: int, limit: int | None) -> None:
        """Set the number of rows; refuse an empty source."""
        if rows < 1:
            raise NoRowsError(f"{self.path}: holds no rows.")
        self._rows = rows if limit is None else min(rows, limit)


@dataclass(frozen=True)
class Known:
    """What a `Watch` knows of the content, for one in another process.

    Attributes:
        stamp: of all rows.
        digest: the fingerprint.
    """

    stamp: Stamp
    digest: str


class Watch:
    """The content of a source as it was at the start.

    Args:
        source: what is watched.
        known: what a watch in another process knew; where its stamp differs, content is compared.

    Attributes:
        digest: its fingerprint.
    """

    def __init__(self, source: Source, known: Known | None = None) -> None:
        self._source = source
        self._looked = time.monotonic() if known is None else -PAUSE
        if known is not None:
            self._stamp, self.digest = known.stamp, known.digest
            return
        self._stamp = source.stamp()  # before the digest: a change in between is then noticed
        if source.opened not in (None, self._stamp):
            raise FileFormatError(
                f"{source.path}: changed after it was opened. Open it again, once it is complete."
            )
        self.digest = source.fingerprint()

    def known(self) -> Known:
        """Return what is known, to send it to another process."""
        return Known(self._stamp, self.digest)

    def look(self, start: int, stop: int) -> None:
        """Refuse another content if sizes or times say that these rows may have changed.

        A store is asked now and then only; `compare` asks it at the end.
        """
        if self._source.is_afar and time.monotonic() < self._looked + PAUSE:
            return
        known = self._stamp[self._source.stamped(start, stop)]
        if self._source.stamp(start, stop) != known:
            self._stamp = self._source.stamp()
            self.compare()  # it may have been touched only
        self._looked = time.monotonic()

    def compare(self) -> None:
        """Refuse another content; the whole file is read."""
        if self._source.fingerprint() != self.digest:
            raise FileFormatError(
                f"{self._source.path}: changed while it was read, so there is no result. Wait "
                "until it is complete, or work on a copy; then start again, with resume=False "
                "(--restart) if rows of before are left."
            )
