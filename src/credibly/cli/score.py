"""`credibly score`: profiles of every row of a file, into one Parquet file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from credibly.cli import options as o


def score(
    model: o.Model,
    data: o.Data,
    *,
    out: Annotated[Path, typer.Option(help="The Parquet file to write.")],
    gamma: o.Gamma = "auto",
    bounds: o.BoundsPair = None,
    chunk_size: o.ChunkSize = 128,
    shard_size: Annotated[int, typer.Option(min=1, help="Rows kept at a time.")] = 1024,
    restart: Annotated[bool, typer.Option("--restart", help="Drop an interrupted run.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a finished output.")
    ] = False,
    weights: o.Weights = None,
    outputs: o.Outputs = None,
    loss: o.Loss = None,
    classes: o.Classes = None,
    preprocess: o.Preprocess = None,
    dtype: o.Dtype = None,
    device: o.Device = None,
    trust: o.Trust = None,
    unsafe_pickle: o.UnsafePickle = False,
    key: o.Key = None,
    columns: o.Columns = None,
    drop: o.Drop = None,
    id_column: o.Id = None,
    scale: o.Scale = None,
    size: o.Size = None,
    mode: o.Mode = None,
    limit: o.Limit = None,
) -> None:
    """Solve the profile of every row of DATA; started again, it goes on where it was."""
    from credibly.batch.score import score as score_rows

    console = Console(highlight=False)
    with o.plain_warnings():
        source = o.open_data(
            data, columns=columns, drop=drop, size=size, key=key, id_column=id_column,
            scale=scale, mode=mode, limit=limit,
        )  # fmt: skip
        loaded = o.load_model(
            model, trust=trust, unsafe=unsafe_pickle, classes=classes, dtype=dtype,
            weights=weights, outputs=outputs, loss=loss, preprocess=preprocess, device=device,
        )  # fmt: skip
        try:
            with _bar(len(source)) as tick:
                report = score_rows(
                    loaded,
                    source,
                    out,
                    gamma=o.as_gamma(gamma),
                    bounds=bounds,
                    chunk_size=chunk_size,
                    shard_size=shard_size,
                    resume=not restart,
                    overwrite=overwrite,
                    progress=tick,
                )
        except KeyboardInterrupt:
            console.print("\nstopped; the same command goes on where it was", markup=False)
            raise typer.Exit(130) from None
    console.print(report.summary(), markup=False, soft_wrap=True)


class _Speed(ProgressColumn):
    """Rows a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("- rows/s" if speed is None else f"{speed:.3g} rows/s")


@contextmanager
def _bar(rows: int) -> Iterator[Callable[[float], None]]:
    """A bar on the error stream; rows of an earlier run count as done, not as speed."""
    columns = (
        TextColumn("solving"), BarColumn(), MofNCompleteColumn(), _Speed(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("rows", total=rows)
        begun = False

        def tick(share: float) -> None:
            nonlocal begun
            done = round(share * rows)
            if begun:
                bar.update(task, completed=done)
            else:
                bar.reset(task, completed=done)
                begun = True

        yield tick
