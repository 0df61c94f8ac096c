"""Arrow streams on disk, as `datasets` writes them: where each batch is, and how it is read."""

from __future__ import annotations

from dataclasses import dataclass
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
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        pa = require_table_extra("A saved dataset", pandas=False)
        try:
            # mapped only here: of every batch its head is looked at, and the file is closed again
            with pa.memory_map(str(path)) as file:
                self.schema, self.batches = _index(file)
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(error) from error

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(batch.rows for batch in self.batches)

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
