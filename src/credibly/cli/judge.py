"""`credibly judge`: a verdict on every row of a file, in Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from credibly.cli import options as o
from credibly.cli.console import print_text
from credibly.cli.running import Out, RunOptions, following


@o.spread
def judge(
    model: o.Model,
    data: o.Data,
    *,
    judge: Annotated[Path, typer.Option(help="The folder that `fit` wrote.")],
    out: Out,
    chunk_size: Annotated[
        int | None,
        typer.Option(min=1, help="Rows judged at a time.", show_default="that of the Judge"),
    ] = None,
    of_run: RunOptions,
    of_model: o.ModelOptions,
    of_data: o.DataOptions,
) -> None:
    """Judge every row of DATA; an interrupted run continues when started again."""
    from credibly.batch.judge import judge_file
    from credibly.decide.judge import Judge

    with o.plain_warnings():
        source = of_data.open(data)
        loaded = of_model.load(model)
        fitted = Judge.load(judge, loaded)
        with following("judging", len(source)) as follower:
            report = judge_file(
                fitted,
                source,
                out,
                chunk_size=chunk_size,
                progress=follower,
                fingerprint=loaded,
                **of_run.arguments(),
            )
    print_text(report.summary())
    if not report.has_verdicts:  # every row was handled, but this is not a success
        print_text("no row could be judged")
        raise typer.Exit(1)
