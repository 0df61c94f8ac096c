"""Arrays on disk, read by position: a file that shrinks or lies costs an error, no more.

What a file says it holds is compared with its size before anything is read.
"""

from __future__ import annotations

import io
import json
import math
import weakref
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from credibly.errors import CrediblyError, FileFormatError

if TYPE_CHECKING:
    from credibly.io.places import Place  # it writes files, whose headers are read here

FIRST = 1 << 16
"""Bytes in which the header of a NumPy array must end; it is rarely longer than 128."""

LONGEST = 100_000_000
"""Bytes of the longest header of a safetensors file, as in the library itself."""

INFLATION = 1032
"""No deflated byte becomes more bytes than this."""

Kind = Literal["floating", "whole", "other"]

_KINDS: dict[str, Kind] = {"f": "floating", "i": "whole", "u": "whole", "b": "whole"}
_TYPES: dict[str, np.dtype[Any] | torch.dtype] = {
    "F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"),
    "BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I64": np.dtype("<i8"), "I32": np.dtype("<i4"), "I16": np.dtype("<i2"), "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"), "U32": np.dtype("<u4"), "U16": np.dtype("<u2"), "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}  # fmt: skip


@dataclass(frozen=True)
class Header:
    """The name, shape and type of an array in a file, and where its first byte is."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: Kind
    layout: np.dtype[Any] | torch.dtype | None  # None: a type that is not read
    offset: int
    by_columns: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.shape} {self.dtype}".strip()

    @property
    def item(self) -> int:
        """Bytes of one number."""
        return 0 if self.layout is None else self.layout.itemsize

    @property
    def width(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape[1:]) * self.item

    def decode(self, content: bytearray, rows: int) -> NDArray[Any] | Tensor:
        """Return the bytes of some rows as an array."""
        shape = (rows, *self.shape[1:])
        if isinstance(self.layout, torch.dtype):
            flat = torch.frombuffer(content, dtype=self.layout) if content else torch.empty(0)
            return flat.to(self.layout).reshape(shape)
        if self.layout is None or self.layout.hasobject:
            message = f"numbers of the type {self.dtype} are not read"
            raise ValueError(message)
        numbers: NDArray[Any] = np.frombuffer(content, self.layout)
        return numbers.reshape(shape, order="F" if self.by_columns else "C")

    def check(self, room: int) -> None:
        """Refuse an array that does not fit into the bytes there are."""
        needed = math.prod(self.shape) * self.item
        if min(self.shape, default=0) < 0 or needed > room:
            message = f"the array {self} needs {needed} bytes, and the file has {max(room, 0)}"
            raise ValueError(message)


def _open(path: Path | Place) -> IO[bytes]:
    return path.open("rb") if isinstance(path, Path) else path.open_input()


def _size(path: Path | Place) -> int:
    return path.stat().st_size if isinstance(path, Path) else path.size()


def npy_header(path: Path | Place) -> Iterator[Header]:
    """Read the header of a `.npy` file."""
    with _open(path) as file:
        if file.read(2) == b"PK":
            message = "it holds several arrays; name it .npz"
            raise ValueError(message)
        file.seek(0)
        header = _numpy_header("", file)
    header.check(_size(path) - header.offset)
    yield header


def npz_headers(path: Path | Place) -> Iterator[Header]:
    """Read the headers of all arrays of an `.npz` file."""
    size = _size(path)
    with _open(path) as file, zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.filename.endswith(".npy"):
                most = _largest(member, size)
                with archive.open(member) as content:
                    header = _numpy_header(member.filename.removesuffix(".npy"), content)
                header.check(min(member.file_size, most) - header.offset)
                yield header


def safetensors_headers(path: Path | Place) -> Iterator[Header]:
    """Read the headers of all tensors of a `.safetensors` file."""
    size = _size(path)
    with _open(path) as file:
        content = safetensors_content(file, size)
        begin = file.tell()
    for name in sorted(content.keys() - {"__metadata__"}):
        yield _tensor_header(name, content[name], begin, size)


def safetensors_content(file: IO[bytes], size: int) -> dict[str, Any]:
    """Read what the header of a `.safetensors` file of `size` bytes says; the tensors follow it."""
    length = int.from_bytes(file.read(8), "little")
    if length > min(size - 8, LONGEST):
        message = f"its header should have {length} bytes, and the file has {size}"
        raise ValueError(message)
    content = json.loads(file.read(length))
    if not isinstance(content, dict):
        message = f"its header is a JSON {type(content).__name__}"
        raise ValueError(message)  # noqa: TRY004  # what is wrong is the file
    return content


def _tensor_header(name: str, facts: Any, begin: int, size: int) -> Header:
    first, last = map(int, facts["data_offsets"])
    shape, dtype = tuple(map(int, facts["shape"])), str(facts["dtype"])
    kind: Kind = "whole" if dtype.startswith(("I", "U", "BOOL")) else "other"
    kind = "floating" if dtype.startswith(("F", "BF")) else kind
    header = Header(name, shape, dtype, kind, _TYPES.get(dtype), begin + first)
    header.check(min(last - first, size - header.offset) if first >= 0 else -1)
    return header


def _largest(member: zipfile.ZipInfo, archive: int) -> int:
    """Return how many bytes a member can hold at most, whatever it declares."""
    most = min(member.compress_size, archive)
    if member.compress_type == zipfile.ZIP_STORED:
        return most
    if member.compress_type == zipfile.ZIP_DEFLATED:
        return INFLATION * most
    message = f"{member.filename!r} is compressed in a way that np.savez_compressed does not use"
    raise ValueError(message)


def _numpy_header(name: str, file: IO[bytes]) -> Header:
    start = io.BytesIO(file.read(FIRST))  # not more, whatever length it declares
    version = np.lib.format.read_magic(start)
    if version == (1, 0):
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(start)
    elif version == (2, 0):
        shape, by_columns, dtype = np.lib.format.read_array_header_2_0(start)
    else:
        message = f"version {version} of the array format does not hold plain numbers"
        raise ValueError(message)
    kind = _KINDS.get(dtype.kind, "other")
    turned = by_columns and len(shape) > 1
    return Header(name, shape, str(dtype), kind, dtype, start.tell(), turned)


def npy_array(content: bytes) -> tuple[Header, NDArray[Any]]:
    """The array in the bytes of a `.npy` file, whatever its shape."""
    header = _numpy_header("", io.BytesIO(content))
    if header.kind == "other" or not isinstance(header.layout, np.dtype):
        message = f"numbers of the type {header.dtype} are not read"
        raise ValueError(message)
    header.check(len(content) - header.offset)
    numbers = np.frombuffer(content, header.layout, math.prod(header.shape), header.offset)
    return header, numbers.reshape(header.shape, order="F" if header.by_columns else "C")


PIECE = 1 << 20
"""Bytes read at a time, so that memory is taken for what is there and not for what is declared."""

_HEADERS = {".npy": npy_header, ".npz": npz_headers, ".safetensors": safetensors_headers}


class ArrayFile:
    """The arrays of a file; only the rows asked for are read.

    Nothing is mapped into memory: a mapped file that another program cuts short would end the
    process.
    """

    def __init__(self, path: Path | Place) -> None:
        self.path, self.suffix = path, path.suffix.lower()
        self._streams: dict[str, IO[bytes]] = {}
        with self._reading():
            self.headers = list(_HEADERS[self.suffix](path))

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrayFile, (self.path,)  # another process opens it again

    def rows(self, header: Header, start: int, stop: int) -> NDArray[Any] | Tensor:
        """Return the rows start <= row < stop of one array."""
        with self._reading():
            if self.suffix == ".npz":
                stream = self._streams.get(header.name) or self._open(header.name)
                return self._decode(stream, header, start, stop)
            with _open(self.path) as file:
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
        source = _open(self.path)
        weakref.finalize(self, source.close)
        archive = zipfile.ZipFile(source)
        weakref.finalize(self, archive.close)
        file = self._streams[name] = archive.open(f"{name}.npy")
        weakref.finalize(self, file.close)
        return file

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except CrediblyError:
            raise
        except Exception as error:  # damaged archives and headers raise errors of many kinds
            kind, reason = self.suffix.removeprefix("."), " ".join(str(error).split())
            raise FileFormatError(
                f"{self.path}: not a readable {kind} file ({reason or type(error).__name__})."
            ) from error


def as_numpy(values: NDArray[Any] | Tensor) -> NDArray[Any]:
    """Return an array of a type that NumPy knows."""
    return values if isinstance(values, np.ndarray) else values.float().numpy()
