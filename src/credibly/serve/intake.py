"""From bodies to rows: JSON, NumPy's files without pickles, and images, checked and bounded."""

from __future__ import annotations

import io
import math
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from credibly._validation import require
from credibly.decide.judge import Judge
from credibly.errors import CrediblyError, InvalidArgumentError
from credibly.io.array_files import ArrayFile, Header, as_numpy
from credibly.io.arrays import as_floats
from credibly.io.columns import list_names
from credibly.io.pixels import channels_first
from credibly.model.batches import column_names
from credibly.serve.plain_json import array_of
from credibly.serve.refusal import RefusedError, in_words, late, of_error, refused, too_large
from credibly.serve.settings import Settings
from credibly.types import CPU, from_numpy

if TYPE_CHECKING:
    from credibly.io.places import Place

IMAGES = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
"""Kinds of images that are read; none of their decoders starts another program."""

MEMBERS = 64
"""Files in an archive, at most."""

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
            got = in_words(values) if values != [] else "an empty list"
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
            if not isinstance(row, dict):
                raise refused(argument, "columns by name", f"another row {number}", "See row 0.")
            lacks = [name for name in names if name not in row]
            odd = [str(name)[:40] for name in row if name not in names]
            if lacks or odd:
                told = [("lacks", lacks), ("has", odd)]
                parts = [f"{word} {list_names(some)}" for word, some in told if some]
                remedy = f"Its columns are {', '.join(names)}."
                got = f"row {number} that {' and '.join(parts)}"
                raise refused(argument, "every column once", got, remedy)
        return [[row[name] for name in names] for row in rows]

    def of_numpy(self, content: bytes, suffix: str, key: str | None = None) -> Tensor:
        """The bytes of an `.npy` or `.npz` file, in which nothing is pickled."""
        try:
            if suffix == ".npz":
                _check_members(content)
            file = ArrayFile(cast("Place", Upload(content, suffix)))
            header = _chosen(file.headers, key)
            self._check_header(header)
            return self.of_array(file.rows(header, 0, header.shape[0]))
        except InvalidArgumentError as error:
            raise of_error(error) from error
        except (CrediblyError, zipfile.BadZipFile) as error:
            saver = {".npy": "np.save", ".npz": "np.savez"}[suffix]
            remedy = f"Send what {saver} writes of an array of floating numbers."
            got = "bytes that cannot be read as one"
            raise refused("body", f"an {suffix} file of numbers", got, remedy) from error

    def _check_header(self, header: Header) -> None:
        """Refuse what would be too large, before it is unpacked."""
        good = header.kind != "other" and header.layout is not None and not header.by_columns
        remedy = "Save np.ascontiguousarray(x), of floating numbers, with np.save or np.savez."
        require(good, "inputs", "an array of numbers, by rows", f"the array {header}", remedy)
        self._check_shape(header.shape, "inputs")
        most = self.settings.body_of(self.shape)
        if header.shape[0] * header.width > most:
            raise too_large(f"The array {header}", f"{most} bytes", "Send fewer rows.")

    @property
    def takes_images(self) -> bool:
        """Whether rows are images, of one channel or three."""
        return self.shape is not None and len(self.shape) == 3 and self.shape[0] in (1, 3)

    def of_images(self, contents: Sequence[bytes], due: float = math.inf) -> Tensor:
        """Encoded images, one per row; none is begun after `due`, by `time.monotonic`."""
        if not self.takes_images:
            remedy = "Send numbers as JSON or as an .npy file."
            raise refused("inputs", "numbers", "an image, which this model does not take", remedy)
        self.check_count(len(contents))
        rows, room = [], self.settings.pixels
        for content in contents:
            if time.monotonic() > due:
                raise late()
            pixels, room = self._pixels(content, room)
            rows.append(pixels)
        return self.of_array(torch.stack(rows))

    def _pixels(self, content: bytes, room: int) -> tuple[Tensor, int]:
        """An image of at most `room` pixels, and how many are left to the others."""
        from PIL import Image

        channels, height, width = self.shape or (0, 0, 0)
        try:
            with Image.open(io.BytesIO(content), formats=IMAGES) as image:
                room = self._check_image(image.width, image.height, room)
                image.draft(None, (width, height)) if self.settings.resize else None
                size = (height, width) if self.settings.resize else None
                pixels = channels_first(image, "grey" if channels == 1 else "rgb", size)
                return pixels.to(CPU), room
        except RefusedError:
            raise
        except Image.DecompressionBombError as error:
            raise self._bomb() from error
        except Exception as error:  # decoders may raise anything
            got = "bytes that cannot be decoded"
            remedy = "Send the bytes of one image file."
            raise refused("image", f"an image ({', '.join(IMAGES)})", got, remedy) from error

    def _check_image(self, width: int, height: int, room: int) -> int:
        _, high, wide = self.shape or (0, 0, 0)
        if width * height > room:
            raise self._bomb()
        if not self.settings.resize and (height, width) != (high, wide):
            remedy = "Resize it, or start the service with --resize."
            raise refused("image", f"{wide} x {high} pixels", f"{width} x {height}", remedy)
        return room - width * height

    def _bomb(self) -> RefusedError:
        remedy = "Send fewer, or smaller ones."
        return too_large("What the images hold in all", f"{self.settings.pixels} pixels", remedy)


def _chosen(headers: Sequence[Header], key: str | None) -> Header:
    """The only array, or the one that is named."""
    named = {header.name: header for header in headers}
    require(bool(headers), "body", "an array", "a file without arrays", "Save one with np.savez.")
    listed = f"the name of one of the {len(headers)} arrays, {', '.join(named)}"[:200]
    if key is None:
        remedy = "Name it: ?key=NAME, or send a file with one array."
        require(len(headers) == 1, "key", listed, "no name", remedy)
        return headers[0]
    require(key in named, "key", listed, repr(key)[:80], "Check the spelling.")
    return named[key]


def _check_members(content: bytes) -> None:
    """Refuse an archive of very many files: the header of each would be read."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        count = len(archive.infolist())
    if count > MEMBERS:
        raise too_large(f"An archive of {count} files", f"{MEMBERS}", "Send the array alone.")
