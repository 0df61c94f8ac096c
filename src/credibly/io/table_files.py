"""Files of tables: CSV and Parquet, read in batches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

from credibly._extras import require_table_extra
from credibly.errors import CrediblyError, FileFormatError
from credibly.io.places import Place
from credibly.io.source import Where, open_where

BLOCK = 1 << 20
"""Bytes of a CSV file parsed at a time."""

BATCH = 1024
"""Rows of a Parquet file decoded at a time."""

BUFFER, AFAR = 1 << 16, 1 << 20
"""Bytes of each column of a Parquet file read at a time, from a disk and from a store."""


class TableFile:
    """A CSV, TSV or Parquet file. Everything that is wrong with it is a `FileFormatError`.

    Attributes:
        names: of all columns.
        schema: the Arrow types; those of a CSV file are guesses from its first rows.
        rows: their number, or None for CSV, where it takes a pass through the file.
    """

    def __init__(self, path: str | Where) -> None:
        require_table_extra("A table", pandas=False)
        self.path = Path(path) if isinstance(path, str) else path
        suffix = self.path.suffix.lower()
        self._separator = "\t" if suffix == ".tsv" else ","
        self._parquet: Any = None
        self._starts = [0]
        self.rows: int | None = None
        with self.reading():
            if suffix == ".parquet":
                from pyarrow import parquet

                # a buffer, since else every column of a row group is read at once
                afar = isinstance(self.path, Place)
                self._parquet = parquet.ParquetFile(
                    self._open(), buffer_size=AFAR if afar else BUFFER, pre_buffer=False
                )
                meta = self._parquet.metadata
                self.rows = int(meta.num_rows)
                self._sizes = [meta.row_group(k).num_rows for k in range(meta.num_row_groups)]
                self._starts = [0, *accumulate(self._sizes)][: max(1, len(self._sizes))]
                self.schema = self._parquet.schema_arrow
            else:
                self._check_first_line()
                self.schema = self._open_csv(None).schema
            self.names: list[str] = list(self.schema.names)

    def __reduce__(self) -> tuple[Any, ...]:
        return TableFile, (self.path,)  # another process opens it again

    def read(self, columns: Sequence[str] | None = None) -> Any:
        """Read a whole table, or some of its columns; the types of CSV columns are guessed."""
        from pyarrow import csv

        wanted = None if columns is None else list(columns)
        with self.reading():
            if self._parquet is not None:
                return self._parquet.read(columns=wanted)
            return csv.read_csv(
                self._open(),
                parse_options=csv.ParseOptions(delimiter=self._separator),
                convert_options=csv.ConvertOptions(include_columns=wanted or []),
            )

    def values(self, column: str) -> list[Any]:
        """Read all values of a column."""
        with self.reading():  # words may be in another encoding
            found: list[Any] = self.read([column]).column(0).to_pylist()
            return found

    def batches(self, columns: list[str], start: int = 0) -> Iterator[tuple[int, Any]]:
        """Read batches of some columns, each with its first row, from at or before `start`.

        Columns of a CSV file are strings. A Parquet file is read from the row group of `start`.
        """
        position, first = self._group(start)
        with self.reading():
            if self._parquet is None:
                batches = self._open_csv(columns)
            else:
                groups = list(range(first, len(self._sizes)))
                batches = self._parquet.iter_batches(BATCH, groups, columns, use_threads=False)
            for batch in batches:
                yield position, batch
                position += batch.num_rows

    def start_of(self, row: int) -> int:
        """The first row that must be read to get to a row: that of its row group."""
        return self._group(row)[0]

    def _group(self, row: int) -> tuple[int, int]:
        """The first row and the number of the row group of a row; CSV is one."""
        number = max(bisect_right(self._starts, row) - 1, 0)
        return self._starts[number], number

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn whatever a damaged table can cause into a `FileFormatError` that names it."""
        try:
            yield
        except CrediblyError:
            raise
        except Exception as error:  # pyarrow raises errors of many kinds
            reason = " ".join(str(error).split())
            raise FileFormatError(f"{self.path}: not a readable table ({reason}).") from error

    def _open(self) -> Any:
        """A name, or an open file, as pyarrow takes it."""
        return self.path if isinstance(self.path, Path) else self.path.open_input()

    def _open_csv(self, columns: list[str] | None) -> Any:
        import pyarrow as pa
        from pyarrow import csv

        words = None if columns is None else dict.fromkeys(columns, pa.string())
        return csv.open_csv(
            self._open(),
            read_options=csv.ReadOptions(block_size=BLOCK, use_threads=False),
            parse_options=csv.ParseOptions(delimiter=self._separator),
            convert_options=csv.ConvertOptions(
                column_types=words, include_columns=columns or [], strings_can_be_null=True
            ),
        )

    def _check_first_line(self) -> None:
        """Refuse a file without names, and one whose names are separated by another character."""
        with open_where(self.path) as file:
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
