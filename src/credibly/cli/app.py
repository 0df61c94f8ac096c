"""The commands, gathered."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from credibly.cli.console import print_error, print_text
from credibly.cli.decide import decide
from credibly.cli.demo import demo
from credibly.cli.drift import drift
from credibly.cli.env import env
from credibly.cli.evaluate import evaluate
from credibly.cli.explore import explore
from credibly.cli.fit import fit
from credibly.cli.inspect import inspect
from credibly.cli.judge import judge
from credibly.cli.options import as_options
from credibly.cli.sample import sample
from credibly.cli.score import score
from credibly.cli.serve import serve
from credibly.cli.verify import verify
from credibly.errors import CrediblyError
from credibly.version import __version__


class _PlainFlags:
    """Shows flags without the type <bool> in the help: they take no value."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        base: Any = super()
        for parameter in base.get_params(ctx):
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        base.format_help(ctx, formatter)


class _Command(_PlainFlags, TyperCommand):
    pass


class _Group(_PlainFlags, TyperGroup):
    pass


class _App(typer.Typer):
    """Turns the package's own errors into one line and exit code 2."""

    def __call__(self, *args: object, **kwargs: object) -> object:
        try:
            return super().__call__(*args, **kwargs)
        except CrediblyError as error:
            print_error(f"error: {as_options(str(error))}", "red")
            sys.exit(2)


app = _App(
    name="credibly",
    help="How much should you trust this prediction?",
    no_args_is_help=True,
    cls=_Group,
    pretty_exceptions_enable=False,
)
COMMANDS = (
    demo, sample, inspect, fit, judge, drift, serve, score, verify, decide, evaluate, explore, env,
)  # fmt: skip
for command in COMMANDS:
    app.command(cls=_Command)(command)


def _show_version(wanted: bool) -> None:  # noqa: FBT001  # the signature typer calls
    if wanted:
        print_text(f"credibly {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """How much should you trust this prediction?"""
