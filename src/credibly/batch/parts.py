"""Finished shards: what one is called, how a worker writes it, and its record.

A worker may be on another machine; what it writes is whole or not there.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from credibly._extras import require_table_extra
from credibly.batch.formats import Format, Record, part_name, record_name
from credibly.batch.rows import Read
from credibly.batch.tally import tally
from credibly.io.files import whole_file
from credibly.io.places import LocalPlace, Place
from credibly.io.run_folder import CONTINUE
from credibly.io.source import Source

if TYPE_CHECKING:
    import pandas as pd

_WORDS = frozenset({"predicted", "most_credible", "verdict", "class", "reason", "status"})
"""Columns of words, whatever is in them."""


@dataclass(frozen=True)
class PartWriter:
    """Writes the shards of a run; it can be sent to another process.

    Attributes:
        data: the folder for the shards.
        records: the folder for their records.
        format: of the run.
        run: what tells this run from others.
        marks: metadata of every shard.
        final: whether shards are what users read.
    """

    data: Place
    records: Place
    format: Format
    run: str
    marks: Mapping[bytes, bytes]
    final: bool

    def write(self, number: int, first: int, tables: Sequence[Any]) -> Record:
        """Write the tables of one shard, which begins with row `first`, and then its record."""
        import pyarrow as pa

        table = pa.concat_tables(tables)
        marks = {**(table.schema.metadata or {}), **self.marks}
        if self.final:  # without the list it still tells its place
            marks[PLACE] = str(number).encode()
        content = self._encode(table.replace_schema_metadata(marks))
        record = {
            "format": self.format.part,
            "format_version": self.format.version,
            "part": number,
            "first": first,
            "rows": table.num_rows,
            "run": self.run,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "tally": tally(table),
        }
        _write(self.data / part_name(number), content)
        text = json.dumps(record, indent=2) + "\n"
        _write(self.records / record_name(number), text.encode())  # last: else it is not finished
        return record

    def _encode(self, table: Any) -> memoryview:
        from pyarrow import parquet

        content, options = io.BytesIO(), {}
        if self.final:
            options = {**FINAL, **self.format.writing, **_order(table)}
        parquet.write_table(table, content, **options)
        return content.getbuffer()


PLACE = b"part"
"""Metadata of a file of a folder: its number."""

FINAL = {"write_page_index": True, "write_page_checksum": True}
"""How files are written that users read: few pages are read for few rows, and damage is noticed."""


def _order(table: Any) -> dict[str, Any]:
    """Say that the ids ascend, where they do."""
    from pyarrow import compute, parquet

    ids = table.column("id")
    if len(ids) < 2 or ids.null_count:
        return {}
    ascending = compute.all(compute.less(ids.slice(0, len(ids) - 1), ids.slice(1))).as_py()
    return {"sorting_columns": [parquet.SortingColumn(0)]} if ascending else {}


def _write(place: Place, content: bytes | memoryview) -> None:
    if isinstance(place, LocalPlace):  # the folder is not made: another machine would not see it
        with whole_file(place.path, remedy=CONTINUE) as aside:
            aside.write_bytes(content)
    else:
        place.write_whole(bytes(content))


def as_table(source: Source, read: Read, frame: pd.DataFrame) -> Any:
    """Return the rows of a chunk as an Arrow table whose types do not depend on the values.

    What the source carries along stands beside the ids.
    """
    pa = require_table_extra()
    types = {"int64": pa.int64(), "double": pa.float64(), "string": pa.string()}
    kinds = source.carried_types
    arrays = [pa.array(read.ids, types[source.id_type])]
    arrays += [pa.array(read.carried[name], types[kind]) for name, kind in kinds.items()]
    for name in frame.columns:
        text = name in _WORDS or name.startswith("class.")  # names of the classes that were kept
        kind = pa.string() if text else pa.from_numpy_dtype(frame[name].dtype)
        arrays.append(pa.array(frame[name], kind, from_pandas=text))
    return pa.Table.from_arrays(arrays, names=["id", *kinds, *frame.columns])
