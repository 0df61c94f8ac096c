"""What the help shows, and how bounds are read."""

import pytest
from typer.testing import CliRunner

from credibly.cli.app import app
from credibly.cli.options import as_options


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
        (["fit"], ["--by-class", "--overwrite", "--unsafe-pickle", "--help"]),
        (["judge"], ["--restart", "--overwrite", "--unsafe-pickle", "--help"]),
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


def test_fit_and_judge_come_before_what_they_are_made_of():
    text = helped()
    places = [text.index(f" {name} ") for name in ("inspect", "fit", "judge", "score", "decide")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("fit", ["--labels", "--false-alarms", "--error-rate", "--confidence", "--profile",
                 "--gamma", "--features", "--chunk-size", "--out", "--columns", "--weights"]),
        ("judge", ["--judge", "--out", "--chunk-size", "--shard-size", "--columns", "--weights"]),
    ],
)  # fmt: skip
def test_the_options_of_a_judge_are_in_its_help(command, options):
    text = helped(command)
    assert [name for name in options if f" {name} " not in text] == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["fit", "m:f", "x.npy"], "--out"),
        (["judge", "m:f", "x.npy", "--out", "v.parquet"], "--judge"),
        (["fit", "m:f", "x.npy", "--out", "judge", "--profile", "some"], "doubtful"),
        (["fit", "m:f", "x.npy", "--out", "judge", "--chunk-size", "0"], "--chunk-size"),
    ],
)
def test_missing_and_wrong_options_are_refused(given, words):
    result = CliRunner().invoke(app, given, env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert words in result.output


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("`id_column`: expected columns of x: a", "--id: expected columns of x: a"),
        ("only columns, drop, id_column, label with", "only columns, drop, --id, label with"),
        ("Pass scale=255 (--scale 255), or scale=1.", "Pass --scale 255, or --scale 1."),
        ("for example size=224.", "for example --size 224."),
        ("expected a folder, got PosixPath('nodir').", "expected a folder, got 'nodir'."),
        ("`gpus_per_worker`: expected a number", "--gpus-per-worker: expected a number"),
        ("chunk_size was 4 and is now 8", "--chunk-size was 4 and is now 8"),
        ("`path`: expected the name of inputs", "DATA: expected the name of inputs"),
    ],
)  # fmt: skip
def test_messages_name_options_and_no_arguments_of_python(message, expected):
    assert as_options(message) == expected


@pytest.mark.parametrize("command", ["score", "judge", "inspect"])
def test_an_empty_name_of_data_is_not_the_working_folder(command):
    more = {"score": ["--out", "o"], "judge": ["--out", "o", "--judge", "j"], "inspect": []}
    result = CliRunner().invoke(app, [command, "m:f", "", *more[command]], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "data" in result.output.lower()
    assert "got an empty name" in result.output
