"""Tables: CSV and Parquet, streamed in batches; missing values become NaN."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from credibly._extras import require_table_extra
from credibly.errors import FileFormatError
from credibly.io.columns import (
    choose_columns,
    id_type,
    in_order_of_model,
    plain_type,
    plain_values,
)
from credibly.io.source import Ids, Kept, Plain, Source, Where
from credibly.io.table_files import TableFile
from credibly.model.batches import column_names
from credibly.model.classifier import Classifier

_WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"
"""A whole number without leading zeros that 64 bits can hold."""


class Table(Source):
    """Some columns of a table as features, and perhaps one as the ids of the rows."""

    def __init__(
        self,
        path: Where,
        *,
        columns: Sequence[str] | None = None,
        id_column: str | None = None,
        drop: Sequence[str] = (),
        limit: int | None = None,
        label: str | None = None,
        known: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        require_table_extra("A table of inputs", pandas=False)
        self.path, self.kind, self.id_column = path, path.suffix.lower()[1:], id_column
        self.opened, self.label = self.stamp(), label
        self._file = TableFile(path)
        self.columns = choose_columns(
            path, self._file.names, columns, id_column=id_column, drop=drop, label=label
        )
        self.shape = (len(self.columns),)
        self._kept = Kept()
        self._rewind()
        self.id_type, self.label_type = known.get("types") or self._types()
        rows = known["rows"] if "rows" in known else self._count(limit)
        self._limit(rows, limit)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held": None, "_next": iter(())}  # another process reads anew

    def for_model(self, clf: Classifier) -> Source:
        names = column_names(clf)
        if names is None:
            return self
        ordered = copy(self)  # the rows are counted and checked already
        ordered.columns = in_order_of_model(self.path, self._file.names, self.columns, names)
        ordered._rewind()  # noqa: SLF001  # its own copy
        return ordered

    def options(self) -> dict[str, object]:
        return {"columns": list(self.columns), "id_column": self.id_column}

    def reopen_spec(self, folder: Path | None = None) -> dict[str, Any]:
        spec = super().reopen_spec(folder)
        spec["options"] |= {"columns": list(self.columns), "drop": []}
        return spec

    @property
    def names(self) -> list[str]:
        """All columns of the file."""
        return self._file.names

    def _known(self) -> dict[str, Any]:
        return {"rows": len(self), "types": [self.id_type, self.label_type]}

    def _types(self) -> tuple[Literal["int64", "string"], Plain]:
        """The types of ids and labels as the file tells them; words, at first, in CSV."""
        if self.kind != "parquet":
            return "string", "string"
        schema = self._file.schema
        label = "string" if self.label is None else plain_type(schema, self.label, "label")
        return id_type(schema, self.id_column), label

    def _count(self, limit: int | None) -> int:
        """Count the rows, and find a value that is not a number before any work is done."""
        if self._file.rows is not None:
            self._check_types()
            return self._file.rows
        rows, ids, labels = 0, True, self.label is not None
        for first, batch in self._batches(0):
            self._features(batch, first)
            rows = first + batch.num_rows
            used = batch if limit is None else batch.slice(0, limit - first)
            ids = ids and (self.id_column is None or self._is_whole(used, self.id_column))
            labels = labels and self._is_whole(used, str(self.label))
            if limit is not None and rows >= limit:
                break
        self.id_type = "int64" if ids else "string"  # as the same ids of a Parquet file
        self.label_type = "int64" if labels else "string"
        return rows

    def _is_whole(self, batch: Any, column: str) -> bool:
        """Whether every word of a CSV file is a number that looks the same when written again."""
        from pyarrow import compute

        with self._file.reading():
            matches = compute.match_substring_regex(batch.column(column), _WHOLE)
            return bool(compute.all(matches, skip_nulls=False).as_py())

    def _check_types(self) -> None:
        import pyarrow as pa

        numeric = (
            pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal,
        )  # fmt: skip
        for name in self.columns:
            kind = self._file.schema.field(name).type
            if not any(holds(kind) for holds in numeric):
                value = self._first_value(name)
                raise self._not_a_number(name, 0, value, f" (the column is {kind})")

    def _first_value(self, name: str) -> object:
        with self._file.reading():
            _, batch = next(self._file.batches([name]), (0, None))
            return batch.column(0)[0].as_py() if batch is not None and batch.num_rows else None

    def _rewind(self) -> None:
        self._held: tuple[int, Any] | None = None
        self._next: Iterator[tuple[int, Any]] = iter(())

    def _batches(self, start: int) -> Iterator[tuple[int, Any]]:
        others = [name for name in (self.id_column, self.label) if name is not None]
        return self._file.batches(list(dict.fromkeys([*self.columns, *others])), start)

    def _take(self, start: int, stop: int) -> tuple[Ids, Tensor]:
        ids: list[Any] = []
        labels: list[Any] = []
        parts, row = [np.empty((0, len(self.columns)))], start
        while row < stop:
            first, batch = self._holding(row)
            end = min(stop, first + batch.num_rows)
            rows = batch.slice(row - first, end - row)
            ids += self._ids(rows, row)
            if self.label is not None:
                labels += self._words(rows, self.label, self.label_type)
            parts.append(self._features(rows, row))
            row = end
        if self.label is not None:
            self._kept.keep(start, stop, labels)
        return ids, torch.from_numpy(np.concatenate(parts))

    def _labels(self, start: int, stop: int) -> list[Any]:
        again = copy(self)  # what reads ahead in another thread is not disturbed
        while (kept := self._kept.take(start, stop)) is None:
            again._rewind()  # noqa: SLF001  # its own copy
            again._take(start, stop)  # noqa: SLF001
        return kept

    def _holding(self, row: int) -> tuple[int, Any]:
        """Return the batch that holds a row; the last one is kept for the next call."""
        end = 0 if self._held is None else self._held[0] + self._held[1].num_rows
        if self._held is None or row < self._held[0] or self._file.start_of(row) > end:
            self._held, self._next = None, self._batches(row)
        while self._held is None or row >= self._held[0] + self._held[1].num_rows:
            self._held = next(self._next, None)
            if self._held is None:
                raise FileFormatError(f"{self.path}: became shorter while it was read.")
        return self._held

    def _ids(self, batch: Any, first: int) -> list[Any]:
        if self.id_column is None:
            return list(range(first, first + batch.num_rows))
        return self._words(batch, self.id_column, self.id_type)

    def _words(self, batch: Any, column: str, kind: str) -> list[Any]:
        with self._file.reading():
            return plain_values(batch.column(column), kind)

    def _features(self, batch: Any, first: int) -> Any:
        """Return the features of a batch (n, d) in double precision; missing ones are NaN."""
        import pyarrow as pa

        table = np.empty((batch.num_rows, len(self.columns)))
        for k, name in enumerate(self.columns):
            column = batch.column(name)
            try:
                table[:, k] = _as_double(column)
            except pa.ArrowInvalid:
                raise self._first_that_is_no_number(name, column, first) from None
        return table

    def _first_that_is_no_number(self, name: str, column: Any, first: int) -> FileFormatError:
        with self._file.reading():  # a word may be in another encoding
            bad = next(n for n in range(len(column)) if not _is_number(column.slice(n, 1)))
            return self._not_a_number(name, first + bad, column[bad].as_py())

    def _not_a_number(self, name: str, row: int, value: object, also: str = "") -> FileFormatError:
        typed = shlex.quote(name)
        return FileFormatError(
            f"{self.path}: expected numbers, but the column {name!r} holds {value!r} in data row "
            f"{row} (counted from 0){also}. Drop the column (--drop {typed}), name it as the id "
            f"(--id {typed}), or encode it as numbers; leave a cell without a value empty."
        )


def _as_double(column: Any) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_string(column.type):
        column = compute.utf8_trim_whitespace(column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    column = column.cast(pa.float64(), safe=not pa.types.is_integer(column.type))
    return column.to_numpy(zero_copy_only=False)


def _is_number(column: Any) -> bool:
    import pyarrow as pa

    try:
        _as_double(column)
    except pa.ArrowInvalid:
        return False
    return True
