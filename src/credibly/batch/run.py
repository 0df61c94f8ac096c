"""A run from disk to disk: shards of finished rows, joined at the end, safe to interrupt."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from credibly._validation import chunk_size as check_chunk_size
from credibly.batch.rows import Rows
from credibly.batch.shards import DamagedShardError, Shards
from credibly.errors import CrediblyError, FileFormatError, OutputError
from credibly.io.fingerprints import digest_of_space, name_of_callable
from credibly.io.source import Watch
from credibly.profile.arguments import ticking
from credibly.solve.loop import Tick
from credibly.types import Progress
from credibly.version import __version__

ROUNDS = 3
"""How often parts are made again that are damaged when they are joined."""

OTHER_FORMATS = frozenset({".csv", ".tsv", ".txt", ".json", ".npz", ".npy", ".xlsx", ".feather"})
"""Names that would promise something else than Parquet."""

Table = Any
Tables = Callable[[int], Table]
"""From the number of the first row of a chunk to its table."""


def check_sizes(chunk_size: int, shard_size: int) -> tuple[int, int]:
    """Return rows per chunk and per shard, which is a whole number of chunks."""
    check_chunk_size(chunk_size)
    check_chunk_size(shard_size, "shard_size")
    chunk = int(chunk_size)  # JSON knows no NumPy integers
    return chunk, -(-int(shard_size) // chunk) * chunk


@dataclass(frozen=True)
class Run:
    """Rows on their way into one file; the output is checked at once.

    Attributes:
        rows: what is read, and how.
        shards: finished rows, and the output.
        resume: whether the parts of an earlier run are kept.
        overwrite: whether a finished file may be replaced.
        watch: over the input, from now on.
    """

    rows: Rows
    shards: Shards
    resume: bool
    overwrite: bool
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        killed = self.shards.path.is_dir()  # then the output may be one that was just finished
        self._check_output(overwrite=self.overwrite or killed)
        object.__setattr__(self, "watch", Watch(self.rows.source))

    def complete(
        self,
        settings: Mapping[str, Any],
        resolve: Callable[[], Mapping[str, Any]],
        work: Callable[[Mapping[str, Any]], Tables],
        *,
        progress: Progress,
    ) -> int:
        """Write the output, and return how many rows were finished before.

        Args:
            settings: everything that decides the rows, by name.
            resolve: called once for all starts of a run; what it gives is recorded.
            work: from what was recorded to a function that makes the table of a chunk.
            progress: True shows a bar; a function is called with the share done.
        """
        shards, finished = self.shards, len(self.rows.source)
        with shards.lock(shards.out), ticking(progress) as tick:
            if self.overwrite or not shards.is_finished(settings):
                self._check_still_free()
                self._drop_unknown()
                found = shards.begin(settings, lambda: self._resolve_or_leave(resolve))
                finished = self._fill_and_merge(work(found), tick or (lambda _share: None))
            shards.remove()
        return finished

    def _check_output(self, *, overwrite: bool) -> None:
        """Refuse an output that cannot or must not be written; the first reason is named."""
        out, name_a_file = self.shards.out, self.shards.format.remedy
        regular = out.is_file()
        wrong = [
            (not out.parent.is_dir(), f": the folder {out.parent} does not exist",
             "Make it first."),
            (out.is_dir(), " is a folder", name_a_file),
            (out.exists() and not regular, " is not a plain file", name_a_file),
            (out.suffix.lower() in OTHER_FORMATS, ": the result is always a Parquet file",
             "Name it .parquet; pandas.read_parquet(...).to_csv(...) converts it."),
            (regular and self.rows.source.reads(out), " is the file to be read",
             "Choose another name."),
            (out.is_symlink(), f" is a link to {out.resolve()}",
             "Name the file itself, or another one."),
            (regular and not overwrite, " exists already",
             "Choose another name, or replace it with overwrite=True (--overwrite)."),
        ]  # fmt: skip
        for holds, problem, remedy in wrong:
            if holds:
                raise OutputError(f"{out}{problem}", remedy=remedy)

    def _check_still_free(self) -> None:
        """Check again under the lock: another run may have finished since."""
        try:
            self._check_output(overwrite=self.overwrite)
        except OutputError:
            self.shards.leave()
            raise

    def _drop_unknown(self) -> None:
        """Drop the parts of an earlier run if asked to, or if nothing is known about them."""
        known, other = False, self.shards.kind_of_others()
        if self.resume and other is not None:
            raise OutputError(
                f"{self.shards.path} belongs to an interrupted run of another kind ({other})",
                remedy="Finish that run, choose another output, or drop its rows with "
                "resume=False (--restart).",
            )
        with suppress(FileFormatError):
            known = bool(self.shards.read())
        if not (self.resume and known):
            self.shards.clear()

    def _resolve_or_leave(self, resolve: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Resolve what the first start records; remove the folder if that fails."""
        try:
            return resolve()
        except CrediblyError:
            self.shards.remove()
            raise

    def _fill_and_merge(self, tables: Tables, tick: Tick) -> int:
        """Make what is missing and join it; return how many rows were finished before."""
        rows, shard = len(self.rows.source), self.rows.shard
        sizes = [min(shard, rows - start) for start in range(0, rows, shard)]
        resumed: int | None = None
        for _ in range(ROUNDS):
            missing = self.shards.missing(sizes)
            done = rows - sum(sizes[number] for number in missing)
            resumed = done if resumed is None else resumed
            tick(done / rows)
            for number in missing:
                parts = []
                for table in self._fill(tables, number * shard):
                    parts.append(table)
                    done += table.num_rows
                    tick(done / rows)
                self.shards.add(number, number * shard, parts)
            _compare_or_remove(self.watch, self.shards)
            with suppress(DamagedShardError):
                self.shards.merge(len(sizes))
                return resumed
        raise OutputError(
            f"{self.shards.path} does not give back what was written to it",
            remedy="Its disk is failing, or another program changes its files. Choose another "
            "place.",
        )

    def _fill(self, tables: Tables, start: int) -> Iterator[Table]:
        """Make the chunks of one shard; an input that has changed meanwhile is refused."""
        stop = min(start + self.rows.shard, len(self.rows.source))
        for first in range(start, stop, self.rows.chunk):
            table = tables(first)
            self.watch.look(first, min(first + self.rows.chunk, stop))
            yield table


def _compare_or_remove(watch: Watch, shards: Shards) -> None:
    """Refuse an input that changed unnoticed; it is not known which of the parts are right."""
    try:
        watch.compare()
    except FileFormatError:
        shards.remove()
        raise


def settings_of(rows: Rows) -> dict[str, Any]:
    """Return what of the model, the reader and the versions decides the rows, by name."""
    clf = rows.clf
    reading = {k: v for k, v in rows.source.describe().items() if k != "name"}
    return {
        "loss": repr(clf.loss),
        "outputs": clf.outputs,
        "classes": clf.classes,
        "bounds": rows.bounds,
        "module": clf.module,
        "preprocess": name_of_callable(clf.preprocess),
        "pick": name_of_callable(clf.pick),
        "space": None if clf.space is None else clf.space.describe(),
        "space fingerprint": None if clf.space is None else digest_of_space(clf.space),
        "device": None if clf.device is None else clf.device.type,
        "dtype": str(clf.dtype),
        "chunk_size": rows.chunk,
        "shard_size": rows.shard,
        "versions": {  # another one may round differently
            "credibly": __version__,
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        **{f"data {name}": value for name, value in reading.items()},
    }
