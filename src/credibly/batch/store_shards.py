"""Shards of a run whose output is in a store, and the choice between that and this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from credibly._validation import require
from credibly.batch.formats import Format, settings_of_folder
from credibly.batch.shards import Shards
from credibly.errors import OutputError
from credibly.io.places import LocalPlace, Place
from credibly.io.store_folder import StoreFolder
from credibly.io.stores import place_of


class StoreShards(StoreFolder, Shards):
    """The same in a store. A shard there is compared by its size; `verify` reads all bytes."""

    def __init__(self, out: Place, kind: Format, *, folder: bool) -> None:
        if not out.name:
            raise OutputError(f"{out} is a bucket", remedy=kind.remedy)
        home = out.parent / f"{out.name}.parts"
        StoreFolder.__init__(self, home, **settings_of_folder(kind))
        self._set_up(out, home, kind, folder=folder)
        self.out = out

    def _sizes(self) -> dict[str, int]:
        if not self.data.is_folder():
            return {}
        return {found.name: found.size for found in self.data.list()}

    @contextmanager
    def _output_file(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "merged.parquet"
            yield path
            self.output.upload(path)


def shards_at(out: str | Path | Place, kind: Format, *, folder: bool) -> Shards:
    """Return the shards of an output on this machine or in a store.

    A name that ends with a slash is a folder.
    """
    wanted = "a file or folder, here or in a store"
    require(str(out) != "", "out", wanted, "an empty name", f"For example {kind.example}.")
    folder = folder or str(out).endswith("/")
    place = place_of(out)
    if isinstance(place, LocalPlace):
        return Shards(place.path, kind, folder=folder)
    return StoreShards(place.parent / place.name, kind, folder=folder)  # without a slash
