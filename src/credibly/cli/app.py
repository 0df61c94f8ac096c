"""The commands, gathered."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from credibly.cli.commands import Command, Group
from credibly.cli.decide import decide
from credibly.cli.demo import demo
from credibly.cli.env import env
from credibly.cli.evaluate import evaluate
from credibly.cli.inspect import inspect
from credibly.cli.options import as_options
from credibly.cli.sample import sample
from credibly.cli.score import score
from credibly.errors import CrediblyError
from credibly.version import __version__


class _App(typer.Typer):
    """Turns the package's own errors into one line and exit code 2."""

    def __call__(self, *args: object, **kwargs: object) -> object:
        try:
            return super().__call__(*args, **kwargs)
        except CrediblyError as error:
            Console(stderr=True).print(
                f"[bold red]error:[/] {escape(as_options(str(error)))}",
                highlight=False,
                soft_wrap=True,
            )
            sys.exit(2)


app = _App(
    name="credibly",
    help="How much should you trust this prediction?",
    no_args_is_help=True,
    cls=Group,
    pretty_exceptions_enable=False,
)
app.command(cls=Command)(demo)
app.command(cls=Command)(sample)
app.command(cls=Command)(inspect)
app.command(cls=Command)(score)
app.command(cls=Command)(decide)
app.command(cls=Command)(evaluate)
app.command(cls=Command)(env)


def _show_version(wanted: bool) -> None:  # noqa: FBT001  # the signature typer calls
    if wanted:
        Console().print(f"credibly {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """How much should you trust this prediction?"""
