"""`credibly score`: profiles of every row of a file, into one Parquet file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from credibly.cli import options as o
from credibly.cli.progress import showing
from credibly.cli.spread import spread


@spread()
def score(
    model: o.Model,
    data: o.Data,
    *,
    out: Annotated[Path, typer.Option(help="The Parquet file to write.")],
    gamma: o.Gamma = "auto",
    bounds: o.BoundsPair = None,
    effort: o.Effort = 1.0,
    chunk_size: o.ChunkSize = 128,
    shard_size: Annotated[int, typer.Option(min=1, help="Rows kept at a time.")] = 1024,
    restart: Annotated[bool, typer.Option("--restart", help="Drop an interrupted run.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a finished output.")
    ] = False,
    of_model: o.ModelOptions,
    of_data: o.DataOptions,
) -> None:
    """Solve the profile of every row of DATA; started again, it goes on where it was."""
    from credibly.batch.score import score as score_rows
    from credibly.solve.hybrid import Hybrid

    console = Console(highlight=False)
    with o.plain_warnings():
        source = of_data.open(data)
        loaded = of_model.load(model)
        try:
            with _bar(len(source)) as tick:
                report = score_rows(
                    loaded,
                    source,
                    out,
                    gamma=o.as_gamma(gamma),
                    solver=Hybrid(effort=effort),
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
    console.print(o.as_options(report.summary()), markup=False, soft_wrap=True)
    if not report.has_profiles:  # all went through, and nobody should take it for a success
        console.print("no row has a profile", markup=False)
        raise typer.Exit(1)


class _Speed(ProgressColumn):
    """Rows a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("- rows/s" if speed is None else f"{speed:.3g} rows/s")


def _bar(rows: int) -> AbstractContextManager[Callable[[float], None]]:
    columns = (
        TextColumn("solving"), BarColumn(), MofNCompleteColumn(), _Speed(), TimeRemainingColumn(),
    )  # fmt: skip
    return showing(rows, "rows", columns)
