"""`open_source`: files of inputs, read in pieces; arrays, tables and images as sources."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from credibly._validation import choice, positive, require, whole
from credibly.errors import FileFormatError
from credibly.io.array_files import ArrayFile, Header
from credibly.io.images import ImageFolder, Mode
from credibly.io.source import ARRAYS, TABLES, Ids, Source
from credibly.io.tables import Table


class ArraySource(Source):
    """One array of a file, numbered by row."""

    def __init__(
        self, path: Path, *, key: str | None, scale: float | None, limit: int | None
    ) -> None:
        self.path, self.kind, self.scale = path, path.suffix.lower()[1:], scale
        self.opened = self.stamp()
        self._file = ArrayFile(path)
        self.header = _choose(path, self._file.headers, key)
        self.shape = self.header.shape[1:]
        _check_array(path, self.header, scale)
        self._limit(self.header.shape[0], limit)

    def options(self) -> dict[str, object]:
        return {"array": self.header.name, "dtype": self.header.dtype, "scale": self.scale}

    def _take(self, start: int, stop: int) -> tuple[Ids, Tensor]:
        x = _as_floats(self._file.rows(self.header, start, stop))
        return list(range(start, stop)), x if self.scale is None else x / self.scale


def _as_floats(values: NDArray[Any] | Tensor) -> Tensor:
    """Convert to single or double precision, from any width and byte order."""
    if isinstance(values, np.ndarray):
        wide = values.dtype.itemsize > (4 if values.dtype.kind == "f" else 2)
        return torch.from_numpy(values.astype(np.float64 if wide else np.float32, "C"))
    wide = values.element_size() > (4 if values.is_floating_point() else 2)
    return values.to(torch.float64 if wide else torch.float32)


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
    if header.kind == "other" or header.layout is None:
        raise FileFormatError(
            f"{path}: the array {header} does not hold real numbers of a known type."
        )
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


__all__ = ["Source", "open_source"]


def open_source(
    path: str | Path,
    *,
    key: str | None = None,
    columns: Sequence[str] | None = None,
    id_column: str | None = None,
    drop: Sequence[str] = (),
    size: int | tuple[int, int] | None = None,
    mode: Mode | None = None,
    scale: float | None = None,
    limit: int | None = None,
) -> Source:
    """Open a file or folder of inputs; nothing in it is executed.

    Args:
        path: `.npy`, `.npz`, `.safetensors`, `.csv`, `.tsv`, `.parquet`, or a folder of images.
        key: which array of an `.npz` or `.safetensors` file; not needed for a single floating one.
        columns: the numeric columns of a table that are the features, in the model's order. By
            default all but the id column and the dropped ones. A model that was fitted on a table,
            or whose `Space` names its columns, takes them by name, in any order.
        id_column: column of a table that names the rows; by default they are numbered from 0.
        drop: columns of a table that are not features, such as the label.
        size: (height, width) to which images are resized, or one number for squares.
        mode: 'grey' or 'rgb' for images; by default as the files are.
        scale: numbers in arrays are divided by it. Arrays of whole numbers need it (255 for bytes,
            1 to take them as they are): it is never guessed. Images are always divided by what
            their files call white.
        limit: at most this many rows, from the start.

    Example:
        >>> import tempfile, numpy as np, credibly as cr
        >>> path = tempfile.mkdtemp() + "/x.npy"
        >>> np.save(path, np.eye(3))
        >>> ids, x = cr.open_source(path).read(0, 2)
        >>> ids, tuple(x.shape)
        ([0, 1], (2, 3))
    """
    path = Path(path)
    if scale is not None:
        positive("scale", scale, "Values are divided by it: pass 255 for bytes in [0, 255].")
    if limit is not None:
        whole("limit", limit, remedy="Leave it out for all.")
    if mode is not None:
        choice("mode", mode, ("grey", "rgb"), "Leave it out to keep the images as they are.")
    given = {
        "key": key, "columns": columns, "id_column": id_column, "drop": drop or None,
        "size": size, "mode": mode, "scale": scale,
    }  # fmt: skip
    suffix = path.suffix.lower()
    if path.is_dir():
        _refuse_others(given, ("mode", "size"), "a folder of images")
        return ImageFolder(path, size=size, mode=mode, limit=limit)
    if not path.is_file():
        raise FileFormatError(f"{path}: no such file or folder.")
    if suffix in TABLES:
        _refuse_others(given, ("columns", "drop", "id_column"), "a table")
        return Table(path, columns=columns, id_column=id_column, drop=drop, limit=limit)
    if suffix in ARRAYS:
        allowed = ("scale",) if suffix == ".npy" else ("key", "scale")
        _refuse_others(given, allowed, f"a file of the format {suffix}")
        return ArraySource(path, key=key, scale=scale, limit=limit)
    raise FileFormatError(
        f"{path}: unknown format {suffix or 'without an ending'!r}; credibly reads "
        f"{', '.join((*ARRAYS, *TABLES))} and folders of images."
    )


def _refuse_others(given: Mapping[str, object], allowed: Sequence[str], what: str) -> None:
    """Refuse an option that would be ignored."""
    for name, value in given.items():
        expected = f"only {', '.join(allowed)} with {what}"
        require(value is None or name in allowed, name, expected, repr(value), "Leave it out.")
