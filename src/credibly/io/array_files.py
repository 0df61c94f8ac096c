"""Rows of arrays on disk, read by position: a file that shrinks or lies costs an error, no more."""

from __future__ import annotations

import weakref
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from credibly.errors import FileFormatError
from credibly.io.array_headers import Header, npy_header, npz_headers, safetensors_headers

PIECE = 1 << 20
"""Bytes read at a time, so that memory is taken for what is there and not for what is declared."""

_HEADERS = {".npy": npy_header, ".npz": npz_headers, ".safetensors": safetensors_headers}


class ArrayFile:
    """The arrays of a file; only the rows asked for are read.

    Nothing is mapped into memory: a mapped file that another program cuts short would end the
    process.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.suffix = path, path.suffix.lower()
        self._streams: dict[str, IO[bytes]] = {}
        with self._reading():
            self.headers = list(_HEADERS[self.suffix](path))

    def rows(self, header: Header, start: int, stop: int) -> NDArray[Any] | Tensor:
        """Return the rows start <= row < stop of one array."""
        with self._reading():
            if self.suffix == ".npz":
                stream = self._streams.get(header.name) or self._open(header.name)
                return self._decode(stream, header, start, stop)
            with self.path.open("rb") as file:
                return self._decode(file, header, start, stop)

    def _decode(
        self, file: IO[bytes], header: Header, start: int, stop: int
    ) -> NDArray[Any] | Tensor:
        count = stop - start
        if not header.by_columns:
            content = self._exactly(file, header.offset + start * header.width, count, header.width)
            return header.decode(content, count)
        content = bytearray()
        for first in range(0, header.shape[0] * header.width, header.shape[0] * header.item):
            content += self._exactly(
                file, header.offset + first + start * header.item, count, header.item
            )
        return header.decode(content, count)

    def _exactly(self, file: IO[bytes], offset: int, count: int, width: int) -> bytearray:
        """Read `count` times `width` bytes; fewer than that are an error."""
        content, wanted = bytearray(), count * width
        if wanted:
            file.seek(offset)
        while len(content) < wanted:
            piece = file.read(min(PIECE, wanted - len(content)))
            if not piece:
                raise FileFormatError(f"{self.path}: became shorter while it was read.")
            content += piece
        return content

    def _open(self, name: str) -> IO[bytes]:
        """Open an array of an archive for as long as this object lives."""
        archive = zipfile.ZipFile(self.path)
        weakref.finalize(self, archive.close)
        file = self._streams[name] = archive.open(f"{name}.npy")
        weakref.finalize(self, file.close)
        return file

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except FileFormatError:
            raise
        except Exception as error:  # damaged archives and headers raise errors of many kinds
            kind, reason = self.suffix.removeprefix("."), " ".join(str(error).split())
            raise FileFormatError(
                f"{self.path}: not a readable {kind} file ({reason or type(error).__name__})."
            ) from error


def as_numpy(values: NDArray[Any] | Tensor) -> NDArray[Any]:
    """Return an array of a type that NumPy knows."""
    return values if isinstance(values, np.ndarray) else values.float().numpy()
