"""Watches over files of verdicts: the same as over judgements, and what the command writes."""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

import credibly as cr
from credibly.cli.app import app
from credibly.decide.drift_engine import Trace
from credibly.decide.drift_history import POINTS, DriftHistory
from credibly.decide.drift_verdicts import open_verdicts
from credibly.errors import CrediblyError, FileFormatError, InvalidArgumentError
from tests.reference import models

CLASSES = ("ant", "bee", "cat")


def drawn(count, seed):
    return models.inputs(count, seed=seed)


@pytest.fixture(scope="module")
def judge():
    clf = cr.Classifier(models.smooth_network(classes=3), classes=CLASSES)
    return cr.Judge.fit(clf, drawn(150, 0))


@pytest.fixture(scope="module")
def folder(judge, tmp_path_factory):
    """Verdicts on ordinary inputs, on a calm stream, and on one that changes at 300."""
    place = tmp_path_factory.mktemp("verdicts")
    streams = {
        "ordinary": drawn(300, 1),
        "calm": drawn(400, 2),
        "moved": torch.cat([drawn(300, 3), 3 * drawn(100, 4)]),
    }
    streams["moved"][7] = math.nan
    for name, x in streams.items():
        np.save(place / f"{name}.npy", x)
        cr.judge_file(judge, place / f"{name}.npy", place / f"{name}.parquet")
    return place


def on(folder, name):
    return torch.from_numpy(np.load(folder / f"{name}.npy"))


def test_a_file_is_watched_as_its_inputs_are(judge, folder):
    by_model = cr.DriftWatch.fit(judge, on(folder, "ordinary"))
    by_file = cr.DriftWatch.fit(folder / "calm.parquet", folder / "ordinary.parquet")
    assert by_file.settings == by_model.settings
    expected = by_model.update(judge(on(folder, "moved")))
    found = by_file.update(folder / "moved.parquet")
    assert found == expected
    assert found.unusable == 1
    assert 300 < found.since < 340


def test_it_is_saved_and_loaded_without_the_model(judge, folder, tmp_path):
    watch = cr.DriftWatch.fit(folder / "calm.parquet", by_class=False)
    watch.update(folder / "calm.parquet")
    watch.save(tmp_path / "watch.safetensors")
    again = cr.DriftWatch.load(tmp_path / "watch.safetensors", folder / "moved.parquet")
    assert again.update(folder / "moved.parquet") == watch.update(judge(on(folder, "moved")))


def test_parts_in_a_folder_are_one_stream(folder, tmp_path):
    table = pq.read_table(folder / "moved.parquet")
    for number in range(4):
        part = table.slice(100 * number, 100)
        pq.write_table(part, tmp_path / f"part-{number}.parquet")
    whole = cr.DriftWatch.fit(folder / "moved.parquet").update(folder / "moved.parquet")
    found = cr.DriftWatch.fit(tmp_path).update(tmp_path)
    assert (found.since, found.seen, found.classes) == (whole.since, 400, whole.classes)
    assert found.log_martingale == pytest.approx(whole.log_martingale)  # sums in another order
    assert open_verdicts(tmp_path).rows == 400


def test_classes_are_found_by_number_or_name(folder, tmp_path):
    table = pq.read_table(folder / "calm.parquet")
    marks = {k: v for k, v in table.schema.metadata.items() if k != b"classes"}
    pq.write_table(table.replace_schema_metadata(marks), tmp_path / "old.parquet")
    with pytest.raises(FileFormatError, match="judge again with this version"):
        cr.DriftWatch.fit(folder / "calm.parquet").update(tmp_path / "old.parquet")
    place = table.schema.get_field_index("predicted")
    numbers = [str(CLASSES.index(name)) for name in table["predicted"].to_pylist()]
    plain = table.set_column(place, "predicted", pa.array(numbers))
    pq.write_table(plain.replace_schema_metadata(marks), tmp_path / "plain.parquet")
    found = cr.DriftWatch.fit(folder / "calm.parquet").update(tmp_path / "plain.parquet")
    assert found == cr.DriftWatch.fit(folder / "calm.parquet").update(folder / "calm.parquet")


def test_another_judge_and_other_files_are_refused(folder, tmp_path):
    other = cr.Judge.fit(models.smooth_network(classes=3), drawn(150, 9))
    cr.judge_file(other, folder / "calm.npy", tmp_path / "other.parquet")
    with pytest.raises(InvalidArgumentError, match="same Judge"):
        cr.DriftWatch.fit(folder / "calm.parquet", tmp_path / "other.parquet")
    with pytest.raises(InvalidArgumentError, match="same Judge"):
        cr.DriftWatch.fit(folder / "calm.parquet").update(tmp_path / "other.parquet")
    with pytest.raises(InvalidArgumentError, match="Judge them first"):
        cr.DriftWatch.fit(folder / "calm.parquet", drawn(100, 1))
    pq.write_table(pa.table({"p_ordinary": [0.5]}), tmp_path / "foreign.parquet")
    (tmp_path / "text.parquet").write_text("no")
    for name, words in (
        ("foreign.parquet", "not a file of verdicts"),
        ("text.parquet", "cannot be read as verdicts"),
        ("absent.parquet", "no such file"),
    ):
        with pytest.raises(FileFormatError, match=rf"{name}: {words}"):
            cr.DriftWatch.fit(tmp_path / name)


