"""Arrow streams on disk, as `datasets` writes them: where each batch is, and how it is read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from credibly._extras import require_table_extra
from credibly.errors import FileFormatError


@dataclass(frozen=True)
class Batch:
    """A batch of rows in a file.

    Attributes:
        offset: in the file, in bytes.
        rows: how many.
    """

    offset: int
    rows: int


class ArrowFile:
    """A stream of batches. Everything that is wrong with it is a `FileFormatError`.

    Attributes:
        schema: of the rows.
        batches: where they are.
        starts: the row that each begins with; the last number is that of all.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        pa = require_table_extra("A saved dataset", pandas=False)
        try:
            # mapped only here: of every batch its head is looked at, and the file is closed again
            with pa.memory_map(str(path)) as file:
                self.schema, self.batches = _index(file)
            self.starts = [0, *accumulate(batch.rows for batch in self.batches)]
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(error) from error

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.starts[-1]

    def pieces(self, start: int, stop: int, columns: list[str]) -> Iterator[Any]:
        """Read the batches in which the rows are, as tables of just these rows."""
        number = max(bisect_right(self.starts, start) - 1, 0)
        while number < len(self.batches) and self.starts[number] < stop:
            first, last = self.starts[number : number + 2]
            begin, end = max(start, first), min(stop, last)
            if begin < end:
                yield self.read(number, columns).slice(begin - first, end - begin)
            number += 1

    def read(self, number: int, columns: list[str]) -> Any:
        """Read some columns of a batch, as a table."""
        import pyarrow as pa

        try:
            with pa.OSFile(str(self.path)) as file:
                file.seek(self.batches[number].offset)
                found = pa.ipc.read_record_batch(pa.ipc.read_message(file), self.schema)
            return pa.Table.from_batches([found]).select(columns)
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> FileFormatError:
        reason = " ".join(str(error).split())[:200]
        return FileFormatError(f"{self.path}: not a readable Arrow stream ({reason}).")


def _index(file: Any) -> tuple[Any, list[Batch]]:
    import pyarrow as pa

    schema = pa.ipc.read_schema(pa.ipc.read_message(file))
    found = []
    while (offset := file.tell()) < file.size():
        try:
            message = pa.ipc.read_message(file)
        except EOFError:  # the mark at the end of the stream
            break
        if message.type != "record batch":
            message = f"a message of the type {message.type!r}"
            raise pa.ArrowInvalid(message)
        found.append(Batch(offset, pa.ipc.read_record_batch(message, schema).num_rows))
    return schema, found
