"""Files of inputs, read in pieces: `open_source` finds the reader, `Source` is what it gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from torch import Tensor

from credibly.errors import FileFormatError, InvalidArgumentError
from credibly.model.classifier import Classifier
from credibly.types import real_number, whole_number

Ids = list[int] | list[str] | list[str | None] | list[int | None]
Mode = Literal["grey", "rgb"]

ARRAYS = (".npy", ".npz", ".safetensors")
TABLES = (".csv", ".tsv", ".parquet")


class Source(ABC):
    """Rows of inputs on disk. Only the rows asked for are held in memory.

    Attributes:
        path: the file or folder.
        kind: what it is, in a word.
        shape: shape of one input.
        id_type: 'int64' or 'string'.
        files: whether every row is a file of its own, so that NaN means one that cannot be read.
    """

    path: Path
    kind: str
    shape: tuple[int, ...]
    id_type: Literal["int64", "string"] = "int64"
    files: bool = False
    _rows: int

    def __len__(self) -> int:
        return self._rows

    def read(self, start: int, stop: int) -> tuple[Ids, Tensor]:
        """Ids and inputs (n, ...) of the rows start <= row < stop; `stop` may lie beyond the end.

        Rows that cannot be read as numbers are NaN.
        """
        first, last = whole_number(start), whole_number(stop)
        if first is None or last is None or not 0 <= first <= last:
            raise InvalidArgumentError(
                "start, stop",
                expected="whole numbers with 0 <= start <= stop",
                got=f"{start!r}, {stop!r}",
                remedy=f"The source has {len(self)} rows.",
            )
        return self._take(min(first, len(self)), min(last, len(self)))

    @abstractmethod
    def _take(self, start: int, stop: int) -> tuple[Ids, Tensor]:
        """The rows of a range that lies inside."""

    def for_model(self, clf: Classifier) -> Source:  # noqa: ARG002
        """The same rows as the model takes them: columns that it knows by name in its order.

        A table whose columns are not those of the model (of its fit, or of its `Space`) is refused.
        Arrays and images have no names and are what they are.
        """
        return self

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 of the bytes on disk, in hex."""

    @abstractmethod
    def options(self) -> dict[str, object]:
        """What was asked of the reader, and what it chose."""

    def describe(self) -> dict[str, object]:
        """What is read and how, in words and numbers that JSON can hold."""
        return {
            "kind": self.kind,
            "name": self.path.name,
            "rows": len(self),
            "shape": list(self.shape),
            **self.options(),
        }

    def _limit(self, rows: int, limit: int | None) -> None:
        """Fix the number of rows; an empty source is refused here."""
        if rows < 1:
            raise FileFormatError(f"{self.path}: holds no rows.")
        self._rows = rows if limit is None else min(rows, limit)


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
        key: which array of an `.npz` or `.safetensors` file. A single floating array needs none.
        columns: the numeric columns of a table that are the features, in the model's order. By
            default all but the id column and the dropped ones. A model that was fitted on a table,
            or whose `Space` names its columns, takes them by name, in whatever order they stand.
        id_column: column of a table that names the rows; by default they are numbered from 0.
        drop: columns of a table that are not features, such as the label.
        size: (height, width) to which images are resized, or one number for squares.
        mode: 'grey' or 'rgb' for images; by default as the files are.
        scale: numbers in arrays are divided by it. Arrays of whole numbers need it (255 for
            bytes, 1 to take them as they are): it is asked, never guessed. Images are always
            divided by what their files call white.
        limit: at most so many rows, from the start.
    """
    path = Path(path)
    _check_options(scale, limit, mode)
    own = {
        "key": key, "columns": columns, "id_column": id_column, "drop": drop or None,
        "size": size, "mode": mode, "scale": scale,
    }  # fmt: skip
    if path.is_dir():
        from credibly.io.images import ImageFolder

        _refuse_others(own, {"size", "mode"}, "a folder of images")
        return ImageFolder(path, size=size, mode=mode, limit=limit)
    if not path.is_file():
        raise FileFormatError(f"{path}: no such file or folder.")
    suffix = path.suffix.lower()
    if suffix in TABLES:
        from credibly.io.tables import open_table

        _refuse_others(own, {"columns", "id_column", "drop"}, "a table")
        return open_table(path, columns=columns, id_column=id_column, drop=drop, limit=limit)
    if suffix in ARRAYS:
        from credibly.io.arrays import open_array

        allowed = {"scale"} if suffix == ".npy" else {"scale", "key"}
        _refuse_others(own, allowed, f"a file of the format {suffix}")
        return open_array(path, key=key, scale=scale, limit=limit)
    raise FileFormatError(
        f"{path}: unknown format {suffix or 'without an ending'!r}; credibly reads "
        f"{', '.join((*ARRAYS, *TABLES))} and folders of images."
    )


def _check_options(scale: object, limit: object, mode: object) -> None:
    number = real_number(scale)
    if scale is not None and (number is None or not 0 < number < float("inf")):
        raise InvalidArgumentError(
            "scale",
            expected="a positive number that the values are divided by",
            got=repr(scale),
            remedy="Pass 255 for bytes in [0, 255].",
        )
    if limit is not None and (whole_number(limit) is None or limit < 1):  # type: ignore[operator]
        raise InvalidArgumentError(
            "limit",
            expected="a whole number >= 1",
            got=repr(limit),
            remedy="Leave it out for all.",
        )
    if mode not in (None, "grey", "rgb"):
        raise InvalidArgumentError(
            "mode", expected="'grey' or 'rgb'", got=repr(mode), remedy="Leave it out for as is."
        )


def _refuse_others(given: Mapping[str, object], allowed: set[str], what: str) -> None:
    """An option that would be ignored is a misunderstanding: say so."""
    for name, value in given.items():
        if value is not None and name not in allowed:
            raise InvalidArgumentError(
                name,
                expected=f"only {', '.join(sorted(allowed))} with {what}",
                got=repr(value),
                remedy="Leave it out.",
            )
