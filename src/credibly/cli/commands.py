"""How commands are read and shown: what typer says in its own way, said plainly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

from credibly.errors import InvalidArgumentError


class Command(TyperCommand):
    """A command whose pair of bounds is explained, and whose flags look like flags."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, after a look at what people write for a pair."""
        _check_pair(args, "--bounds")
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show the help."""
        _bare_flags(self.get_params(ctx))
        super().format_help(ctx, formatter)


class Group(TyperGroup):
    """The same for the options before the command."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show the help."""
        _bare_flags(self.get_params(ctx))
        super().format_help(ctx, formatter)


def _bare_flags(parameters: Sequence[Any]) -> None:
    """A flag takes no value, so that none is named beside it."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""


def _check_pair(args: Sequence[str], option: str) -> None:
    for place, word in enumerate(args):
        name, joined, value = word.partition("=")
        if name != option:
            continue
        given = [*([value] if joined else []), *args[place + 1 : place + 3]][:2]
        wrong = [text for text in given if not _is_number(text)]
        if wrong or len(given) < 2:
            raise InvalidArgumentError(
                option.removeprefix("--"),
                expected=f"two numbers: {option} 0 1",
                got=repr(wrong[0]) if wrong else f"{len(given)} of them",
                remedy="The smallest and the largest value, with a space between them.",
            )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
