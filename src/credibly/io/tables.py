"""Tables: CSV and Parquet, streamed in batches; missing values become NaN."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from credibly.errors import FileFormatError, MissingExtraError
from credibly.io.columns import choose_columns, in_order_of_model
from credibly.io.fingerprints import digest_of_file
from credibly.io.source import Ids, Source
from credibly.model.classifier import Classifier
from credibly.model.tables import column_names

BLOCK = 1 << 20
"""Bytes of a CSV file parsed at a time."""

BATCH = 4096
"""Rows of a Parquet file decoded at a time."""


def require_table_extra(purpose: str = "A Parquet file of profiles", *, pandas: bool = True) -> Any:
    """Return pyarrow, or say that it or pandas is missing."""
    try:
        import pyarrow as pa

        if pandas:
            import pandas as pd  # noqa: F401
    except ImportError as error:
        package = error.name or "pyarrow"
        raise MissingExtraError(package=package, extra="table", purpose=purpose) from error
    return pa


class TableFile:
    """A CSV, TSV or Parquet file. Everything that is wrong with it is a `FileFormatError`.

    Attributes:
        names: of all columns.
        schema: the Arrow types; those of a CSV file are guesses from its first rows.
        rows: their number, or None for CSV, where it takes a pass through the file.
    """

    def __init__(self, path: str | Path) -> None:
        require_table_extra("A table", pandas=False)
        self.path = Path(path)
        suffix = self.path.suffix.lower()
        self._separator = "\t" if suffix == ".tsv" else ","
        self._parquet: Any = None
        self.rows: int | None = None
        with self._reading():
            if suffix == ".parquet":
                from pyarrow import parquet

                self._parquet = parquet.ParquetFile(self.path)
                self.rows = int(self._parquet.metadata.num_rows)
                self.schema = self._parquet.schema_arrow
            else:
                self._check_first_line()
                self.schema = self._open_csv(None).schema
            self.names: list[str] = list(self.schema.names)

    def read(self, columns: Sequence[str] | None = None) -> Any:
        """Read a whole table, or some of its columns; the types of CSV columns are guessed."""
        from pyarrow import csv

        wanted = None if columns is None else list(columns)
        with self._reading():
            if self._parquet is not None:
                return self._parquet.read(columns=wanted)
            return csv.read_csv(
                self.path,
                parse_options=csv.ParseOptions(delimiter=self._separator),
                convert_options=csv.ConvertOptions(include_columns=wanted or []),
            )

    def batches(self, columns: list[str], start: int = 0) -> Iterator[tuple[int, Any]]:
        """Read batches of some columns, each with its first row, from at or before `start`.

        Columns of a CSV file are strings. A Parquet file is read from the row group of `start`.
        """
        position, first = 0, 0
        with self._reading():
            if self._parquet is None:
                batches = self._open_csv(columns)
            else:
                meta = self._parquet.metadata
                sizes = [meta.row_group(k).num_rows for k in range(meta.num_row_groups)]
                while first + 1 < len(sizes) and position + sizes[first] <= start:
                    position, first = position + sizes[first], first + 1
                groups = list(range(first, len(sizes)))
                batches = self._parquet.iter_batches(BATCH, groups, columns, use_threads=False)
            for batch in batches:
                yield position, batch
                position += batch.num_rows

    @contextmanager
    def _reading(self) -> Iterator[None]:
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())
            raise FileFormatError(f"{self.path}: not a readable table ({reason}).") from error

    def _open_csv(self, columns: list[str] | None) -> Any:
        import pyarrow as pa
        from pyarrow import csv

        words = None if columns is None else dict.fromkeys(columns, pa.string())
        return csv.open_csv(
            self.path,
            read_options=csv.ReadOptions(block_size=BLOCK, use_threads=False),
            parse_options=csv.ParseOptions(delimiter=self._separator),
            convert_options=csv.ConvertOptions(
                column_types=words, include_columns=columns or [], strings_can_be_null=True
            ),
        )

    def _check_first_line(self) -> None:
        """Refuse a file without names, and one whose names are separated by another character."""
        with self.path.open("rb") as file:
            line = file.readline().strip().decode("utf-8", "replace")
        if not line:
            raise FileFormatError(f"{self.path}: the first line must name the columns.")
        known = {",": "commas", "\t": "tabs", ";": "semicolons"}
        found = next((mark for mark in known if mark in line), self._separator)
        if self._separator not in line and found != self._separator:
            raise FileFormatError(
                f"{self.path}: its columns are separated by {known[found]}, and "
                f"{known[self._separator]} are needed. Write it again: "
                f"pandas.read_csv({self.path.name!r}, sep={found!r}).to_csv(...), with "
                "decimal=',' beside sep if its numbers have decimal commas."
            )


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

    def fingerprint(self) -> str:
        return digest_of_file(self.path)

    def _count(self, limit: int | None) -> int:
        """Count the rows, and find a value that is not a number before any work is done."""
        if self._file.rows is not None:
            self._check_types()
            return self._file.rows
        rows = 0
        for first, batch in self._batches(0):
            self._features(batch, first)
            rows = first + batch.num_rows
            if limit is not None and rows >= limit:
                break
        return rows

    def _check_types(self) -> None:
        import pyarrow as pa

        numeric = (
            pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal,
        )  # fmt: skip
        for name in self.columns:
            kind = self._file.schema.field(name).type
            if not any(holds(kind) for holds in numeric):
                column = self._file.read([name]).column(0)
                value = column[0].as_py() if len(column) else None
                raise self._not_a_number(name, 0, value, f" (the column is {kind})")

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
                bad = next(n for n in range(len(column)) if not _is_number(column.slice(n, 1)))
                raise self._not_a_number(name, first + bad, column[bad].as_py()) from None
        return table

    def _not_a_number(self, name: str, row: int, value: object, also: str = "") -> FileFormatError:
        typed = shlex.quote(name)
        return FileFormatError(
            f"{self.path}: expected numbers, but the column {name!r} holds {value!r} in data row "
            f"{row} (counted from 0){also}. Drop the column (--drop {typed}), in inspect and score "
            f"name it as the id (--id {typed}), or encode it as numbers; leave a cell without a "
            "value empty."
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
