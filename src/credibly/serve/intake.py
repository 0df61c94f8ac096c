"""From bodies to rows: JSON, NumPy's files without pickles, and images, checked and bounded."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from credibly._validation import require
from credibly.decide.judge import Judge
from credibly.errors import CrediblyError
from credibly.io.array_files import ArrayFile, Header, as_numpy
from credibly.io.arrays import as_floats
from credibly.io.pixels import channels_first
from credibly.model.batches import column_names
from credibly.serve.refusal import RefusedError, of_error, refused, too_large
from credibly.serve.settings import Settings
from credibly.types import CPU, from_numpy

if TYPE_CHECKING:
    from credibly.io.places import Place

IMAGES = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
"""Kinds of images that are read; none of their decoders starts another program."""

_FLOATING = {"f"}
_WHOLE = {"i", "u"}


@dataclass(frozen=True)
class Upload:
    """The content of a body, read like a file."""

    content: bytes
    suffix: str
    name: str = "the body"

    def open_input(self) -> io.BytesIO:
        """Open it."""
        return io.BytesIO(self.content)

    def size(self) -> int:
        """How many bytes there are."""
        return len(self.content)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Intake:
    """Which rows are taken, and how they are read.

    Attributes:
        shape: of one row; None if the Judge does not know it.
        dtype: of the model.
        whole: whether rows are whole numbers, such as token ids.
        names: of the columns of a table.
        settings: the limits.
    """

    shape: tuple[int, ...] | None
    dtype: torch.dtype
    whole: bool
    names: tuple[str, ...] | None
    settings: Settings

    @classmethod
    def of(cls, judge: Judge, settings: Settings) -> Intake:
        """What a Judge takes."""
        clf, inputs = judge.examiner.clf, judge.typicality.inputs
        shape = None if inputs is None else inputs.shape
        names = column_names(clf)
        names = names if shape is not None and names and len(names) == shape[0] else None
        dtype = clf.dtype or torch.get_default_dtype()
        return cls(shape, dtype, inputs is None and clf.module is not None, names, settings)

    @property
    def row_bytes(self) -> int:
        """Of one row; of an unknown shape what a body can hold."""
        size = torch.empty((), dtype=self.dtype).element_size()
        if self.shape is None:
            return size << 18
        return size * math.prod(self.shape)

    def of_array(self, values: NDArray[Any] | Tensor, argument: str = "inputs") -> Tensor:
        """An array as rows, if it has the shape, the kind of numbers and the range."""
        self._check_shape(tuple(values.shape), argument)
        rows = self._as_numbers(values, argument)
        self._check_range(rows, argument)
        return rows

    def check_count(self, count: int) -> None:
        """Refuse too many rows, or none."""
        if count < 1:
            raise refused("inputs", "at least one row", "none", "Send rows (n, ...).")
        most = self.settings.rows
        if count > most:
            raise too_large(f"A request of {count} rows", f"{most}", "Send several requests.")

    def _check_shape(self, shape: tuple[int, ...], argument: str) -> None:
        expected = "(n, ...)" if self.shape is None else f"(n, {', '.join(map(str, self.shape))})"
        if self.shape is not None and shape == self.shape:
            remedy = "Wrap a single row: the first axis counts rows."
            raise refused(argument, f"rows {expected}", f"shape {shape}", remedy)
        good = shape[1:] == self.shape if self.shape else math.prod(shape[1:] or (0,)) > 0
        if not good:
            remedy = "Bring rows into the shape of those that the Judge was fitted on."
            raise refused(argument, f"rows {expected}", f"shape {shape}", remedy)
        self.check_count(shape[0])

    def _as_numbers(self, values: NDArray[Any] | Tensor, argument: str) -> Tensor:
        kind = "f" if isinstance(values, Tensor) else values.dtype.kind
        if kind in _FLOATING and not self.whole:
            return as_floats(values).to(self.dtype)
        if kind in _WHOLE and self.whole:
            return from_numpy(as_numpy(values)).long()
        if kind in _WHOLE and self.settings.scale is not None:
            return as_floats(values).to(self.dtype) / self.settings.scale
        expected = "whole numbers" if self.whole else "floating numbers"
        remedy = (
            "Send what the model takes, such as token ids."
            if self.whole
            else "Send numbers as the model was trained on, or start the service with --scale, "
            "which divides whole numbers."
        )
        raise refused(argument, expected, str(getattr(values, "dtype", "")), remedy)

    def _check_range(self, rows: Tensor, argument: str) -> None:
        bounds = self.settings.bounds
        if bounds is None:
            return
        known = rows[rows.isfinite()]
        if len(known) and (float(known.min()) < bounds[0] or float(known.max()) > bounds[1]):
            found = f"{float(known.min()):.4g} to {float(known.max()):.4g}"
            remedy = "Bring them into the units that the model was trained on."
            raise refused(argument, f"numbers in {bounds[0]:g} to {bounds[1]:g}", found, remedy)

    def of_lists(self, values: Any, argument: str = "inputs") -> Tensor:
        """Nested lists of numbers, or mappings of columns, as rows."""
        if not isinstance(values, list) or not values:
            got = f"{type(values).__name__}" if values != [] else "an empty list"
            raise refused(argument, "a list of rows", got, 'For example {"inputs": [[0.5, 1.5]]}.')
        if isinstance(values[0], dict):
            values = self._in_order(values, argument)
        found = array_of(values, argument)
        # numbers in JSON have no type: 1 and 1.0 are the same to most that write it
        return self.of_array(found if self.whole else found.astype(np.float64), argument)

    def _in_order(self, rows: Sequence[Any], argument: str) -> list[list[Any]]:
        """The columns of a table in the order of the model."""
        names = self.names
        if names is None:
            remedy = "Send lists of numbers: this model does not know names of columns."
            raise refused(argument, "rows as lists", "rows by name", remedy)
        for number, row in enumerate(rows):
            if not isinstance(row, dict) or row.keys() != set(names):
                remedy = f"Its columns are {', '.join(names)}."
                raise refused(argument, "every column once", f"others in row {number}", remedy)
        return [[row[name] for name in names] for row in rows]

    def of_numpy(self, content: bytes, suffix: str, key: str | None = None) -> Tensor:
        """The bytes of an `.npy` or `.npz` file, in which nothing is pickled."""
        try:
            file = ArrayFile(cast("Place", Upload(content, suffix)))
            header = _chosen(file.headers, key)
            self._check_header(header)
            return self.of_array(file.rows(header, 0, header.shape[0]))
        except CrediblyError as error:
            raise of_error(error) from error

    def _check_header(self, header: Header) -> None:
        """Refuse what would be too large, before it is unpacked."""
        good = header.kind != "other" and header.layout is not None and not header.by_columns
        remedy = "Save np.ascontiguousarray(x), of floating numbers, with np.save or np.savez."
        require(good, "inputs", "an array of numbers, by rows", f"the array {header}", remedy)
        self._check_shape(header.shape, "inputs")
        most = self.settings.body_of(self.shape)
        if header.shape[0] * header.width > most:
            raise too_large(f"The array {header}", f"{most} bytes", "Send fewer rows.")

    def of_images(self, contents: Sequence[bytes]) -> Tensor:
        """Encoded images, one per row."""
        shape = self.shape or ()
        if len(shape) != 3 or shape[0] not in (1, 3):
            remedy = "Send numbers as JSON or as an .npy file."
            raise refused("inputs", "numbers", "an image, which this model does not take", remedy)
        self.check_count(len(contents))
        return self.of_array(torch.stack([self._pixels(content) for content in contents]))

    def _pixels(self, content: bytes) -> Tensor:
        from PIL import Image

        channels, height, width = self.shape or (0, 0, 0)
        try:
            with Image.open(io.BytesIO(content), formats=IMAGES) as image:
                self._check_image(image.width, image.height)
                image.draft(None, (width, height)) if self.settings.resize else None
                size = (height, width) if self.settings.resize else None
                pixels = channels_first(image, "grey" if channels == 1 else "rgb", size)
                return pixels.to(CPU)
        except RefusedError:
            raise
        except Image.DecompressionBombError as error:
            raise self._bomb() from error
        except Exception as error:  # decoders may raise anything
            got = "bytes that cannot be decoded"
            remedy = "Send the bytes of one image file."
            raise refused("image", f"an image ({', '.join(IMAGES)})", got, remedy) from error

    def _check_image(self, width: int, height: int) -> None:
        _, high, wide = self.shape or (0, 0, 0)
        if width * height > self.settings.pixels:
            raise self._bomb()
        if not self.settings.resize and (height, width) != (high, wide):
            remedy = "Resize it, or start the service with --resize."
            raise refused("image", f"{wide} x {high} pixels", f"{width} x {height}", remedy)

    def _bomb(self) -> RefusedError:
        return too_large("An image", f"{self.settings.pixels} pixels", "Send a smaller one.")


def array_of(values: Any, argument: str = "inputs") -> NDArray[Any]:
    """Nested lists of numbers as an array; texts, objects and ragged lists are refused."""
    try:
        found = np.array(values)
    except (ValueError, OverflowError, RecursionError) as error:
        remedy = "All rows must have the same shape."
        raise refused(
            argument, "numbers in a regular shape", "lists that differ", remedy
        ) from error
    if found.dtype.kind not in "fiu":
        remedy = "Send numbers alone: no text, no null, no true."
        raise refused(argument, "numbers", f"something else ({found.dtype})", remedy)
    return found


def parsed(content: bytes) -> dict[str, Any]:
    """The JSON object in a body."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        remedy = "Send a JSON object in UTF-8, with the header Content-Type: application/json."
        raise refused("body", "JSON", "something that cannot be read as JSON", remedy) from error
    if not isinstance(found, dict):
        remedy = 'For example {"inputs": [[0.5, 1.5]]}.'
        raise refused("body", "a JSON object", f"a JSON {type(found).__name__}", remedy)
    return found


def flag(content: Mapping[str, Any], name: str) -> bool:
    """A true or false that may be left out."""
    value = content.get(name, False)
    if not isinstance(value, bool):
        raise refused(name, "true or false", type(value).__name__, "Leave it out for false.")
    return value


def _chosen(headers: Sequence[Header], key: str | None) -> Header:
    """The only array, or the one that is named."""
    named = {header.name: header for header in headers}
    listed = f"one of the arrays {', '.join(named)}" if headers else "an array"
    if key is None:
        remedy = "Name it: ?key=NAME, or send a file with one array."
        require(len(headers) == 1, "key", listed, f"none of {len(headers)}", remedy)
        return headers[0]
    require(key in named, "key", listed, repr(key)[:80], "Check the spelling.")
    return named[key]
