"""Datasets of Hugging Face on disk, as `save_to_disk` wrote them, read without that library."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from credibly._validation import require
from credibly.errors import FileFormatError
from credibly.io.arrays import as_floats
from credibly.io.arrow_files import ArrowFile
from credibly.io.columns import (
    choose_columns,
    id_type,
    in_order_of_model,
    plain_type,
    plain_values,
)
from credibly.io.file_set import FileSet
from credibly.io.images import common_shape
from credibly.io.nested import array_of
from credibly.io.pixels import Mode, Shape, pixels_of, shape_of, size_pair
from credibly.io.source import Ids, Kept, Source, Where
from credibly.model.batches import column_names
from credibly.model.classifier import Classifier
from credibly.types import CPU

STATE, INFO, SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"

TRIED = 64
"""Images whose shapes are compared when the dataset is opened."""


def is_saved_dataset(folder: Where) -> bool:
    """Whether `save_to_disk` wrote this folder; one of several splits is refused."""
    if (folder / SPLITS).exists():
        raise FileFormatError(
            f"{folder}: a dataset of several splits. Name one of them, such as {folder}/test."
        )
    return (folder / STATE).exists() and (folder / INFO).exists()


class SavedDataset(FileSet):
    """Rows of a column of arrays or images, or of several columns of numbers.

    Attributes:
        columns: of numbers: the features.
    """

    def __init__(
        self,
        path: Where,
        *,
        key: str | None = None,
        columns: Sequence[str] | None = None,
        id_column: str | None = None,
        label: str | None = None,
        drop: Sequence[str] = (),
        size: int | tuple[int, int] | None = None,
        mode: Mode | None = None,
        scale: float | None = None,
        limit: int | None = None,
    ) -> None:
        if not isinstance(path, Path):
            raise FileFormatError(
                f"{path}: a saved dataset is read from a disk only. Copy it, or write Parquet: "
                "dataset.to_parquet(...)."
            )
        self.path, self.kind, self.label = path, "saved dataset", label
        self.scale, self.size, self.mode, self.id_column = scale, size_pair(size), mode, id_column
        self._root, self._names, self._kept = path, _files_of(path), Kept()
        self._files = [ArrowFile(path / name) for name in self._names]
        self._starts = [0, *accumulate(file.rows for file in self._files)]
        self._schema = self._files[0].schema
        self._limit(self._starts[-1], limit)
        self._choose(key, columns, drop)
        if label is not None:
            self.label_type = plain_type(self._schema, label, "label")
        self.id_type = id_type(self._schema, id_column)
        self.files = self._images
        self.shape = self._common_shape()

    def options(self) -> dict[str, object]:
        return {
            "input": self._key,
            "columns": list(self.columns) if self._key is None else None,
            "id_column": self.id_column,
            "size": None if self.size is None else list(self.size),
            "mode": self.mode,
            "scale": self.scale,
            "files": len(self._names),
        }

    def for_model(self, clf: Classifier) -> Source:
        names = column_names(clf)
        if names is None or self._key is not None:
            return self
        own = in_order_of_model(self.path, self._schema.names, self.columns, names)
        given = {k: v for k, v in self.spec.items() if k not in ("path", "drop")}
        ordered = SavedDataset(Path(str(self.path)), **{**given, "columns": own})
        ordered.spec = {**given, "path": str(self.path), "columns": list(own)}
        return ordered

    def _choose(self, key: str | None, columns: Sequence[str] | None, drop: Sequence[str]) -> None:
        """Find the inputs: the column named, the only one of arrays or images, or all numbers."""
        names, schema = self._schema.names, self._schema
        other = {self.label, self.id_column, *drop}
        deep = [name for name in names if name not in other and _is_deep(schema.field(name).type)]
        listed = f"a column of arrays or images: {', '.join(deep) or 'there is none'}"
        remedy = "One alone would be taken by itself; of a table name the --columns."
        require(key is None or key in names, "key", listed, repr(key), "Check the spelling.")
        require(len(deep) < 2 or bool(key or columns), "key", listed, "none", remedy)
        self._key = key or (deep[0] if deep and not columns else None)
        self._images = self._key is not None and _is_image(schema.field(self._key).type)
        taken = columns if self._key is None else [self._key]
        self.columns = choose_columns(
            self.path, names, taken, id_column=self.id_column, drop=drop, label=self.label
        )
        plain = self._key is None and self.scale is not None
        require(
            not plain, "scale", "none for columns of numbers", repr(self.scale), "Leave it out."
        )

    def _common_shape(self) -> Shape:
        if self._key is None:
            return (len(self.columns),)
        first = self._table(0, min(TRIED, len(self)), [self._key]).column(0)
        if self._images:
            seen = (shape_of(_content(v), self.mode, self.size) for v in first.to_pylist())
            return common_shape(self.path, ((f"row {n}", s) for n, s in enumerate(seen)))
        found = self._numbers(self._key, first)
        whole = found.dtype.kind in "iub"
        expected = "a number to divide the whole numbers by, as the model was trained"
        remedy = "Pass scale=255 (--scale 255) for bytes that become [0, 1], or scale=1."
        got = f"none, for the column {self._key!r}"
        require(not whole or self.scale is not None, "scale", expected, got, remedy)
        return tuple(found.shape[1:])

    def _take(self, start: int, stop: int) -> tuple[Ids, Tensor]:
        own = [name for name in (self.id_column, self.label) if name is not None]
        table = self._table(start, stop, list(dict.fromkeys([*self.columns, *own])))
        if self.label is not None:
            self._kept.keep(start, stop, plain_values(table.column(self.label), self.label_type))
        ids: list[Any] = list(range(start, stop))
        if self.id_column is not None:
            ids = plain_values(table.column(self.id_column), self.id_type)
        return ids, self._inputs(table)

    def _labels(self, start: int, stop: int) -> list[Any]:
        kept = self._kept.take(start, stop)
        if kept is not None:
            return kept
        assert self.label is not None  # noqa: S101
        return plain_values(self._table(start, stop, [self.label]).column(0), self.label_type)

    def _inputs(self, table: Any) -> Tensor:
        if self._key is None:
            columns = [self._numbers(name, table.column(name)) for name in self.columns]
            return torch.from_numpy(np.stack(columns, axis=1).astype(np.float64))
        column = table.column(self._key)
        if self._images:
            rows = torch.full((len(column), *self.shape), torch.nan, device=CPU)
            for row, value in zip(rows, column.to_pylist(), strict=True):
                pixels = pixels_of(_content(value), self.mode, self.size)
                if pixels is not None and pixels.shape == row.shape:
                    row.copy_(pixels)
            return rows
        found = self._numbers(self._key, column)
        if found.shape[1:] != self.shape:
            if len(found):
                raise FileFormatError(
                    f"{self.path}: the arrays of {self._key!r} differ: {found.shape[1:]} and "
                    f"{self.shape}."
                )
            found = found.reshape(0, *self.shape)
        x = as_floats(found)
        return x if self.scale is None else x / self.scale

    def _numbers(self, name: str, column: Any) -> Any:
        try:
            return array_of(column)
        except FileFormatError as error:
            raise FileFormatError(f"{self.path}: the column {name!r} holds {error}.") from error

    def _table(self, start: int, stop: int, columns: list[str]) -> Any:
        import pyarrow as pa

        if start >= stop:
            return self._schema.empty_table().select(columns)
        return pa.concat_tables(self._pieces(start, stop, columns))

    def _pieces(self, start: int, stop: int, columns: list[str]) -> Iterator[Any]:
        """Read the files in which the rows are."""
        for number in range(len(self._files))[self.stamped(start, stop)]:
            begin = self._starts[number]
            yield from self._files[number].pieces(max(start - begin, 0), stop - begin, columns)


def _files_of(folder: Path) -> list[str]:
    """The names of the files of a saved dataset."""
    try:
        state = json.loads((folder / STATE).read_text("utf-8"))
        names = [Path(str(file["filename"])).name for file in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileFormatError(
            f"{folder / STATE}: not that of a saved dataset ({error})."
        ) from error
    if state.get("_indices_data_files"):
        raise FileFormatError(
            f"{folder}: rows in another order than in its files, of an old version of datasets. "
            "Load it, flatten_indices(), and save it again."
        )
    if not names:
        raise FileFormatError(f"{folder}: holds no rows.")
    return names


def _is_image(kind: Any) -> bool:
    import pyarrow as pa

    named = pa.types.is_struct(kind) and {kind.field(n).name for n in range(kind.num_fields)}
    return bool(named == {"bytes", "path"})


def _is_deep(kind: Any) -> bool:
    """Whether values are arrays or images."""
    return hasattr(kind, "value_type") or hasattr(kind, "storage_type") or _is_image(kind)


def _content(value: Mapping[str, Any] | None) -> bytes | Path:
    """The bytes of an image, or where it is."""
    if value is None:
        return b""
    content: bytes | None = value["bytes"]
    return content if content is not None else Path(str(value["path"] or ""))
