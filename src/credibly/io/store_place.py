"""A file or folder of an object store, or of any file system that pyarrow can be given."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from credibly.errors import CrediblyError, FileFormatError, OutputError
from credibly.io.places import FileFacts, Place
from credibly.io.store_file import buffered

AT_ONCE, COPYABLE = 64 << 20, 5 << 30
"""Bytes that are sent in one go, and the largest object that stores copy among themselves."""

_CREDENTIALS = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY|INVALID_CLIENT_TOKEN|SIGNATURE|EXPIRED|UNRECOGNIZED_CLIENT|"
    r"MISSING_AUTH|403|Forbidden|credential|Unauthori[sz]ed|PERMISSION_DENIED|UNAUTHENTICATED",
    re.IGNORECASE,
)
_NETWORK = re.compile(
    r"NETWORK_CONNECTION|TIMEOUT|timed out|resolve host|Could(n't| not) connect|curlCode|"
    r"UNAVAILABLE|Connection refused|Name or service",
    re.IGNORECASE,
)
_BUCKET = re.compile(r"NO_SUCH_BUCKET|bucket does not exist|Bucket .* not found", re.IGNORECASE)


@dataclass(frozen=True)
class StorePlace(Place):
    """A file or folder of a store.

    Attributes:
        uri: as it was named, without options.
        system: the file system of pyarrow.
        path: of the file in it.
    """

    uri: str
    system: Any
    path: str

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, name: str) -> Place:
        inner = f"{self.path.rstrip('/')}/{name}"
        return StorePlace(f"{self.uri.rstrip('/')}/{name}", self.system, inner)

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> Place:
        uri, path = self.uri.rstrip("/"), self.path.rstrip("/")
        return StorePlace(uri.rpartition("/")[0], self.system, path.rpartition("/")[0])

    def facts(self) -> FileFacts | None:
        found = self._info()
        return _facts(found, self.name) if found.is_file else None

    def stamp(self) -> tuple[int, ...]:
        found = self.facts()
        if found is None:
            raise FileFormatError(f"{self}: {self._missing()}")
        return (found.size, found.changed)

    def is_folder(self) -> bool:
        from pyarrow import fs

        return bool(self._info().type == fs.FileType.Directory)

    def open_input(self) -> IO[bytes]:
        with self._reading():
            return buffered(self.system.open_input_file(self.path), self._reading)

    def list(self) -> Iterator[FileFacts]:
        from pyarrow import fs

        base = self.path.rstrip("/")
        with self._reading():
            found = self.system.get_file_info(fs.FileSelector(base, recursive=True))
        for info in found:
            if info.is_file:
                yield _facts(info, info.path.removeprefix(base).lstrip("/"))

    def write_whole(self, content: bytes) -> None:
        with self._writing():
            self._send(self.path, iter([content]))
            self._check(len(content))

    def upload(self, path: Path) -> None:
        """Copy a file of this machine here, completely or not at all.

        An object appears when its last byte has arrived. A large one is sent under another name
        first, since it would appear with half its bytes if the sending is interrupted.
        """
        size = path.stat().st_size
        aside = AT_ONCE < size <= COPYABLE
        sent = f"{self.path}.{os.getpid()}.tmp" if aside else self.path
        with self._writing(), path.open("rb") as file:
            try:
                self._send(sent, iter(lambda: file.read(AT_ONCE), b""))
                if aside:
                    self.system.move(sent, self.path)
            except BaseException:
                if size > AT_ONCE:
                    self._drop(sent)
                raise
            self._check(size)

    def delete(self) -> None:
        with self._writing():
            self._drop(self.path)

    def _send(self, path: str, pieces: Iterator[bytes]) -> None:
        if not _is_flat(self.system):
            self.system.create_dir(path.rpartition("/")[0], recursive=True)
        with self.system.open_output_stream(path) as stream:
            for piece in pieces:
                stream.write(piece)

    def _check(self, size: int) -> None:
        found = self.facts()
        if found is None or found.size != size:
            held = "nothing" if found is None else f"{found.size} bytes"
            raise OutputError(
                f"{self}: {size} bytes were sent, and the store has {held}",
                remedy="Run it again; another program may be writing there.",
            )

    def _drop(self, path: str) -> None:
        try:
            self.system.delete_file(path)
        except FileNotFoundError:
            return

    def _info(self) -> Any:
        with self._reading():
            return self.system.get_file_info(self.path.rstrip("/"))

    def _missing(self) -> str:
        return "no such file in the store. Check the bucket and the key; both are case-sensitive."

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except CrediblyError:
            raise
        except FileNotFoundError as error:
            raise FileFormatError(f"{self}: {self._missing()}") from error
        except Exception as error:  # file systems raise errors of many kinds
            reason, remedy = explain(error)
            raise FileFormatError(f"{self}: cannot be read ({reason}). {remedy}") from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except CrediblyError:
            raise
        except Exception as error:  # file systems raise errors of many kinds
            reason, remedy = explain(error)
            raise OutputError(f"{self} cannot be written: {reason}", remedy=remedy) from error


def _is_flat(system: Any) -> bool:
    """Whether folders need not be made: they are parts of names."""
    return system.type_name in ("s3", "gcs")


def _facts(info: Any, name: str) -> FileFacts:
    return FileFacts(name, int(info.size), int(info.mtime_ns or 0))


def explain(error: Exception) -> tuple[str, str]:
    """Return what a store says, shortened, and what to do."""
    text = " ".join(str(error).split())
    reason = re.sub(r" \(Request ID:[^)]*\)", "", text.partition(". Detail:")[0])[:200]
    if _BUCKET.search(text):
        return reason, "Check the name of the bucket; it is not made by this."
    if _CREDENTIALS.search(text):
        return f"refused: {reason}", (
            "Check the credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, "
            "GOOGLE_APPLICATION_CREDENTIALS) and that they may do this here."
        )
    if _NETWORK.search(text):
        return f"not reachable: {reason}", (
            "Check the network and the address (AWS_ENDPOINT_URL), then run it again; finished "
            "shards are kept."
        )
    return reason, "Run it again; finished shards are kept."
