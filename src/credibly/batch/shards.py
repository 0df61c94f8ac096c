"""The folder of finished pieces: each written whole or not at all, merged at the end."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from credibly.errors import MissingExtraError, OutputError

if TYPE_CHECKING:
    import pandas as pd

_TEMPORARY = ".tmp"

NAME_A_FILE = "Name a file, such as profiles.parquet."
"""What to do where a folder came as output."""


class Shards:
    """`<out>.parts/`: a manifest, a lock and one Parquet file for each run of chunks."""

    def __init__(self, out: Path) -> None:
        if not out.name:  # '.' and '/', which can be given no other ending
            raise OutputError(f"{out} is a folder", remedy=NAME_A_FILE)
        self.out = out
        self.folder = out.with_name(f"{out.name}.parts")
        self.manifest = self.folder / "manifest.json"
        self.lock = self.folder / "lock"

    def create(self) -> None:
        """Make the folder, beside the output and so on the same disk."""
        with writing(self.folder):
            self.folder.mkdir(exist_ok=True)

    def part(self, number: int) -> Path:
        """The file of one shard."""
        return self.folder / f"part-{number:06d}.parquet"

    def rows_of(self, number: int) -> int | None:
        """Rows in a finished shard; None where it is missing or damaged."""
        import pyarrow as pa
        from pyarrow import parquet

        try:
            return int(parquet.read_metadata(self.part(number)).num_rows)
        except (FileNotFoundError, pa.ArrowException, OSError):
            return None

    def write_manifest(self, text: str) -> None:
        """Write the manifest, whole or not at all."""
        with self._whole(self.manifest) as temporary:
            temporary.write_text(text, "utf-8")

    def write(self, number: int, table: Any) -> None:
        """Write one shard, whole or not at all."""
        from pyarrow import parquet

        with self._whole(self.part(number)) as temporary:
            parquet.write_table(table, temporary)

    def merge(self, count: int, metadata: dict[str, str]) -> Counter[str]:
        """Join all shards into the output, one at a time; gives the count of each status."""
        from pyarrow import parquet

        statuses: Counter[str] = Counter()
        schema = parquet.read_schema(self.part(0))
        metadata = {**_words(schema.metadata), **metadata}  # each part knows how it was solved
        schema = schema.with_metadata(metadata)
        with (
            self._whole(self.out, self.folder / f"merged{_TEMPORARY}") as temporary,
            parquet.ParquetWriter(temporary, schema) as writer,
        ):
            for number in range(count):
                table = parquet.read_table(self.part(number))
                statuses.update(table.column("status").to_pylist())
                writer.write_table(table.replace_schema_metadata(metadata))
        return statuses

    def merged(self) -> bool:
        """Whether the output is what the parts were merged into, by a run killed right after."""
        import pyarrow as pa
        from pyarrow import parquet

        try:
            metadata = parquet.read_schema(self.out).metadata or {}
            return bool(metadata.get(b"settings") == self.manifest.read_bytes())
        except (FileNotFoundError, pa.ArrowException, OSError):
            return False

    def clear(self) -> None:
        """Remove what runs leave here, and nothing else."""
        if not self.folder.is_dir():
            return
        with writing(self.folder):
            for path in self.folder.iterdir():
                if path.name.startswith("part-") or path.suffix == _TEMPORARY:
                    path.unlink()
            self.manifest.unlink(missing_ok=True)  # last: as long as it is there, parts are known

    def remove(self) -> None:
        """Remove the folder; a file of somebody else keeps it."""
        self.clear()
        self.leave()

    def leave(self) -> None:
        """Remove the folder if there is nothing but the lock of this run in it."""
        with suppress(OSError):
            self.lock.unlink()
            self.folder.rmdir()

    @contextmanager
    def _whole(self, path: Path, temporary: Path | None = None) -> Iterator[Path]:
        """A name to write to, which takes the right one once everything is on the disk."""
        temporary = temporary or path.with_name(path.name + _TEMPORARY)
        with writing(path):
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)


def _words(metadata: dict[bytes, bytes] | None) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in (metadata or {}).items()}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says when it cannot write into an error with a remedy."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full" if full else error.strerror or str(error)
        raise OutputError(
            f"{path} cannot be written: {reason}",
            remedy="Rows that were finished are kept; once there is room and permission, start "
            "the same command again to go on.",
        ) from error


def as_table(ids: list[Any], frame: pd.DataFrame, id_type: str) -> Any:
    """Rows of a chunk as an Arrow table whose types do not depend on what the rows hold."""
    pa = require_table_extra()
    words = ("predicted", "most_credible", "status")
    arrays = [pa.array(ids, pa.int64() if id_type == "int64" else pa.string())]
    fields = [pa.field("id", arrays[0].type)]
    for name in frame.columns:
        kind = pa.string() if name in words else pa.from_numpy_dtype(frame[name].dtype)
        arrays.append(pa.array(frame[name], kind, from_pandas=name in words))
        fields.append(pa.field(name, kind))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def require_table_extra() -> Any:
    """Give pyarrow, or say that it or pandas is missing, before any work is done."""
    try:
        import pandas as pd  # noqa: F401
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtraError(
            package=error.name or "pyarrow", extra="table", purpose="A Parquet file of profiles"
        ) from error
    return pa
