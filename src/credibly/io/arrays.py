"""Arrays of files as sources."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from credibly._validation import require
from credibly.errors import FileFormatError
from credibly.io.array_files import ArrayFile, Header, as_numpy
from credibly.io.source import Ids, Plain, Source, Where


class ArraySource(Source):
    """One array of a file, numbered by row."""

    def __init__(
        self,
        path: Where,
        *,
        key: str | None = None,
        scale: float | None = None,
        label: str | None = None,
        limit: int | None = None,
    ) -> None:
        self.path, self.kind, self.scale = path, path.suffix.lower()[1:], scale
        self.opened, self.label = self.stamp(), label
        self._file = ArrayFile(path)
        self.header = _choose(path, self._file.headers, key)
        self.shape = self.header.shape[1:]
        _check_array(path, self.header, scale)
        if label is not None:
            self._open_labels(label)
        self._limit(self.header.shape[0], limit)

    def options(self) -> dict[str, object]:
        return {"array": self.header.name, "dtype": self.header.dtype, "scale": self.scale}

    def _take(self, start: int, stop: int) -> tuple[Ids, Tensor]:
        x = as_floats(self._file.rows(self.header, start, stop))
        return list(range(start, stop)), x if self.scale is None else x / self.scale

    def _open_labels(self, label: str) -> None:
        """Find the array of labels; it has its own open file, since it is read by itself."""
        self._label_file = ArrayFile(self.path)
        named = {header.name: header for header in self._file.headers}
        listed = f"one of the arrays in {self.path.name}: {'; '.join(map(str, named.values()))}"
        require(label in named and label != self.header.name, "label", listed, repr(label),
                "Check the spelling; it must not be the array of inputs.")  # fmt: skip
        self._label_header = found = named[label]
        if found.shape != self.header.shape[:1] or found.layout is None:
            raise FileFormatError(
                f"{self.path}: the array {found} is not one label for each of "
                f"{self.header.shape[0]} inputs."
            )
        kinds: dict[str, Plain] = {"whole": "int64", "floating": "double"}
        large = isinstance(found.layout, np.dtype) and found.layout.kind + str(found.item) == "u8"
        self.label_type = "string" if large else kinds.get(found.kind, "string")

    def _labels(self, start: int, stop: int) -> list[Any]:
        values = as_numpy(self._label_file.rows(self._label_header, start, stop))
        found: list[Any] = values.tolist()
        return found if self.label_type != "string" else [str(value) for value in found]


def as_floats(values: NDArray[Any] | Tensor) -> Tensor:
    """Convert to single or double precision, from any width and byte order."""
    if isinstance(values, np.ndarray):
        wide = values.dtype.itemsize > (4 if values.dtype.kind == "f" else 2)
        return torch.from_numpy(values.astype(np.float64 if wide else np.float32, "C"))
    wide = values.element_size() > (4 if values.is_floating_point() else 2)
    return values.to(torch.float64 if wide else torch.float32)


def _choose(path: Where, headers: list[Header], key: str | None) -> Header:
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


def _check_array(path: Where, header: Header, scale: float | None) -> None:
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
