"""Tables: CSV and Parquet, streamed in batches; missing values become NaN.

Also which columns are the features, and in which order the model takes them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from credibly._extras import require_table_extra
from credibly._validation import require
from credibly.errors import FileFormatError
from credibly.io.source import Ids, Source
from credibly.io.table_files import TableFile
from credibly.model.batches import column_names
from credibly.model.classifier import Classifier

_WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"
"""A whole number without leading zeros that 64 bits can hold."""


class Table(Source):
    """Some columns of a table as features, and perhaps one as the ids of the rows."""

    def __init__(
        self,
        path: Path,
        *,
        columns: Sequence[str] | None,
        id_column: str | None,
        drop: Sequence[str],
        limit: int | None,
    ) -> None:
        pa = require_table_extra("A table of inputs", pandas=False)
        self.path, self.kind, self.id_column = path, path.suffix.lower()[1:], id_column
        self.opened = self.stamp()
        self._file = TableFile(path)
        self.columns = choose_columns(path, self._file.names, columns, id_column, drop)
        self.shape = (len(self.columns),)
        if id_column is not None:
            whole = pa.types.is_integer(self._file.schema.field(id_column).type)
            self.id_type = "int64" if whole and self.kind == "parquet" else "string"
        self._rewind()
        self._limit(self._count(limit), limit)

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

    def _count(self, limit: int | None) -> int:
        """Count the rows, and find a value that is not a number before any work is done."""
        if self._file.rows is not None:
            self._check_types()
            return self._file.rows
        rows, whole = 0, self.id_column is not None
        for first, batch in self._batches(0):
            self._features(batch, first)
            rows = first + batch.num_rows
            used = batch if limit is None else batch.slice(0, limit - first)
            whole = whole and self._has_whole_ids(used)
            if limit is not None and rows >= limit:
                break
        if whole:  # as the same ids of a Parquet file
            self.id_type = "int64"
        return rows

    def _has_whole_ids(self, batch: Any) -> bool:
        """Whether every id of a CSV file is a number that looks the same when written again."""
        from pyarrow import compute

        with self._file.reading():
            matches = compute.match_substring_regex(batch.column(self.id_column), _WHOLE)
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
        ids = [] if self.id_column is None else [self.id_column]
        return self._file.batches(list(dict.fromkeys([*self.columns, *ids])), start)

    def _take(self, start: int, stop: int) -> tuple[Ids, Tensor]:
        ids: list[Any] = []
        parts = [np.empty((0, len(self.columns)))]
        while start < stop:
            first, batch = self._holding(start)
            end = min(stop, first + batch.num_rows)
            rows = batch.slice(start - first, end - start)
            ids += self._ids(rows, start)
            parts.append(self._features(rows, start))
            start = end
        return ids, torch.from_numpy(np.concatenate(parts))

    def _holding(self, row: int) -> tuple[int, Any]:
        """Return the batch that holds a row; the last one is kept for the next call."""
        if self._held is None or row < self._held[0]:
            self._held, self._next = None, self._batches(row)
        while self._held is None or row >= self._held[0] + self._held[1].num_rows:
            self._held = next(self._next, None)
            if self._held is None:
                raise FileFormatError(f"{self.path}: became shorter while it was read.")
        return self._held

    def _ids(self, batch: Any, first: int) -> list[Any]:
        if self.id_column is None:
            return list(range(first, first + batch.num_rows))
        with self._file.reading():
            found: list[Any] = batch.column(self.id_column).cast(self.id_type).to_pylist()
        return found

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


def choose_columns(
    path: Path,
    names: list[str],
    columns: Sequence[str] | None,
    id_column: str | None,
    drop: Sequence[str],
) -> tuple[str, ...]:
    """Return the columns asked for, or all but the id and the dropped ones."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FileFormatError(f"{path}: the column names {twice} appear more than once.")
    _refuse_numbers(path, names)
    ids = [] if id_column is None else [id_column]
    expected = f"columns of {path.name}: {', '.join(names)}"
    for argument, asked in (("id_column", ids), ("drop", drop), ("columns", columns or [])):
        for name in asked:
            require(name in names, argument, expected, repr(name), "Check the spelling.")
    chosen = [name for name in columns or names if name not in drop]
    if not columns:
        chosen = [name for name in chosen if name != id_column]
    require(bool(chosen), "columns", "at least one feature", "none", "Drop fewer columns.")
    return tuple(chosen)


def in_order_of_model(
    path: Path, present: Sequence[str], chosen: Sequence[str], names: Sequence[str]
) -> tuple[str, ...]:
    """Return the names of the model's columns if the chosen ones are exactly these."""
    missing = [name for name in names if name not in chosen]
    absent = [name for name in missing if name not in present]
    why = "lacks" if absent else "has, but not as features (--drop, --id, --columns, --labels),"
    require(
        not missing,
        "columns",
        f"the columns of the model: {list_names(names)}",
        f"{path.name}, which {why} {list_names(absent or missing)}",
        "Columns are found by name: give them the names they had when the model was fitted, or in "
        "its Space.",
    )
    extra = [name for name in chosen if name not in names]
    require(
        not extra,
        "columns",
        f"no features beside those of the model: {list_names(names)}",
        f"{list_names(extra)} in {path.name}, too",
        f"If they are not features, drop them: --drop {shlex.quote(','.join(extra))}."
        if "" not in extra
        else "A column without a name is the index that pandas wrote: write the file again with "
        "table.to_csv(..., index=False).",
    )
    return tuple(names)


def list_names(names: Sequence[str]) -> str:
    """List the first few names."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(map(repr, names[:8])) + more


def _refuse_numbers(path: Path, names: list[str]) -> None:
    """Refuse a first line of numbers, which is data, unless it counts the columns."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return
    if numbers not in ([*range(len(names))], [*range(1, len(names) + 1)]):
        raise FileFormatError(
            f"{path}: the first line, {','.join(names[:4])}..., looks like data. Add a line that "
            "names the columns."
        )
