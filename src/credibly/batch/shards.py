"""The finished rows of a run: one Parquet file per shard, verified and merged at the end."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from credibly._extras import require_table_extra
from credibly.errors import FileFormatError, OutputError
from credibly.io.files import read_json, writing
from credibly.io.fingerprints import digest_of_file
from credibly.io.run_folder import RunFolder, as_json
from credibly.io.source import Source

if TYPE_CHECKING:
    import pandas as pd

GROUP = 1 << 20
"""Bytes of rows that are written together; a larger shard is written alone."""

_MERGED = "part-merged.parquet"

_WORDS = frozenset({"predicted", "most_credible", "verdict", "class", "reason", "status"})
"""Columns of words, whatever is in them."""


@dataclass(frozen=True)
class Format:
    """The kind of file that a run ends with.

    Attributes:
        name: what the metadata of the file and the manifest call it.
        example: a name for such a file, for messages.
        writing: options of the writer of Parquet.
        version: of the format.
    """

    name: str
    example: str
    writing: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1

    @property
    def remedy(self) -> str:
        """What to do where the output is not a file."""
        return f"Name a file, such as {self.example}."


PROFILES = Format("credibly.score", "profiles.parquet")


class DamagedShardError(Exception):
    """A shard is not what was written; it is solved again."""


class Shards(RunFolder):
    """`<out>.parts/`, beside the output and so on the same disk.

    Beside every shard is a record of its digest, its rows and its run. A shard without one that
    fits counts as missing: it is damaged, in the place of another, or of another run.
    """

    def __init__(self, out: Path, kind: Format = PROFILES) -> None:
        if not out.name:  # '.' and '/'
            raise OutputError(f"{out} is a folder", remedy=kind.remedy)
        super().__init__(
            out.with_name(f"{out.name}.parts"),
            kind=kind.name,
            version=kind.version,
            parts=("part-*.parquet", "part-*.json"),
            restart="drop its rows with resume=False (--restart)",
        )
        self.out, self.format = out, kind

    def missing(self, sizes: Sequence[int]) -> list[int]:
        """Return the numbers of the shards to solve, of which `sizes` are the rows."""
        run, first, found = self._run(), 0, []
        for number, rows in enumerate(sizes):
            try:
                content = self.part(_name(number)).read_bytes()
                self._verify(number, content, {"first": first, "rows": rows, "run": run})
            except (DamagedShardError, OSError):
                found.append(number)
            first += rows
        return found

    def add(self, number: int, first: int, tables: list[Any]) -> None:
        """Write the tables of one shard, which begins with row `first`."""
        import pyarrow as pa
        from pyarrow import parquet

        table, content = pa.concat_tables(tables), io.BytesIO()
        parquet.write_table(table, content)
        record = {
            "format": f"{self.format.name}-part",
            "format_version": self.format.version,
            "part": number,
            "first": first,
            "rows": table.num_rows,
            "run": self._run(),
            "sha256": hashlib.sha256(content.getbuffer()).hexdigest(),
        }
        with self.write(_name(number)) as place:
            place.write_bytes(content.getbuffer())
        with self.write(_record(number)) as place:  # last: a shard without it is not finished
            place.write_text(json.dumps(record, indent=2) + "\n", "utf-8")

    def merge(self, count: int) -> None:
        """Join all shards into the output, a few at a time.

        The manifest becomes the metadata `settings` of the output. The bytes that are joined are
        those that were verified; a shard that is damaged raises `DamagedShardError`.
        """
        from pyarrow import parquet

        table = self._read(0)
        metadata = {
            **(table.schema.metadata or {}),  # what the chunks say of themselves
            b"format": self.format.name.encode(),
            b"format_version": str(self.format.version).encode(),
            b"settings": self.manifest.read_bytes(),
        }
        schema = table.schema.with_metadata(metadata)
        with (
            self.write(_MERGED) as place,
            parquet.ParquetWriter(place, schema, **self.format.writing) as writer,
        ):
            for joined in self._groups(count):
                writer.write_table(joined.replace_schema_metadata(metadata))
        with writing(self.out):
            self.part(_MERGED).replace(self.out)

    def is_finished(self, settings: Mapping[str, Any]) -> bool:
        """Return whether the output is that of the very same run, killed while it cleaned up."""
        from pyarrow import parquet

        try:
            made_by = (parquet.read_schema(self.out).metadata or {})[b"settings"]
            same = bool(json.loads(made_by)["settings"] == as_json(settings))
            # parts of another run, which was to replace the output, are not touched
            return same and (not self.manifest.exists() or self.manifest.read_bytes() == made_by)
        except Exception:  # noqa: BLE001  # a file of somebody else may hold anything
            return False

    def kind_of_others(self) -> str | None:
        """Return the format of the manifest, if it is that of another kind of run."""
        try:
            found = json.loads(self.manifest.read_text("utf-8"))["format"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return None if found == self.format.name else str(found)

    def _groups(self, count: int) -> Iterator[Any]:
        """Read the shards in order, joined to tables of about `GROUP` bytes.

        Each becomes a row group. What Parquet notes of every row group is held until the end: one
        per shard would take 24 MB for a million rows.
        """
        import pyarrow as pa

        tables: list[Any] = []
        for number in range(count):
            tables.append(self._read(number))
            if number + 1 == count or sum(table.nbytes for table in tables) >= GROUP:
                yield pa.concat_tables(tables)
                tables = []

    def _read(self, number: int) -> Any:
        import pyarrow as pa
        from pyarrow import parquet

        try:
            content = self.part(_name(number)).read_bytes()
        except OSError as error:
            raise DamagedShardError from error
        self._verify(number, content, {"run": self._run()})
        return parquet.read_table(pa.BufferReader(content))

    def _verify(self, number: int, content: bytes, expected: Mapping[str, Any]) -> None:
        """Compare a shard with its record, and the record with what is expected."""
        try:
            kind, version = f"{self.format.name}-part", self.format.version
            record = read_json(self.part(_record(number)), kind, version)
        except FileFormatError as error:
            raise DamagedShardError from error
        digest = hashlib.sha256(content).hexdigest()
        expected = {**expected, "part": number, "sha256": digest}
        if any(record.get(name) != value for name, value in expected.items()):
            raise DamagedShardError

    def _run(self) -> str:
        """Return what tells this run from others."""
        return digest_of_file(self.manifest)


def _name(number: int) -> str:
    return f"part-{number:06d}.parquet"


def _record(number: int) -> str:
    return f"part-{number:06d}.json"


def as_table(source: Source, first: int, ids: list[Any], frame: pd.DataFrame) -> Any:
    """Return the rows of a chunk as an Arrow table whose types do not depend on the values.

    What the source carries along stands beside the ids.
    """
    pa = require_table_extra()
    types = {"int64": pa.int64(), "double": pa.float64(), "string": pa.string()}
    carried = source.carried(first, first + len(ids))
    arrays = [pa.array(ids, types[source.id_type])]
    arrays += [pa.array(carried[name], types[k]) for name, k in source.carried_types.items()]
    for name in frame.columns:
        text = name in _WORDS or name.startswith("class.")  # names of the classes that were kept
        kind = pa.string() if text else pa.from_numpy_dtype(frame[name].dtype)
        arrays.append(pa.array(frame[name], kind, from_pandas=text))
    return pa.Table.from_arrays(arrays, names=["id", *carried, *frame.columns])
