"""A run from disk to disk: shards of finished rows, joined at the end, safe to interrupt."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from credibly._validation import chunk_size as check_chunk_size
from credibly.batch.engines import Engine
from credibly.batch.formats import STATUS, Format
from credibly.batch.outputs import check_output, check_status
from credibly.batch.progress import Pulse, Reporter, reporting
from credibly.batch.rows import Rows
from credibly.batch.shards import DamagedShardError, Shards
from credibly.batch.store_shards import shards_at
from credibly.batch.work import Maker, Plan, Work
from credibly.errors import CrediblyError, FileFormatError, OutputError
from credibly.io.fingerprints import digest_of_space, name_of_callable
from credibly.io.places import Place
from credibly.io.source import Watch
from credibly.io.stores import place_of
from credibly.types import Progress
from credibly.version import __version__

ROUNDS = 3
"""How often parts are made again that are damaged when they are joined."""


def check_sizes(chunk_size: int, shard_size: int) -> tuple[int, int]:
    """Return rows per chunk and per shard, which is a whole number of chunks."""
    check_chunk_size(chunk_size)
    check_chunk_size(shard_size, "shard_size")
    chunk = int(chunk_size)  # JSON knows no NumPy integers
    return chunk, -(-int(shard_size) // chunk) * chunk


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where the rows go, and how.

    Attributes:
        out: a file, or a folder of one file per shard.
        folder: whether it is a folder.
        resume: whether the parts of an earlier run are kept.
        overwrite: whether a finished output may be replaced.
        engine: which makes the shards.
        progress: True shows a bar; a function is called with the share done.
        status: a file for the state of the run that stays; else it is among the parts.
    """

    out: str | Path | Place
    folder: bool
    resume: bool
    overwrite: bool
    engine: Engine
    progress: Progress
    status: str | Path | None

    def shards(self, kind: Format) -> Shards:
        """Return the shards of the output."""
        return shards_at(self.out, kind, folder=self.folder)


@dataclass(frozen=True)
class Run:
    """Rows on their way to an output, which is checked at once.

    Attributes:
        rows: what is read, and how.
        output: where the rows go, and how.
        format: of the output.
        shards: finished rows, and the output.
        watch: over the input, from now on.
    """

    rows: Rows
    output: Output
    format: Format
    shards: Shards = field(init=False)
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shards", self.output.shards(self.format))
        check_status(self.shards, self.rows.source, self.output.status)
        killed = self.shards.exists()  # then the output may be one that was just finished
        check_output(self.shards, self.rows.source, overwrite=self.output.overwrite or killed)
        object.__setattr__(self, "watch", Watch(self.rows.source))

    def complete(
        self,
        settings: Mapping[str, Any],
        resolve: Callable[[], Mapping[str, Any]],
        maker: Callable[[Mapping[str, Any]], Maker],
    ) -> int:
        """Write the output, and return how many rows were finished before.

        Args:
            settings: everything that decides the rows, by name.
            resolve: called once for all starts of a run; what it gives is recorded.
            maker: from what was recorded to what makes the table of a chunk.
        """
        shards, status, own = self.shards, self.output.status, self.settings()
        settings = {**settings, **own, "data": self.watch.digest}
        file = shards.home / STATUS if status is None else place_of(status)
        pulse = Pulse(str(shards.out), self.output.engine.name, len(self.rows.source))
        following = reporting(
            pulse, self.output.progress, file, is_begun=shards.is_begun, keep=status is not None
        )
        finished = len(self.rows.source)
        with shards.lock(shards.out), following as reporter:
            if self.output.overwrite or not shards.is_finished(settings):
                self._check_still_free()
                found = self._begin(settings, resolve)
                shards.prepare()
                finished = self._fill_and_finish(maker(found), reporter)
            shards.remove()
        return finished

    def settings(self) -> dict[str, Any]:
        """Return what of the model, the reader and the versions decides the rows, by name."""
        known = settings_of(self.rows, self.output.engine.device(self.rows.clf))
        return {**known, **({"layout": "folder"} if self.shards.in_folder else {})}

    def _check_still_free(self) -> None:
        """Check again under the lock: another run may have finished since."""
        begun = self.shards.is_begun_here()  # its own shards are there
        try:
            check_output(self.shards, self.rows.source, overwrite=self.output.overwrite or begun)
        except OutputError:
            self.shards.leave()
            raise

    def _begin(
        self, settings: Mapping[str, Any], resolve: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return what the first start recorded; a new run is checked before anything is dropped."""
        if self._continues():
            return self.shards.begin(settings)
        try:
            found = resolve()
        except BaseException:
            self.shards.leave()
            raise
        self.shards.drop()
        return self.shards.begin(settings, lambda: found)

    def _continues(self) -> bool:
        """Return whether there are parts of an earlier run, which are known and to be kept."""
        other = self.shards.kind_of_others()
        if self.output.resume and other is not None:
            raise OutputError(
                f"{self.shards} belongs to an interrupted run of another kind ({other})",
                remedy="Finish that run, choose another output, or drop its rows with "
                "resume=False (--restart).",
            )
        try:
            return self.output.resume and bool(self.shards.read())
        except FileFormatError:
            return False

    def _fill_and_finish(self, maker: Maker, reporter: Reporter) -> int:
        """Make what is missing, and the output; return how many rows were finished before."""
        plan = Plan(len(self.rows.source), self.rows.shard, self.rows.chunk)
        work = Work(plan, maker, self.shards.writer(), self.watch)
        sizes, pulse = plan.sizes(), reporter.pulse
        for turn in range(ROUNDS):
            missing = self.shards.missing(sizes)
            pulse.done = plan.rows - sum(sizes[number] for number in missing)
            pulse.resumed = pulse.resumed if turn else pulse.done
            reporter.show()
            if missing:
                with self._unless_nothing_came(sizes):
                    self.output.engine.run(work, missing, reporter)
            _compare_or_remove(self.watch, self.shards)
            with suppress(DamagedShardError):
                self.shards.finish(len(sizes))
                return pulse.resumed
        raise OutputError(
            f"{self.shards} does not give back what was written to it",
            remedy="Its disk is failing, or another program changes its files. Choose another "
            "place.",
        )

    @contextmanager
    def _unless_nothing_came(self, sizes: Sequence[int]) -> Iterator[None]:
        """Remove the parts where an error leaves no finished one: the next try may differ."""
        try:
            yield
        except CrediblyError:
            with suppress(CrediblyError):
                if len(self.shards.missing(sizes)) == len(sizes):
                    self.shards.drop()
                    self.shards.leave()
            raise


def _compare_or_remove(watch: Watch, shards: Shards) -> None:
    """Refuse an input that changed unnoticed; it is not known which of the parts are right."""
    try:
        watch.compare()
    except FileFormatError:
        shards.drop()
        shards.leave()
        raise


def settings_of(rows: Rows, device: str | None) -> dict[str, Any]:
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
        "device": device,
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
