"""Read the IDX format, in which MNIST and Fashion-MNIST are published."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from credibly.errors import FileFormatError

_UNSIGNED_BYTE = 0x08
_MOST_DIMENSIONS = 32  # what every NumPy can hold
_LARGEST = 1 << 31
"""Bytes; a header that announces more is a damaged file, not a data set."""


def find_idx(name: str, folders: Sequence[Path], *, remedy: str) -> Path:
    """Return the first file of this name, gzipped or not, in some folders."""
    places = [folder / (name + end) for folder in folders for end in ("", ".gz")]
    for path in places:
        if path.exists():
            return path
    where = " nor in ".join(str(folder) for folder in folders)
    raise FileNotFoundError(f"neither {name} nor {name}.gz is in {where}. {remedy}")


def read_idx(path: str | Path) -> NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, gzipped or not."""
    return parse_idx(idx_bytes(path), name=str(path))


def idx_bytes(path: str | Path) -> bytes:
    """Return the bytes of an IDX file, unzipped: published checksums are of these."""
    content = Path(path).read_bytes()
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise FileFormatError(f"{path}: not a readable gzip file ({error}).") from error


def parse_idx(content: bytes, *, name: str) -> NDArray[np.uint8]:
    """Turn the bytes of an IDX file into an array; `name` appears in errors."""
    shape, offset = _header(content, name)
    expected = int(np.prod(shape, dtype=np.int64))
    if len(content) - offset != expected:
        raise FileFormatError(
            f"{name}: the IDX header announces {expected} bytes for shape {shape}, but "
            f"{len(content) - offset} follow. The file is cut short or damaged: fetch it again."
        )
    return np.frombuffer(content, np.uint8, offset=offset).reshape(shape)


def _header(content: bytes, name: str) -> tuple[tuple[int, ...], int]:
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTE:
        raise FileFormatError(
            f"{name}: not an IDX file of unsigned bytes; it starts with {content[:4].hex()!r} "
            "and not with '000008' and the number of dimensions."
        )
    dimensions = content[3]
    offset = 4 + 4 * dimensions
    if dimensions == 0 or len(content) < offset:
        raise FileFormatError(f"{name}: the IDX header of {dimensions} dimensions is cut short.")
    shape = struct.unpack(f">{dimensions}I", content[4:offset])
    if dimensions > _MOST_DIMENSIONS or math.prod(max(size, 1) for size in shape) > _LARGEST:
        raise FileFormatError(
            f"{name}: the IDX header announces {dimensions} dimensions of an absurd shape {shape}."
        )
    return shape, offset
