"""Options of the commands that work through a file, and what they show meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from credibly.cli.console import Bar, Lines, resumable, show_progress

if TYPE_CHECKING:
    from credibly.batch.engines import Engine
    from credibly.batch.progress import Follower, Pulse

Out = Annotated[
    str,
    typer.Option(metavar="FILE", help="The Parquet file to write, here or in a store (s3://...)."),
]


def _run(help: str, *names: str, **more: Any) -> Any:  # noqa: A002  # typer's word
    return typer.Option(*names, help=help, rich_help_panel="The run", **more)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options about the run: its parts, and who does the work."""

    shard_size: Annotated[int, _run("Rows per part of the output.", min=1)] = 1024
    folder: Annotated[
        bool, _run("Write a folder of one file per part; nothing is joined.", "--folder")
    ] = False
    restart: Annotated[bool, _run("Drop an interrupted run.", "--restart")] = False
    overwrite: Annotated[bool, _run("Replace a finished output.", "--overwrite")] = False
    status: Annotated[Path | None, _run("A JSON file that always says how far the run is.")] = None
    engine: Annotated[
        Literal["local", "ray"], _run("Who does the work: this process, or workers of Ray.")
    ] = "local"
    address: Annotated[
        str | None,
        _run("HOST:PORT of the head of a Ray cluster, or 'auto'; else one is started here."),
    ] = None
    workers: Annotated[
        int | None, _run("Workers of Ray.", min=1, show_default="as many as there is room for")
    ] = None
    gpus_per_worker: Annotated[
        float | None, _run("GPUs of each worker.", min=0, show_default="0")
    ] = None
    cpus_per_worker: Annotated[
        float | None, _run("CPUs, and threads, of each worker.", show_default="1")
    ] = None
    working_dir: Annotated[
        Path | None, _run("A folder that is sent to the workers, for a model whose code is in it.")
    ] = None

    def find_engine(self) -> Engine:
        """Return the engine; options of Ray without it are refused."""
        from credibly._validation import require
        from credibly.batch.engines import Local
        from credibly.batch.ray_engine import Ray

        names = ("address", "workers", "gpus_per_worker", "cpus_per_worker", "working_dir")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.engine == "ray":
            return Ray(**given)
        options = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        wanted, got = f"'ray', to which {options} belongs", repr(self.engine)
        require(not given, "engine", wanted, got, f"Add --engine ray, or leave out {options}.")
        return Local()

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `score` and `judge_file`."""
        return {
            "shard_size": self.shard_size,
            "folder": self.folder,
            "resume": not self.restart,
            "overwrite": self.overwrite,
            "status": self.status,
            "engine": self.find_engine(),
        }


@contextmanager
def following(doing: str, rows: int) -> Iterator[Follower]:
    """Show how far a run is, and who works on it; Ctrl-C ends it so that it can be continued."""
    from credibly.batch.progress import Follower

    class Shown(Follower):
        def __init__(self, tick: Bar | Lines) -> None:
            self.tick = tick

        def see(self, pulse: Pulse) -> None:
            self.tick.note = _words(pulse)
            self.tick(pulse.share)

    with resumable(), show_progress(doing, rows, "rows") as tick:
        yield Shown(tick)


def _words(pulse: Pulse) -> str:
    """What is to be said beside the share done; nothing where all is as usual."""
    counted = []
    if pulse.engine != "local":
        counted.append((pulse.workers, "worker", "workers"))
        counted += [(pulse.retries, "shard retried", "shards retried")] if pulse.retries else []
    if pulse.failed:
        counted.append((pulse.failed, "row not usable", "rows not usable"))
    found = [f"{count} {one if count == 1 else many}" for count, one, many in counted]
    return ", ".join([*found, pulse.note] if pulse.note else found)
