"""Files and folders by name, on this machine or in a store: read, listed, written whole.

`place_of("s3://bucket/data")` and `place_of("data")` have the same methods, so that what reads or
writes through a place does not know where it is.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from credibly.errors import FileFormatError
from credibly.io.files import RUN_AGAIN, whole_file, writing

PIECE = 1 << 20
"""Bytes read at a time where a file is only passed on."""

_URI = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]+):(?P<slashes>/{1,3})(?P<rest>.*)", re.DOTALL)
"""A name with a scheme; `Path` makes one slash of two. One letter is a drive of Windows."""


@dataclass(frozen=True)
class FileFacts:
    """What a listing tells of a file.

    Attributes:
        name: relative to the folder that was listed, with slashes.
        size: in bytes.
        changed: time of the last change in nanoseconds.
    """

    name: str
    size: int
    changed: int


class Place(ABC):
    """A file or folder, whether it exists or not. Places are values: equal names are equal places.

    Whatever cannot be read is a `FileFormatError`, whatever cannot be written an `OutputError`;
    both say what to do.

    Example:
        >>> import tempfile
        >>> from credibly.io.stores import place_of
        >>> folder = place_of(tempfile.mkdtemp())
        >>> (folder / "a.bin").write_whole(b"four")
        >>> [(file.name, file.size) for file in folder.list()], (folder / "a.bin").exists()
        ([('a.bin', 4)], True)
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The last part of the name."""

    @property
    @abstractmethod
    def parent(self) -> Place:
        """The folder it is in."""

    @abstractmethod
    def __truediv__(self, name: str) -> Place: ...

    @abstractmethod
    def facts(self) -> FileFacts | None:
        """Size and time of a file; None where there is no file."""

    @abstractmethod
    def stamp(self) -> tuple[int, ...]:
        """Numbers that nearly always change with the content of a file."""

    @abstractmethod
    def is_folder(self) -> bool:
        """Whether it is a folder; in a store, whether there is anything below this name."""

    @abstractmethod
    def open_input(self) -> IO[bytes]:
        """Open a file to be read from any position."""

    @abstractmethod
    def list(self) -> Iterator[FileFacts]:
        """List all files below a folder, at any depth, in no order; hidden temporary ones, too."""

    @abstractmethod
    def write_whole(self, content: bytes) -> None:
        """Write a file completely or not at all; one that was there is replaced."""

    @abstractmethod
    def upload(self, path: Path) -> None:
        """Copy a file of this machine here, completely or not at all."""

    @abstractmethod
    def delete(self) -> None:
        """Remove a file; nothing happens if there is none."""

    @property
    def suffix(self) -> str:
        """The ending of the name in lower case, with its dot."""
        return Path(self.name).suffix.lower()

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""
        return False

    def exists(self) -> bool:
        """Whether there is a file or folder."""
        return self.facts() is not None or self.is_folder()

    def size(self) -> int:
        """Bytes of a file that exists."""
        found = self.facts()
        if found is None:
            raise FileFormatError(f"{self}: no such file.")
        return found.size

    def read_whole(self) -> bytes:
        """Read all bytes of a file."""
        with self.open_input() as file:
            return file.read()

    def checksum(self) -> str:
        """Return the SHA-256 of the bytes, in hex; the file is streamed."""
        total = hashlib.sha256()
        with self.open_input() as file:
            while piece := file.read(PIECE):
                total.update(piece)
        return total.hexdigest()


@dataclass(frozen=True)
class LocalPlace(Place):
    """A file or folder of this machine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str) -> Place:
        return LocalPlace(self.path / name)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def parent(self) -> Place:
        return LocalPlace(self.path.parent)

    @property
    def is_local(self) -> bool:
        return True

    def facts(self) -> FileFacts | None:
        try:
            if not self.path.is_file():
                return None
            found = self.path.stat()
        except OSError:
            return None
        return FileFacts(self.path.name, found.st_size, found.st_mtime_ns)

    def stamp(self) -> tuple[int, ...]:
        try:
            found = self.path.stat()
        except OSError as error:
            raise FileFormatError(f"{self}: cannot be read ({error.strerror}).") from error
        return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def is_folder(self) -> bool:
        return self.path.is_dir()

    def open_input(self) -> IO[bytes]:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise FileFormatError(f"{self}: cannot be read ({error.strerror}).") from error

    def list(self) -> Iterator[FileFacts]:
        for found in self.path.rglob("*"):
            facts = LocalPlace(found).facts()
            if facts is not None:
                name = found.relative_to(self.path).as_posix()
                yield FileFacts(name, facts.size, facts.changed)

    def write_whole(self, content: bytes) -> None:
        self._make_folder()
        with whole_file(self.path) as aside:
            aside.write_bytes(content)

    def upload(self, path: Path) -> None:
        self._make_folder()
        with whole_file(self.path) as aside, path.open("rb") as file, aside.open("wb") as copy:
            while piece := file.read(PIECE):
                copy.write(piece)

    def delete(self) -> None:
        with writing(self.path, RUN_AGAIN):
            self.path.unlink(missing_ok=True)

    def _make_folder(self) -> None:
        with writing(self.path.parent):
            self.path.parent.mkdir(parents=True, exist_ok=True)


def uri_of(name: object) -> str | None:
    """Return a name as a URI with two slashes; None for a path of this machine.

    `Path("s3://bucket/x")` is `s3:/bucket/x`; it means the same.
    """
    found = _URI.fullmatch(str(name))
    if found is None or found["scheme"].lower() == "file":
        return None
    rest = re.sub(r"(?<==)(https?):/(?!/)", r"\1://", found["rest"])
    return f"{found['scheme'].lower()}://{rest.lstrip('/')}"


def local_path(name: Any) -> Path:
    """Return the path of this machine that a name or a `file://` URI means."""
    found = _URI.fullmatch(str(name))
    if found is not None and found["scheme"].lower() == "file":
        return Path("/" + found["rest"].lstrip("/"))
    return Path(name)


def full_name(where: Path | Place) -> str:
    """The one name of a file or folder, without links, on this machine or in a store."""
    path = where.path if isinstance(where, LocalPlace) else where
    return str(path.resolve() if isinstance(path, Path) else path).rstrip("/")


def is_below(folder: str, name: str) -> bool:
    """Whether a full name is that of a folder, or of something in it."""
    return f"{name}/".startswith(f"{folder}/")


def is_same_file(left: Path | Place, right: Path | Place) -> bool:
    """Whether two names on this machine are links to one file."""
    one, other = (w.path if isinstance(w, LocalPlace) else w for w in (left, right))
    if not (isinstance(one, Path) and isinstance(other, Path)):
        return False
    return one.exists() and other.exists() and one.samefile(other)
