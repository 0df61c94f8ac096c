"""Arrays on disk: `.npy` (memory-mapped), `.npz` (streamed) and `.safetensors` (sliced)."""

from __future__ import annotations

import math
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from credibly._validation import require
from credibly.errors import FileFormatError
from credibly.io.fingerprints import digest_of_file
from credibly.io.source import Ids, Source

_KINDS = {"f": "floating", "i": "whole", "u": "whole", "b": "whole"}  # by NumPy's letters
_UNREADABLE = (
    ValueError, TypeError, EOFError, OSError, zipfile.BadZipFile, zlib.error, SafetensorError,
)  # fmt: skip


@dataclass(frozen=True)
class Header:
    """The name, shape and type of an array in a file."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str  # 'floating', 'whole' or 'other'
    by_columns: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.shape} {self.dtype}".strip()


class ArrayFile:
    """The arrays of a file; only the rows asked for are read."""

    def __init__(self, path: Path) -> None:
        self.path, self.suffix = path, path.suffix.lower()
        self._stream: tuple[IO[bytes], int] | None = None
        with self._reading():
            self.headers = list(self._read_headers())

    def rows(self, header: Header, start: int, stop: int) -> NDArray[Any] | Tensor:
        """Return the rows start <= row < stop of one array; ask for one array only."""
        with self._reading():
            if self.suffix == ".npy":
                return cast("NDArray[Any]", self._array[start:stop])
            if self.suffix == ".safetensors":
                return cast("Tensor", self._tensors.get_slice(header.name)[start:stop])
            file, offset = self._stream = self._stream or self._open(header.name)
            dtype, shape = np.dtype(header.dtype), (stop - start, *header.shape[1:])
            width = math.prod(header.shape[1:]) * dtype.itemsize
            file.seek(offset + start * width)
            return np.frombuffer(file.read((stop - start) * width), dtype).reshape(shape)

    def _read_headers(self) -> Iterator[Header]:
        if self.suffix == ".npy":
            self._array = np.load(self.path, mmap_mode="r", allow_pickle=False)
            if not isinstance(self._array, np.ndarray):
                self._array.close()
                raise FileFormatError(f"{self.path}: holds several arrays. Name it .npz.")
            yield _numpy_header("", self._array.shape, self._array.dtype)
        elif self.suffix == ".npz":
            with zipfile.ZipFile(self.path) as archive:
                for name in archive.namelist():
                    if name.endswith(".npy"):
                        with archive.open(name) as file:
                            yield _read_header(name.removesuffix(".npy"), file)
        else:
            self._tensors = cast("Any", safe_open(self.path, "pt"))
            for name in self._tensors.keys():  # noqa: SIM118  # not a dict
                part = self._tensors.get_slice(name)
                yield _torch_header(name, tuple(part.get_shape()), part.get_dtype())

    def _open(self, name: str) -> tuple[IO[bytes], int]:
        """Open an array of an archive for as long as this object lives."""
        archive = zipfile.ZipFile(self.path)
        file = archive.open(f"{name}.npy")
        weakref.finalize(self, _close, file, archive)
        _read_header(name, file)
        return file, file.tell()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except _UNREADABLE as error:
            if isinstance(error, FileFormatError):
                raise
            kind = self.suffix.removeprefix(".")
            raise FileFormatError(f"{self.path}: not a readable {kind} file ({error}).") from error


class ArraySource(Source):
    """One array of a file, numbered by row."""

    def __init__(
        self, path: Path, *, key: str | None, scale: float | None, limit: int | None
    ) -> None:
        self._file = ArrayFile(path)
        self.path, self.kind, self.scale = path, path.suffix.lower()[1:], scale
        self.header = _choose(path, self._file.headers, key)
        self.shape = self.header.shape[1:]
        _check_array(path, self.header, scale)
        self._limit(self.header.shape[0], limit)

    def options(self) -> dict[str, object]:
        return {"array": self.header.name, "dtype": self.header.dtype, "scale": self.scale}

    def fingerprint(self) -> str:
        return digest_of_file(self.path)

    def _take(self, start: int, stop: int) -> tuple[Ids, Tensor]:
        x = _as_floats(self._file.rows(self.header, start, stop))
        return list(range(start, stop)), x if self.scale is None else x / self.scale


def _close(*files: IO[bytes] | zipfile.ZipFile) -> None:
    for file in files:
        file.close()


def _as_floats(values: NDArray[Any] | Tensor) -> Tensor:
    """Convert to single or double precision, from any width and byte order."""
    if isinstance(values, np.ndarray):
        wide = values.dtype.itemsize > (4 if values.dtype.kind == "f" else 2)
        return torch.from_numpy(values.astype(np.float64 if wide else np.float32))
    wide = values.element_size() > (4 if values.is_floating_point() else 2)
    return values.to(torch.float64 if wide else torch.float32)


def _read_header(name: str, file: IO[bytes]) -> Header:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, by_columns, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        message = f"version {version} of the array format does not hold plain numbers"
        raise ValueError(message)
    return _numpy_header(name, shape, dtype, by_columns=by_columns)


def _numpy_header(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], *, by_columns: bool = False
) -> Header:
    kind = _KINDS.get(dtype.kind, "other")
    return Header(name, shape, str(dtype), kind, by_columns and len(shape) > 1)


def _torch_header(name: str, shape: tuple[int, ...], dtype: str) -> Header:
    whole = "whole" if dtype.startswith(("I", "U", "BOOL")) else "other"
    return Header(name, shape, dtype, "floating" if dtype.startswith(("F", "BF")) else whole)


def _choose(path: Path, headers: list[Header], key: str | None) -> Header:
    listed = f"one of the arrays in {path.name}: {'; '.join(map(str, headers)) or 'no arrays'}"
    if key is not None:
        named = {header.name: header for header in headers}
        require(key in named, "key", listed, repr(key), "Check the spelling.")
        return named[key]
    if path.suffix.lower() == ".npy":
        return headers[0]
    batches = [header for header in headers if len(header.shape) > 1]
    candidates = [header for header in batches if header.kind == "floating"] or batches
    remedy = (
        "Name the array of inputs; a single floating one would be taken by itself."
        if batches
        else "None of them is a batch (n, ...) with the sample axis first: make it one, x[None] of "
        "a single input, x[:, None] of single numbers."
    )
    require(len(candidates) == 1, "key", f"the name of {listed}", "none", remedy)
    return candidates[0]


def _check_array(path: Path, header: Header, scale: float | None) -> None:
    if len(header.shape) < 2 or math.prod(header.shape[1:]) == 0:
        raise FileFormatError(
            f"{path}: the array {header} is not a batch (n, ...) with the sample axis first."
        )
    if header.kind == "other":
        raise FileFormatError(f"{path}: the array {header} does not hold real numbers.")
    if header.by_columns and path.suffix.lower() == ".npz":
        raise FileFormatError(
            f"{path}: the array {header.name!r} is in Fortran order and cannot be streamed. Save "
            "it again through np.ascontiguousarray."
        )
    require(
        header.kind != "whole" or scale is not None,
        "scale",
        "a number to divide the whole numbers by, as the model was trained",
        f"none, for the array {header} in {path.name}",
        "Pass scale=255 (--scale 255) for bytes that become [0, 1], or scale=1 to take the numbers "
        "as they are. It is never guessed.",
    )
