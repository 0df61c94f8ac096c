"""The finished rows of a run: one Parquet file per shard, merged at the end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from credibly.errors import OutputError
from credibly.io.files import writing
from credibly.io.run_folder import RunFolder
from credibly.io.tables import require_table_extra

if TYPE_CHECKING:
    import pandas as pd

FORMAT, FORMAT_VERSION = "credibly.score", 1
NAME_A_FILE = "Name a file, such as profiles.parquet."
_MERGED = "part-merged.parquet"


class Shards(RunFolder):
    """`<out>.parts/`, beside the output and so on the same disk."""

    def __init__(self, out: Path) -> None:
        if not out.name:  # '.' and '/'
            raise OutputError(f"{out} is a folder", remedy=NAME_A_FILE)
        super().__init__(
            out.with_name(f"{out.name}.parts"),
            kind=FORMAT,
            version=FORMAT_VERSION,
            parts="part-*.parquet",
            restart="drop its rows with resume=False (--restart)",
        )
        self.out = out

    def rows_of(self, number: int) -> int | None:
        """Return the number of rows in a finished shard, or None if it is missing or damaged."""
        import pyarrow as pa
        from pyarrow import parquet

        try:
            return int(parquet.read_metadata(self.part(_name(number))).num_rows)
        except (pa.ArrowException, OSError):
            return None

    def add(self, number: int, tables: list[Any]) -> None:
        """Write the tables of one shard."""
        import pyarrow as pa
        from pyarrow import parquet

        with self.write(_name(number)) as place:
            parquet.write_table(pa.concat_tables(tables), place)

    def merge(self, count: int) -> Counter[str]:
        """Join all shards into the output, one at a time, and count how often each status occurs.

        The manifest becomes the metadata `settings` of the output.
        """
        from pyarrow import parquet

        statuses: Counter[str] = Counter()
        schema = parquet.read_schema(self.part(_name(0)))
        metadata = {
            **(schema.metadata or {}),  # the settings of the profiles
            b"format": FORMAT.encode(),
            b"format_version": str(FORMAT_VERSION).encode(),
            b"settings": self.manifest.read_bytes(),
        }
        with (
            self.write(_MERGED) as place,
            parquet.ParquetWriter(place, schema.with_metadata(metadata)) as writer,
        ):
            for number in range(count):
                table = parquet.read_table(self.part(_name(number)))
                statuses.update(table.column("status").to_pylist())
                writer.write_table(table.replace_schema_metadata(metadata))
        with writing(self.out):
            self.part(_MERGED).replace(self.out)
        return statuses

    def is_merged(self) -> bool:
        """Return whether the output was made from these parts, by a run killed right after."""
        import pyarrow as pa
        from pyarrow import parquet

        try:
            metadata = parquet.read_schema(self.out).metadata or {}
            return bool(metadata.get(b"settings") == self.manifest.read_bytes())
        except (pa.ArrowException, OSError):
            return False


def _name(number: int) -> str:
    return f"part-{number:06d}.parquet"


def as_table(ids: list[Any], frame: pd.DataFrame, id_type: str) -> Any:
    """Return the rows of a chunk as an Arrow table whose types do not depend on the values."""
    pa = require_table_extra()
    words = ("predicted", "most_credible", "status")
    arrays = [pa.array(ids, pa.int64() if id_type == "int64" else pa.string())]
    for name in frame.columns:
        kind = pa.string() if name in words else pa.from_numpy_dtype(frame[name].dtype)
        arrays.append(pa.array(frame[name], kind, from_pandas=name in words))
    return pa.Table.from_arrays(arrays, names=["id", *frame.columns])
