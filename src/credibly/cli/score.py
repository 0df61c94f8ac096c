"""`credibly score`: profiles of every row of a file, in one Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from credibly.cli import options as o
from credibly.cli.console import print_text, resumable, show_progress


@o.spread
def score(
    model: o.Model,
    data: o.Data,
    *,
    out: Annotated[Path, typer.Option(help="The Parquet file to write.")],
    gamma: o.Gamma = "auto",
    bounds: o.BoundsPair = None,
    effort: o.Effort = 1.0,
    top: Annotated[
        int | None,
        typer.Option(min=1, help="Ask about this many probable classes, the others as one."),
    ] = None,
    chunk_size: o.ChunkSize = 128,
    shard_size: o.ShardSize = 1024,
    restart: o.Restart = False,
    overwrite: o.Overwrite = False,
    of_model: o.ModelOptions,
    of_data: o.DataOptions,
) -> None:
    """Solve the profile of every row of DATA; an interrupted run continues when started again."""
    from credibly.batch.score import score as score_rows
    from credibly.solve.gradient_descent import Hybrid

    with o.plain_warnings():
        source = of_data.open(data)
        loaded = of_model.load(model)
        with resumable(), show_progress("solving", len(source), "rows") as tick:
            report = score_rows(
                loaded,
                source,
                out,
                gamma=o.as_gamma(gamma),
                solver=Hybrid(effort=effort),
                bounds=bounds,
                top=top,
                chunk_size=chunk_size,
                shard_size=shard_size,
                resume=not restart,
                overwrite=overwrite,
                progress=tick,
            )
    print_text(o.as_options(report.summary()))
    if not report.has_profiles:  # every row was handled, but this is not a success
        print_text("no row has a profile")
        raise typer.Exit(1)
