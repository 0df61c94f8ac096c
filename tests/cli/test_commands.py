"""What people type and see, where typer would say it in its own way."""

import pytest
from typer.testing import CliRunner

from credibly.cli.app import app
from credibly.errors import InvalidArgumentError


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
    ("given", "got"),
    [
        (["--bounds", "0,1"], "got '0,1'"),
        (["--bounds", "0,1", "--limit", "3"], "got '0,1'"),
        (["--bounds=0,1"], "got '0,1'"),
        (["--bounds", "0"], "got 1 of them"),
        (["--bounds"], "got 0 of them"),
        (["--bounds", "-1", "high"], "got 'high'"),
    ],
)
def test_a_pair_that_is_none_is_shown_how_to_write_it(command, given, got):
    with pytest.raises(InvalidArgumentError, match="two numbers: --bounds 0 1") as caught:
        CliRunner().invoke(app, [command, "m:f", "x.npy", *given], catch_exceptions=False)
    assert got in str(caught.value)


@pytest.mark.parametrize("given", [["--bounds", "-1", "1"], ["--bounds=-1", "1"]])
def test_a_pair_is_read(given):
    result = CliRunner().invoke(app, ["score", "m:f", "no.npy", *given, "--out", "o.parquet"])
    assert "no.npy: no such file" in str(result.exception)
