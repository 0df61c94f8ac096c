import inspect
from dataclasses import dataclass, fields
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from credibly.cli import options
from credibly.cli.evaluate import evaluate
from credibly.cli.inspect import inspect as inspect_model
from credibly.cli.options import spread
from credibly.cli.score import score
from credibly.errors import InvalidArgumentError


@dataclass(frozen=True, kw_only=True)
class Colour:
    shade: Annotated[str, typer.Option(help="Which one.")] = "red"
    depth: Annotated[int, typer.Option(min=1)] = 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["wall"], "wall red 3"),
        (["wall", "--shade", "blue", "--depth", "5"], "wall blue 5"),
        (["wall", "--depth", "0"], "--depth"),
    ],
)
def test_fields_of_a_group_are_options_of_their_own(arguments, words):
    @spread
    def paint(what: str, *, colour: Colour) -> None:
        typer.echo(f"{what} {colour.shade} {colour.depth}")

    app = typer.Typer()
    app.command()(paint)
    assert words in CliRunner().invoke(app, arguments).output


@pytest.mark.parametrize("command", [inspect_model, score, evaluate])
def test_the_commands_offer_every_shared_option(command):
    groups = (options.ModelOptions, options.DataOptions)
    shared = {field.name: field.default for group in groups for field in fields(group)}
    offered = inspect.signature(command).parameters
    missing = {name for name in shared if name not in offered}
    assert not missing
    assert all(offered[name].default == shared[name] for name in shared if name in offered)


def test_a_file_of_names_that_is_not_there_is_no_name_of_a_class(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError, match=r"'names\.txt', which is not a file"):
        options._class_names("names.txt")
    (tmp_path / "names.txt").write_text("cat\n\ndog\n")
    assert options._class_names("names.txt") == options._class_names("cat, dog") == ["cat", "dog"]
