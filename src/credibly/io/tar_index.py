"""What is in a tar file, and where: headers only, nothing is unpacked.

Links are not followed, names that lead out of a folder are refused, and no size is believed.
"""

from __future__ import annotations

import io
import json
import tarfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from credibly.errors import CrediblyError, FileFormatError
from credibly.io.places import PIECE
from credibly.io.source import Where, open_where

LONGEST = 1 << 20
"""Bytes of the longest name or other note in a header."""

LABEL = 1 << 16
"""Bytes of the largest member that holds a label."""


@dataclass(frozen=True)
class Member:
    """Where the bytes of a member are."""

    offset: int
    size: int


Sample = dict[str, Member]
"""The members of one key, by what follows the key: 'jpg', 'cls', 'seg.png'."""


class _Headers(io.RawIOBase):
    """Gives `tarfile` headers, but not gigabytes that a header asks to be read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= LONGEST:
            message = f"a header of {size} bytes"
            raise ValueError(message)
        return self._file.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


class TarShard:
    """A tar file of samples, read by position."""

    def __init__(self, where: Where) -> None:
        self.where = where
        try:
            self._file = open_where(where)
        except OSError as error:
            raise FileFormatError(f"{where}: cannot be read ({error.strerror}).") from error
        weakref.finalize(self, self._file.close)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def samples(self) -> dict[str, Sample]:
        """Find all members, by key, in the order of the keys in the file."""
        found: dict[str, Sample] = {}
        for name, member in self._members():
            folder, slash, base = name.rpartition("/")
            stem, dot, ending = base.partition(".")
            if not (stem and dot):  # a hidden file, or one of no kind
                continue
            sample = found.setdefault(f"{folder}{slash}{stem}", {})
            if ending.lower() in sample:
                raise self._bad(f"{name!r} is in it twice")
            sample[ending.lower()] = member
        return found

    def read(self, member: Member) -> bytes:
        """Read the bytes of a member."""
        self._file.seek(member.offset)
        content = self._file.read(member.size)
        if len(content) < member.size:
            raise FileFormatError(f"{self.where}: became shorter while it was read.")
        return content

    def label(self, member: Member | None, field: str | None) -> str | None:
        """The text of a member, or a field of its JSON; None where there is none."""
        if member is None:
            return None
        if member.size > LABEL:
            raise self._bad(f"a label of {member.size} bytes")
        text = self.read(member).decode("utf-8", "replace").strip()
        if field is None:
            return text
        try:
            value = json.loads(text)[field] if field else json.loads(text)
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            return None
        return None if value is None else _as_text(value)

    def _members(self) -> Iterator[tuple[str, Member]]:
        size = self._file.seek(0, io.SEEK_END)
        self._file.seek(0)
        try:
            with tarfile.TarFile(fileobj=_Headers(self._file), mode="r") as archive:
                kept: list[Any] = vars(archive)["members"]
                while (info := archive.next()) is not None:
                    kept.clear()  # else every header would be
                    if not info.isdir():
                        yield self._checked(info, size)
                self._check_end(archive.offset)
        except (CrediblyError, GeneratorExit):
            raise
        except Exception as error:  # damaged headers raise errors of many kinds
            reason = " ".join(str(error).split()) or type(error).__name__
            raise FileFormatError(f"{self.where}: not a readable tar file ({reason}).") from error

    def _checked(self, info: tarfile.TarInfo, size: int) -> tuple[str, Member]:
        name = info.name.removeprefix("./")
        if name.startswith("/") or ".." in name.split("/"):
            raise self._bad(f"the member {info.name!r} leads out of its folder")
        if not info.isreg() or info.issparse():
            raise self._bad(f"the member {info.name!r} is a link or no plain file")
        if info.offset_data + info.size > size or info.size < 0:
            raise self._bad(f"it ends before its member {info.name!r}")
        return name, Member(info.offset_data, info.size)

    def _check_end(self, offset: int) -> None:
        """`tarfile` takes a damaged header, and the end of a file cut short, for the end."""
        self._file.seek(offset)
        mark = self._file.read(tarfile.BLOCKSIZE)
        if any(mark):
            raise self._bad(f"a damaged header at byte {offset}")
        if len(mark) < tarfile.BLOCKSIZE:
            raise self._bad("it ends without its end mark: cut short?")
        while piece := self._file.read(PIECE):
            if any(piece):
                raise self._bad(
                    "more follows its end mark; tar files are joined with `tar --concatenate`, "
                    "not with `cat`"
                )

    def _bad(self, reason: str) -> FileFormatError:
        return FileFormatError(
            f"{self.where}: {reason}. Write this shard again, or leave it out of the pattern."
        )


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
