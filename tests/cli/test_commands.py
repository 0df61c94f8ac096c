"""What the help shows, and how bounds are read."""

import pytest
from typer.testing import CliRunner

from credibly.cli.app import app


def helped(*arguments):
    result = CliRunner().invoke(app, [*arguments, "--help"], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ([], ["--version", "--help"]),
        (["demo"], ["--pictures", "--help"]),
        (["score"], ["--restart", "--overwrite", "--unsafe-pickle", "--help"]),
        (["evaluate"], ["--corruptions", "--unsafe-pickle", "--help"]),
        (["inspect"], ["--unsafe-pickle"]),
    ],
)
def test_flags_look_like_flags(command, flags):
    text = helped(*command)
    lines = text.splitlines()
    for flag in flags:
        words = next(line for line in lines if f" {flag} " in line).split()
        assert words[words.index(flag) + 1][0].isupper()  # the help itself, not a type
    assert "bool" not in text.lower()


@pytest.mark.parametrize("command", ["score", "evaluate", "inspect"])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--bounds", "0,1", "--limit", "3"], "valid"),
        (["--bounds=0,1"], "requires 2 arguments"),
        (["--bounds", "0"], "requires 2 arguments"),
        (["--bounds", "-1", "high"], "valid"),
    ],
)
def test_bounds_that_are_not_two_numbers_are_refused(command, given, words):
    options = [*given] if command == "inspect" else ["--out", "o", *given]
    result = CliRunner().invoke(app, [command, "m:f", "x.npy", *options], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "--bounds" in result.output
    assert words in result.output


@pytest.mark.parametrize("given", [["--bounds", "-1", "1"], ["--bounds=-1", "1"]])
def test_a_pair_is_read(given):
    result = CliRunner().invoke(app, ["score", "m:f", "no.npy", *given, "--out", "o.parquet"])
    assert "no.npy: no such file" in str(result.exception)
