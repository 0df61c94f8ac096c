"""`credibly score`: profiles of every row of a file, in Parquet."""

from __future__ import annotations

from typing import Annotated

import typer

from credibly.cli import options as o
from credibly.cli.console import print_text
from credibly.cli.running import Out, RunOptions, following


@o.spread
def score(
    model: o.Model,
    data: o.Data,
    *,
    out: Out,
    gamma: o.Gamma = "auto",
    bounds: o.BoundsPair = None,
    effort: o.Effort = 1.0,
    top: Annotated[
        int | None,
        typer.Option(min=1, help="Ask about this many probable classes, the others as one."),
    ] = None,
    chunk_size: o.ChunkSize = 128,
    of_run: RunOptions,
    of_model: o.ModelOptions,
    of_data: o.DataOptions,
) -> None:
    """Solve the profile of every row of DATA; an interrupted run continues when started again."""
    from credibly.batch.score import score as score_rows
    from credibly.solve.gradient_descent import Hybrid

    with o.plain_warnings():
        source = of_data.open(data)
        loaded = of_model.load(model)
        with following("solving", len(source)) as follower:
            report = score_rows(
                loaded,
                source,
                out,
                gamma=o.as_gamma(gamma),
                solver=Hybrid(effort=effort),
                bounds=bounds,
                top=top,
                chunk_size=chunk_size,
                progress=follower,
                **of_run.arguments(),
            )
    print_text(o.as_options(report.summary()))
    if not report.has_profiles:  # every row was handled, but this is not a success
        print_text("no row has a profile")
        raise typer.Exit(1)
