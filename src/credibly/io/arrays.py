"""Arrays on disk: `.npy` (memory-mapped), `.npz` (streamed) and `.safetensors` (sliced)."""

from __future__ import annotations

import math
import weakref
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from credibly.errors import FileFormatError, InvalidArgumentError
from credibly.io.fingerprints import digest_of_file
from credibly.io.sources import Ids, Source

_KINDS = {"f": "floating", "i": "whole", "u": "whole", "b": "whole"}  # by NumPy's letters


@dataclass(frozen=True)
class _Header:
    """What a file says of one of its arrays."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str  # 'floating', 'whole' or 'other'

    def __str__(self) -> str:
        return f"{self.name} {self.shape} {self.dtype}".strip()


def open_array(path: Path, *, key: str | None, scale: float | None, limit: int | None) -> Source:
    """The source of an array file, by its ending."""
    if path.suffix.lower() == ".npy":
        return NpyArray(path, scale=scale, limit=limit)
    if path.suffix.lower() == ".npz":
        return NpzArray(path, key=key, scale=scale, limit=limit)
    return SafetensorsArray(path, key=key, scale=scale, limit=limit)


class _Array(Source):
    """What the three formats share: scale, ids by number, checks of shape and type."""

    def __init__(
        self, path: Path, kind: str, header: _Header, scale: float | None, limit: int | None
    ) -> None:
        self.path, self.kind, self.header = path, kind, header
        self.shape = header.shape[1:]
        self.scale = scale
        _check_array(path, header, scale)
        self._limit(header.shape[0], limit)

    def options(self) -> dict[str, object]:
        return {"array": self.header.name, "dtype": self.header.dtype, "scale": self.scale}

    def fingerprint(self) -> str:
        return digest_of_file(self.path)

    def _take(self, start: int, stop: int) -> tuple[Ids, Tensor]:
        x = self._values(start, stop)
        if x.dtype not in (torch.float32, torch.float64):
            wide = not x.is_floating_point() and x.element_size() > 2
            x = x.double() if wide else x.float()
        return list(range(start, stop)), x if self.scale is None else x / self.scale

    def _values(self, start: int, stop: int) -> Tensor:
        raise NotImplementedError


class NpyArray(_Array):
    """One NumPy array, memory-mapped."""

    def __init__(self, path: Path, *, scale: float | None, limit: int | None) -> None:
        try:
            self._array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise FileFormatError(f"{path}: not a readable .npy array ({error}).") from error
        if not isinstance(self._array, np.ndarray):
            self._array.close()
            raise FileFormatError(f"{path}: holds several arrays. Name it .npz.")
        super().__init__(path, "npy", _numpy_header("", self._array), scale, limit)

    def _values(self, start: int, stop: int) -> Tensor:
        return _tensor(self._array[start:stop])


class NpzArray(_Array):
    """One array of an `.npz` archive, decompressed only as far as rows are asked for."""

    def __init__(
        self, path: Path, *, key: str | None, scale: float | None, limit: int | None
    ) -> None:
        self._open: tuple[IO[bytes], int] | None = None
        found = _npz_headers(path)
        header = _choose(path, [entry[0] for entry in found], key)
        self._dtype, fortran = next(entry[1:] for entry in found if entry[0] == header)
        if fortran and len(header.shape) > 1:
            raise FileFormatError(
                f"{path}: the array {header.name!r} lies in Fortran order and cannot be streamed. "
                "Save it again through np.ascontiguousarray."
            )
        super().__init__(path, "npz", header, scale, limit)

    def _values(self, start: int, stop: int) -> Tensor:
        width = math.prod(self.shape) * self._dtype.itemsize
        try:
            file, offset = self._stream()
            file.seek(offset + start * width)
            content = file.read((stop - start) * width)
        except (zipfile.BadZipFile, OSError, EOFError, zlib.error) as error:
            raise FileFormatError(f"{self.path}: damaged ({error}).") from error
        if len(content) != (stop - start) * width:
            raise FileFormatError(f"{self.path}: the array {self.header.name!r} is cut short.")
        flat = np.frombuffer(content, self._dtype)
        return _tensor(flat.reshape(stop - start, *self.shape))

    def _stream(self) -> tuple[IO[bytes], int]:
        if self._open is None:
            archive = zipfile.ZipFile(self.path)  # open as long as this source
            file = archive.open(f"{self.header.name}.npy")
            weakref.finalize(self, _close, file, archive)
            _read_header(file)
            self._open = (file, file.tell())
        return self._open


class SafetensorsArray(_Array):
    """One tensor of a safetensors file, read by slices."""

    def __init__(
        self, path: Path, *, key: str | None, scale: float | None, limit: int | None
    ) -> None:
        from safetensors import SafetensorError, safe_open

        try:
            self._file = cast("Any", safe_open(path, "pt"))
            slices = {name: self._file.get_slice(name) for name in self._file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise FileFormatError(f"{path}: not a readable safetensors file ({error}).") from error
        headers = [
            _Header(name, tuple(part.get_shape()), part.get_dtype(), _torch_kind(part.get_dtype()))
            for name, part in slices.items()
        ]
        super().__init__(path, "safetensors", _choose(path, headers, key), scale, limit)

    def _values(self, start: int, stop: int) -> Tensor:
        part = self._file.get_slice(self.header.name)
        return cast("Tensor", part[start:stop])


def _close(*files: IO[bytes] | zipfile.ZipFile) -> None:
    for file in files:
        file.close()


def _numpy_header(name: str, array: NDArray[Any]) -> _Header:
    return _Header(name, array.shape, str(array.dtype), _KINDS.get(array.dtype.kind, "other"))


def _torch_kind(name: str) -> str:
    if name.startswith(("F", "BF")):
        return "floating"
    return "whole" if name.startswith(("I", "U", "BOOL")) else "other"


def _tensor(array: NDArray[Any]) -> Tensor:
    """A tensor of single or double precision, whatever width and byte order the file has."""
    wide = array.dtype.itemsize > (4 if array.dtype.kind == "f" else 2)
    return torch.from_numpy(array.astype(np.float64 if wide else np.float32))


def _npz_headers(path: Path) -> list[tuple[_Header, np.dtype[Any], bool]]:
    found = []
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".npy"):
                    with archive.open(name) as file:
                        shape, fortran, dtype = _read_header(file)
                    kind = _KINDS.get(dtype.kind, "other")
                    header = _Header(name.removesuffix(".npy"), shape, str(dtype), kind)
                    found.append((header, dtype, fortran))
    except (zipfile.BadZipFile, ValueError, EOFError, OSError) as error:
        raise FileFormatError(f"{path}: not a readable .npz archive ({error}).") from error
    return found


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    message = f"version {version} of the array format, which holds no plain numbers"
    raise ValueError(message)


def _choose(path: Path, headers: list[_Header], key: str | None) -> _Header:
    listed = "; ".join(map(str, headers)) or "no arrays"
    if key is not None:
        chosen = [header for header in headers if header.name == key]
        if not chosen:
            raise InvalidArgumentError(
                "key", expected=f"one of the arrays in {path.name}: {listed}", got=repr(key),
                remedy="Check the spelling.",
            )  # fmt: skip
        return chosen[0]
    batches = [header for header in headers if len(header.shape) > 1]
    floating = [header for header in batches if header.kind == "floating"]
    candidates = floating or batches
    if len(candidates) != 1:
        raise InvalidArgumentError(
            "key",
            expected=f"the name of one of the arrays in {path.name}: {listed}",
            got="none",
            remedy="Name the array of inputs; a single floating one would be taken by itself."
            if batches
            else "None of them is a batch (n, ...) with the sample axis first: make it one, "
            "x[None] of a single input, x[:, None] of single numbers.",
        )
    return candidates[0]


def _check_array(path: Path, header: _Header, scale: float | None) -> None:
    if len(header.shape) < 2 or math.prod(header.shape[1:]) == 0:
        raise FileFormatError(
            f"{path}: the array {header} is no batch (n, ...) with the sample axis first."
        )
    if header.kind == "other":
        raise FileFormatError(f"{path}: the array {header} does not hold real numbers.")
    if header.kind == "whole" and scale is None:
        raise InvalidArgumentError(
            "scale",
            expected="a number that whole numbers are divided by, as the model was trained",
            got=f"none, for the array {header} in {path.name}",
            remedy="Pass scale=255 (--scale 255) for bytes that become [0, 1], or scale=1 to take "
            "the numbers as they are. It is never guessed.",
        )