def test_damaged_numbers_are_refused(folder, tmp_path):
    table = pq.read_table(folder / "calm.parquet")
    for name, values in (("p_ordinary", [0.1234] * 400), ("predicted", ["dog"] * 400)):
        place = table.schema.get_field_index(name)
        changed = table.set_column(place, name, pa.array(values))
        pq.write_table(changed, tmp_path / "changed.parquet")
        with pytest.raises(CrediblyError, match=r"does not give|'dog' is not one"):
            cr.DriftWatch.fit(folder / "calm.parquet").update(tmp_path / "changed.parquet")


@pytest.mark.parametrize("rows", [50, 999, 2500])
def test_no_peak_is_lost_in_a_history(rows):
    path = np.random.default_rng(0).normal(size=rows).cumsum()
    history = DriftHistory(rows, first=10)
    for first in range(0, rows, 512):
        part = path[first : first + 512]
        history.add(Trace(10 + first, part, part, {} if first else {2: part}))
    assert len(history.whole) <= POINTS
    assert history.whole.max() == path.max()
    assert history.places[-1] >= 10 + rows
    ends = np.minimum(history.places.astype(int) - 10, rows)
    starts = np.concatenate([[0], ends[:-1]])
    expected = [path[a:b].max() for a, b in zip(starts, ends, strict=True)]
    np.testing.assert_array_equal(history.whole, expected)
    assert np.isfinite(history.of_class(2)).all()


def command(*arguments):
    return CliRunner().invoke(app, ["drift", *map(str, arguments)])


def test_the_command_writes_what_it_finds(folder, tmp_path):
    calm = command(folder / "calm.parquet", "--ordinary", folder / "ordinary.parquet")
    assert calm.exit_code == 0
    assert "no drift in 400 inputs" in calm.output
    outs = [tmp_path / "drift.json", tmp_path / "drift.png"]
    given = ["--ordinary", folder / "ordinary.parquet", "--out", outs[0], "--out", outs[1]]
    moved = command(folder / "moved.parquet", *given)
    assert moved.exit_code == 1
    state = cr.DriftWatch.fit(folder / "calm.parquet", folder / "ordinary.parquet").update(
        folder / "moved.parquet"
    )
    assert f"alarm at input {state.since} of 400" in moved.output
    found = json.loads(outs[0].read_text())
    assert found["since"] == state.since
    assert set(found["by_class"]) <= set(CLASSES)
    assert outs[1].read_bytes().startswith(b"\x89PNG")


def test_the_command_goes_on(folder, tmp_path):
    state = tmp_path / "watch.safetensors"
    first = command(folder / "calm.parquet", "--state", state, "--false-alarms", "0.05")
    assert first.exit_code == 0
    second = command(folder / "moved.parquet", "--state", state, "--out", tmp_path / "d.svg")
    assert second.exit_code == 1
    assert "of 800" in second.output
    watch = cr.DriftWatch.load(state, folder / "calm.parquet")
    assert (watch.seen, watch.settings.false_alarms) == (800, 0.05)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--out", "drift.gif"], "'.gif' is not written"),
        (["--false-alarms", "5"], "5 % is 0.05"),
        (["--state", "STATE", "--false-alarms", "0.1"], "no --false-alarms with a watch"),
        (["--state", "FILE"], "FILE"),
    ],
)
def test_wrong_arguments_of_the_command(folder, tmp_path, given, words):
    cr.DriftWatch.fit(folder / "calm.parquet").save(tmp_path / "STATE")
    (tmp_path / "FILE").write_bytes(b"x")
    paths = [tmp_path / word if word in ("STATE", "FILE") else word for word in given]
    found = command(folder / "calm.parquet", *paths)
    assert isinstance(found.exception, CrediblyError)
    assert words in str(found.exception)


def test_a_folder_of_a_run_is_a_stream_only_if_all_of_it_is_there(judge, folder, tmp_path):
    out = tmp_path / "parts"
    cr.judge_file(judge, folder / "calm.npy", out, folder=True, chunk_size=100, shard_size=100)
    assert open_verdicts(out).rows == 400
    part = out / "part-000002.parquet"
    content = part.read_bytes()
    part.unlink()
    with pytest.raises(FileFormatError, match=r"part-000002.parquet is missing.*credibly verify"):
        open_verdicts(out)
    part.write_bytes(content)
    (out / "_manifest.json").unlink()
    with pytest.raises(FileFormatError, match=r"_manifest.json is missing"):
        open_verdicts(out)
    (out / "_manifest.json").write_text("{}")
    with pytest.raises(FileFormatError, match=r"_manifest\.json"):
        open_verdicts(out)


def test_a_file_with_a_damaged_page_is_refused(folder, tmp_path):
    table = pq.read_table(folder / "calm.parquet")
    path = tmp_path / "v.parquet"
    pq.write_table(table, path, write_page_checksum=True, use_dictionary=False)
    place = table.schema.get_field_index("p_ordinary")
    with pq.ParquetFile(path) as file:
        column = file.metadata.row_group(0).column(place)
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="cannot be read as verdicts"):
        cr.DriftWatch.fit(path).update(path)


def test_the_command_replaces_a_file_only_if_told(folder, tmp_path):
    (tmp_path / "own.json").write_text("mine")
    given = [folder / "calm.parquet", "--out", tmp_path / "own.json"]
    found = command(*given)
    assert isinstance(found.exception, CrediblyError)
    assert "--overwrite" in str(found.exception)
    assert (tmp_path / "own.json").read_text() == "mine"
    assert command(*given, "--overwrite").exit_code == 0
