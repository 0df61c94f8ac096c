"""Tables: CSV and Parquet, streamed in batches; what is missing becomes NaN in its row."""

from __future__ import annotations

import shlex
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from credibly.errors import FileFormatError, MissingExtraError
from credibly.io.columns import chosen_columns, in_order_of_model
from credibly.io.fingerprints import digest_of_file
from credibly.io.sources import Ids, Source
from credibly.model.classifier import Classifier
from credibly.model.tables import column_names

BLOCK = 1 << 20
"""Bytes of a CSV file parsed at a time."""

BATCH = 4096
"""Rows of a Parquet file decoded at a time."""


def open_table(
    path: Path,
    *,
    columns: Sequence[str] | None,
    id_column: str | None,
    drop: Sequence[str],
    limit: int | None,
) -> Source:
    """The source of a table, by its ending."""
    try:
        import pyarrow as pa  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            package="pyarrow", extra="table", purpose="A table of inputs"
        ) from error
    kind = ParquetTable if path.suffix.lower() == ".parquet" else CsvTable
    return kind(path, columns=columns, id_column=id_column, drop=drop, limit=limit)


class _Table(Source):
    """Choice of columns, and a cursor that goes through the file batch by batch."""

    def __init__(
        self,
        path: Path,
        *,
        columns: Sequence[str] | None,
        id_column: str | None,
        drop: Sequence[str],
        limit: int | None,
    ) -> None:
        self.path, self.id_column, self._most = path, id_column, limit
        self._present = self._reading(self._names)
        self.columns = chosen_columns(path, self._present, columns, id_column, drop)
        self.shape = (len(self.columns),)
        self._rewind()
        self._limit(self._reading(self._count), limit)

    def for_model(self, clf: Classifier) -> Source:
        names = column_names(clf)
        if names is None:
            return self
        ordered = copy(self)  # the rows were counted and looked at already
        ordered.columns = in_order_of_model(self.path, self._present, self.columns, names)
        ordered._rewind()  # noqa: SLF001  # its own copy
        return ordered

    def options(self) -> dict[str, object]:
        return {"columns": list(self.columns), "id_column": self.id_column}

    def fingerprint(self) -> str:
        return digest_of_file(self.path)

    @abstractmethod
    def _names(self) -> list[str]:
        """Names of all columns."""

    @abstractmethod
    def _count(self) -> int:
        """Number of rows, after a look at the types of the features."""

    @abstractmethod
    def _batches(self, start: int) -> tuple[int, Iterator[Any]]:
        """Record batches from a row at or before `start`, and which row that is."""

    def _rewind(self) -> None:
        self._cursor: tuple[int, Iterator[Any]] = (0, iter(()))
        self._held: tuple[int, Any] | None = None

    def _reading(self, action: Any, *arguments: Any) -> Any:
        """Do something with the file; what pyarrow raises becomes an error of the format."""
        import pyarrow as pa

        try:
            return action(*arguments)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())
            raise FileFormatError(f"{self.path}: not a readable table ({reason}).") from error

    def _take(self, start: int, stop: int) -> tuple[Ids, Tensor]:
        ids: list[Any] = []
        parts = [np.empty((0, len(self.columns)))]
        for first, batch in self._reading(lambda: list(self._covering(start, stop))):
            ids += self._ids(batch, first)
            parts.append(_numbers(self.path, batch, self.columns, first))
        return ids, torch.from_numpy(np.concatenate(parts))

    def _covering(self, start: int, stop: int) -> Iterator[tuple[int, Any]]:
        """Slices of batches that together are the rows [start, stop), each with its first row."""
        while start < stop:
            first, batch = self._holding(start)
            end = min(stop, first + batch.num_rows)
            if end <= start:
                raise FileFormatError(f"{self.path}: has become shorter while it was read.")
            yield start, batch.slice(start - first, end - start)
            start = end

    def _holding(self, row: int) -> tuple[int, Any]:
        """The batch that holds a row; the one held last is kept, for the next call."""
        if self._held is None or row < self._held[0]:
            self._cursor, self._held = self._batches(row), None
        while self._held is None or row >= self._held[0] + self._held[1].num_rows:
            position, batches = self._cursor
            batch = next(batches, None)
            if batch is None:
                raise FileFormatError(f"{self.path}: has become shorter while it was read.")
            self._held = (position, batch)
            self._cursor = (position + batch.num_rows, batches)
        return self._held

    def _ids(self, batch: Any, first: int) -> list[Any]:
        import pyarrow as pa

        if self.id_column is None:
            return list(range(first, first + batch.num_rows))
        wanted = pa.int64() if self.id_type == "int64" else pa.string()
        found: list[Any] = batch.column(self.id_column).cast(wanted).to_pylist()
        return found


