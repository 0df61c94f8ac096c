"""The finished rows of a run: one Parquet file per shard, verified, and joined where asked to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

from credibly.batch.formats import (
    FOLDER,
    PART,
    PROFILES,
    Format,
    Record,
    part_name,
    record_name,
    settings_of_folder,
)
from credibly.batch.manifests import find_damaged, run_of
from credibly.batch.parts import FINAL, PartWriter
from credibly.batch.tally import add_up
from credibly.errors import FileFormatError, OutputError
from credibly.io.files import TEMPORARY, json_text, writing
from credibly.io.places import LocalPlace, Place
from credibly.io.run_folder import RunFolder, as_json
from credibly.io.store_folder import AT_ONCE, json_at

GROUP = 1 << 20
"""Bytes of rows that are written together; a larger shard is written alone."""

_MERGED = "part-merged.parquet"


class DamagedShardError(Exception):
    """A shard is not what was written; it is solved again."""


class Shards(RunFolder):
    """`<out>.parts/`, beside the output and so on the same disk.

    Beside every shard is a record of its digest, its rows and its run. A shard without one that
    fits counts as missing: it is damaged, in the place of another, or of another run. Where the
    output is a folder, the shards are written there at once, and only their records here.
    """

    def __init__(self, out: str | Path, kind: Format = PROFILES, *, folder: bool = False) -> None:
        out = Path(out)
        if not out.name:  # '.' and '/'
            raise OutputError(f"{out} is a folder", remedy=kind.remedy)
        path = out.with_name(f"{out.name}.parts")
        super().__init__(path, **settings_of_folder(kind))
        self._set_up(LocalPlace(out.absolute()), LocalPlace(path.absolute()), kind, folder=folder)
        self.out: Path | Place = out

    def _set_up(self, out: Place, home: Place, kind: Format, *, folder: bool) -> None:
        self.output, self.home, self.format, self.in_folder = out, home, kind, folder
        self.data = out if folder else home

    def writer(self) -> PartWriter:
        """Return what writes the shards of the run that has begun."""
        settings = self.manifest_bytes()
        marks = self.format.marks(settings)
        return PartWriter(self.data, self.home, self.format, self._run(), marks, self.in_folder)

    def prepare(self) -> None:
        """Make the folder of the output."""
        if self.in_folder and isinstance(self.data, LocalPlace):
            with writing(self.data.path):
                self.data.path.mkdir(exist_ok=True)
            self._remove_temporary()

    def missing(self, sizes: Sequence[int]) -> list[int]:
        """Return the numbers of the shards to solve, of which `sizes` are the rows."""
        run, sent = self._run(), self._sizes()
        firsts = accumulate(sizes, initial=0)

        def is_missing(number: int, first: int, rows: int) -> bool:
            try:
                self._check(number, {"first": first, "rows": rows, "run": run}, sent)
            except (DamagedShardError, OSError):
                return True
            return False

        with ThreadPoolExecutor(1 if sent is None else AT_ONCE) as pool:
            found = pool.map(is_missing, range(len(sizes)), firsts, sizes)
            return [number for number, gone in enumerate(found) if gone]

    def finish(self, count: int) -> None:
        """Make the output of all shards; a damaged one raises `DamagedShardError`."""
        if self.in_folder:
            self._list_files(count)
        else:
            self.merge(count)

    def merge(self, count: int) -> None:
        """Join all shards into the output, a few at a time.

        The manifest becomes the metadata `settings` of the output. The bytes that are joined are
        those that were verified.
        """
        from pyarrow import parquet

        run = self._run()
        schema = self._read(0, run).schema
        metadata = {**(schema.metadata or {}), **self.format.marks(self.manifest_bytes())}
        schema = schema.with_metadata(metadata)
        with self._output_file() as place:
            options = {**FINAL, **self.format.writing}
            with parquet.ParquetWriter(place, schema, **options) as writer:
                for joined in self._groups(count, run):
                    writer.write_table(joined.replace_schema_metadata(metadata))

    def is_finished(self, settings: Mapping[str, Any]) -> bool:
        """Return whether the output is that of the very same run, killed while it cleaned up."""
        try:
            made_by = self._made_by()
            same = bool(json.loads(made_by)["settings"] == as_json(settings))
            # parts of another run, which was to replace the output, are not touched
            same = same and (not self.is_begun() or self.manifest_bytes() == made_by)
            return same and not (self.in_folder and self._find_damaged())
        except Exception:  # noqa: BLE001  # a file of somebody else may hold anything
            return False

    def _find_damaged(self) -> dict[str, str]:
        """Read the finished folder; it may have been made a run again to mend its files."""
        there = {found.name: found.size for found in self.data.list()}
        return find_damaged(self.data, self._listing_of_files()["files"], there)

    def is_begun_here(self) -> bool:
        """Return whether a run has begun whose shards are in the folder that is the output."""
        if not (self.in_folder and self.is_begun()):
            return False
        run = run_of(self.manifest_bytes())
        return run is not None and run["settings"].get("layout") == "folder"

    def kind_of_others(self) -> str | None:
        """Return the format of the manifest, if it is that of another kind of run."""
        try:
            found = json.loads(self.manifest_bytes())["format"]
        except (OSError, ValueError, KeyError, TypeError):  # FileFormatError is a ValueError
            return None
        return None if found == self.format.name else str(found)

    def drop(self) -> None:
        """Remove all parts, also from the folder that is the output."""
        if self.in_folder and self.data.is_folder():
            (self.data / FOLDER).delete()  # first: without it the folder is not finished
            self._delete([name for name in self._listed() if PART.fullmatch(name)])
            self._remove_temporary()
        self.clear()

    def listing(self) -> list[str]:
        """Return the names of the files in the folder that is the output."""
        return self._listed() if self.data.is_folder() else []

    @contextmanager
    def opened(self, number: int | None = None, *, checked: bool = False) -> Iterator[Any]:
        """Open the finished file, or one of those in the folder, as a Parquet file."""
        from pyarrow import parquet

        place = self.output if number is None else self.data / part_name(number)
        options = {"page_checksum_verification": True} if checked else {}
        with place.open_input() as file, parquet.ParquetFile(file, **options) as found:
            yield found

    def finished_facts(self, name: bytes) -> dict[str, Any]:
        """Return metadata of the finished folder, from its first file."""
        with self.opened(0) as file:
            return dict(json.loads(file.schema_arrow.metadata[name]))

    def finished_tally(self) -> dict[str, Any]:
        """Return what was counted of the rows of the finished folder."""
        return dict(self._listing_of_files()["tally"])

    def finished_run(self) -> dict[str, Any]:
        """Return the manifest of the run that made the output: `settings` and `resolved`."""
        return dict(json.loads(self._made_by()))

    def _listing_of_files(self) -> dict[str, Any]:
        return json_at(self.data / FOLDER, self.format.folder, self.format.version)

    def _made_by(self) -> bytes:
        """Return the manifest of the run that made the output."""
        from pyarrow import parquet

        if self.in_folder:
            return str(self._listing_of_files()["run"]).encode()
        with self.output.open_input() as file:
            return bytes((parquet.read_schema(file).metadata or {})[b"settings"])

    def _list_files(self, count: int) -> None:
        """Write the manifest of the folder; shards are read once more, but not from a store."""
        files, tallies, run, sent = [], [], self._run(), self._sizes()
        for number in range(count):
            record = self._check(number, {"run": run}, sent)
            tallies.append(record["tally"])
            kept = {name: record[name] for name in ("first", "rows", "bytes", "sha256")}
            files.append({"name": part_name(number), **kept})
        named = {part_name(number) for number in range(count)}
        others = [name for name in self._listed() if PART.fullmatch(name) and name not in named]
        self._delete(others)
        self._remove_temporary()
        content = {
            "format": self.format.folder,
            "format_version": self.format.version,
            "rows": sum(file["rows"] for file in files),
            "tally": add_up(tallies),
            "run": self.manifest_bytes().decode(),
            "files": files,
        }
        (self.data / FOLDER).write_whole(json_text(content).encode())

    @contextmanager
    def _output_file(self) -> Iterator[Path]:
        """Give a path to write the output to, which then takes its place."""
        with self.write(_MERGED) as place:
            yield place
        with writing(str(self.out)):
            self.part(_MERGED).replace(str(self.out))

    def _groups(self, count: int, run: str) -> Iterator[Any]:
        """Read the shards in order, joined to tables of about `GROUP` bytes.

        Each becomes a row group. What Parquet notes of every row group is held until the end: one
        per shard would take 24 MB for a million rows.
        """
        import pyarrow as pa

        tables: list[Any] = []
        for number in range(count):
            tables.append(self._read(number, run))
            if number + 1 == count or sum(table.nbytes for table in tables) >= GROUP:
                yield pa.concat_tables(tables)
                tables = []

    def _read(self, number: int, run: str) -> Any:
        import pyarrow as pa
        from pyarrow import parquet

        try:
            content = (self.data / part_name(number)).read_whole()
        except (OSError, FileFormatError) as error:
            raise DamagedShardError from error
        self._verify(number, {"run": run, "sha256": _digest(content)})
        return parquet.read_table(pa.BufferReader(content))

    def _check(
        self, number: int, expected: Mapping[str, Any], sent: Mapping[str, int] | None
    ) -> Record:
        """Compare a shard with its record: its bytes, or its size where it is in a store."""
        name = part_name(number)
        if sent is not None:
            return self._verify(number, {**expected, "bytes": sent.get(name)})
        try:
            content = (self.data / name).read_whole()
        except FileFormatError as error:
            raise DamagedShardError from error
        return self._verify(number, {**expected, "sha256": _digest(content)})

    def _verify(self, number: int, expected: Mapping[str, Any]) -> Record:
        """Compare the record of a shard with what is expected."""
        try:
            place = self.home / record_name(number)
            record = json_at(place, self.format.part, self.format.version)
        except FileFormatError as error:
            raise DamagedShardError from error
        if any(record.get(name) != value for name, value in {**expected, "part": number}.items()):
            raise DamagedShardError
        return record

    def _sizes(self) -> dict[str, int] | None:
        """Sizes by name of what is in a store; None on this machine, where files are read."""
        return None

    def _run(self) -> str:
        """Return what tells this run from others."""
        return _digest(self.manifest_bytes())

    def _listed(self) -> list[str]:
        return [found.name for found in self.data.list()]

    def _delete(self, names: Sequence[str]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda name: (self.data / name).delete(), names))

    def _remove_temporary(self) -> None:
        if self.in_folder and isinstance(self.data, LocalPlace):
            with writing(self.data.path):
                for path in self.data.path.glob(TEMPORARY):
                    path.unlink(missing_ok=True)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
