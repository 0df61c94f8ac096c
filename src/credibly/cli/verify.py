"""`credibly verify`: whether what `score` or `judge` wrote is all there and whole."""

from __future__ import annotations

from typing import Annotated

import typer

from credibly.cli.console import print_text, show_progress


def verify(
    out: Annotated[str, typer.Argument(help="The file or folder that `score` or `judge` wrote.")],
    *,
    reopen: Annotated[
        bool,
        typer.Option(
            "--reopen",
            help="Make an interrupted run of a folder with damaged files: the command that wrote "
            "it then makes only these again.",
        ),
    ] = False,
) -> None:
    """Read every byte of OUT: is everything there and whole, and what to run if not."""
    from credibly.batch.verify import verify_output

    with show_progress("verifying", 100, "per cent") as tick:
        found = verify_output(out, reopen=reopen, progress=tick)
    print_text(found.summary())
    if not found.is_whole:
        raise typer.Exit(1)