class CsvTable(_Table):
    """Comma- or tab-separated values with a line of names; gone through once when opened."""

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.path.suffix.lower()[1:]

    @property
    def id_type(self) -> Literal["int64", "string"]:  # type: ignore[override]
        return "int64" if self.id_column is None else "string"

    def _names(self) -> list[str]:
        with self.path.open("rb") as file:
            first = file.readline().strip()
        if not first:
            raise FileFormatError(f"{self.path}: the first line must name the columns.")
        _refuse_other_separator(self.path, first)
        return list(self._reader(None).schema.names)

    def _reader(self, names: list[str] | None) -> Any:
        import pyarrow as pa
        from pyarrow import csv

        tab = self.path.suffix.lower() == ".tsv"
        words = None if names is None else dict.fromkeys(names, pa.string())
        return csv.open_csv(
            self.path,
            read_options=csv.ReadOptions(block_size=BLOCK, use_threads=False),
            parse_options=csv.ParseOptions(delimiter="\t" if tab else ","),
            convert_options=csv.ConvertOptions(
                column_types=words, include_columns=names or [], strings_can_be_null=True
            ),
        )

    def _count(self) -> int:
        """Parse every number once, up to the limit: a bad one is found before any work is done."""
        rows = 0
        for batch in self._batches(0)[1]:
            _numbers(self.path, batch, self.columns, rows)
            rows += batch.num_rows
            if self._most is not None and rows >= self._most:
                break
        return rows

    def _batches(self, start: int) -> tuple[int, Iterator[Any]]:  # noqa: ARG002
        wanted = [*self.columns, *([] if self.id_column is None else [self.id_column])]
        return 0, iter(self._reader(list(dict.fromkeys(wanted))))


class ParquetTable(_Table):
    """A Parquet file; reading may begin at any of its row groups."""

    kind = "parquet"

    def _names(self) -> list[str]:
        import pyarrow as pa
        from pyarrow import parquet

        self._file = parquet.ParquetFile(self.path)
        self._schema = self._file.schema_arrow
        if self.id_column in self._schema.names:
            whole = pa.types.is_integer(self._schema.field(self.id_column).type)
            self.id_type = "int64" if whole else "string"
        return list(self._schema.names)

    def _count(self) -> int:
        import pyarrow as pa

        for name in self.columns:
            kind = self._schema.field(name).type
            numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
            if not (numeric or pa.types.is_boolean(kind) or pa.types.is_decimal(kind)):
                batch = next(self._file.iter_batches(batch_size=1, columns=[name]), None)
                value = None if batch is None else batch.column(0)[0].as_py()
                raise _not_a_number(self.path, name, 0, value, f" (the column is {kind})")
        meta = self._file.metadata
        groups = [meta.row_group(k).num_rows for k in range(meta.num_row_groups)]
        self._starts = [sum(groups[:k]) for k in range(len(groups))]
        return int(meta.num_rows)

    def _batches(self, start: int) -> tuple[int, Iterator[Any]]:
        group = max(k for k, first in enumerate(self._starts) if first <= start)
        wanted = [*self.columns, *([] if self.id_column is None else [self.id_column])]
        batches = self._file.iter_batches(
            batch_size=BATCH,
            row_groups=list(range(group, len(self._starts))),
            columns=list(dict.fromkeys(wanted)),
            use_threads=False,
        )
        return self._starts[group], batches


def _refuse_other_separator(path: Path, first: bytes) -> None:
    """A line of names without the separator, but with another one, would be a single name."""
    known = {b",": "commas", b"\t": "tabs", b";": "semicolons"}
    wanted = b"\t" if path.suffix.lower() == ".tsv" else b","
    found = next((mark for mark in known if mark in first), wanted)
    if wanted in first or found == wanted:
        return
    raise FileFormatError(
        f"{path}: its columns are separated by {known[found]}, and {known[wanted]} are needed. "
        f"Write it anew: pandas.read_csv({path.name!r}, sep={found.decode()!r}).to_csv(...), with "
        "decimal=',' beside sep if its numbers have decimal commas."
    )


def _numbers(path: Path, batch: Any, columns: Sequence[str], first: int) -> Any:
    """The features of a batch (n, d) in double precision; missing ones are NaN."""
    import pyarrow as pa

    table = np.empty((batch.num_rows, len(columns)))
    for k, name in enumerate(columns):
        column = batch.column(name)
        try:
            table[:, k] = _as_double(column)
        except pa.ArrowInvalid:
            bad = next(row for row in range(len(column)) if not _is_number(column[row]))
            raise _not_a_number(path, name, first + bad, column[bad].as_py()) from None
    return table


def _as_double(column: Any) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_string(column.type):
        column = compute.utf8_trim_whitespace(column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    column = column.cast(pa.float64(), safe=not pa.types.is_integer(column.type))
    return column.to_numpy(zero_copy_only=False)


def _is_number(value: Any) -> bool:
    import pyarrow as pa

    try:
        _as_double(pa.array([value.as_py()], value.type))
    except pa.ArrowInvalid:
        return False
    return True


def _not_a_number(
    path: Path, name: str, row: int, value: object, also: str = ""
) -> FileFormatError:
    typed = shlex.quote(name)
    return FileFormatError(
        f"{path}: numbers are needed, but the column {name!r} holds {value!r} in data row "
        f"{row} (counted from 0){also}. Drop the column (--drop {typed}), in inspect and score "
        f"name it as the id (--id {typed}), or encode it as numbers; a cell without a value is "
        "left empty."
    )
