"""Nothing is replaced or removed that a run did not write: status files, folders, inputs."""

import json
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import credibly as cr
from credibly.batch.shards import Shards
from tests.batch.settings import ROWS, SMALL
from tests.object_store import s3_server


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def write_tables(folder, count=2, name="d-{}.parquet"):
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        x = np.random.default_rng(number).normal(size=(9, 4))
        pd.DataFrame(x, columns=list("abcd")).to_parquet(folder / name.format(number))
    return folder


def other_kind(clf):
    """A model that does not fit the inputs, so that a run is refused by its first look."""
    return cr.Classifier(torch.nn.Linear(7, 3).double().eval(), classes=clf.classes)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x.npy", "is to be read"), ("profiles.parquet", "belongs to the output"),
        ("profiles.parquet.parts/status.json", "belongs to the output"),
        ("notes.txt", "is another file"), ("judge.json", "is another file"), (".", "is a folder"),
    ],
)  # fmt: skip
def test_a_status_file_takes_no_other_place(clf, data, tmp_path, *, name, words):
    out = tmp_path / "profiles.parquet"
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "judge.json").write_text('{"format": "credibly.judge"}')
    before = contents(tmp_path)
    with pytest.raises(cr.errors.InvalidArgumentError, match=rf"`status`: .*{words}"):
        cr.score(clf, data, out, **SMALL, status=tmp_path / name)
    assert contents(tmp_path) == before


def test_a_status_file_is_not_in_the_folder_of_the_output_or_among_inputs(clf, tmp_path):
    folder, out = write_tables(tmp_path / "in"), tmp_path / "out"
    for status in (out / "status.json", folder / "d-0.parquet", folder / "status.parquet"):
        with pytest.raises(cr.errors.InvalidArgumentError, match="`status`"):
            cr.score(clf, folder, out, **SMALL, folder=True, status=status)


def test_a_status_file_of_an_earlier_run_is_replaced(clf, data, out, tmp_path):
    cr.score(clf, data, out, **SMALL, status=tmp_path / "new" / "status.json")
    cr.score(clf, data, out, **SMALL, status=tmp_path / "new" / "status.json", overwrite=True)
    assert json.loads((tmp_path / "new" / "status.json").read_text())["state"] == "finished"


def test_a_status_file_that_cannot_be_written_is_said_at_once(clf, data, out, tmp_path):
    (tmp_path / "file").write_text("")
    said = []
    with pytest.warns(cr.errors.CrediblyWarning, match="status file cannot be written") as caught:
        cr.score(
            clf, data, out, **SMALL, status=tmp_path / "file" / "s.json",
            progress=lambda _: said.append(len(caught)),
        )  # fmt: skip
    assert said[0] == 1
    assert len(caught) == 1
    assert out.exists()


@pytest.mark.parametrize("name", ["part-0.parquet", "part-00000-abc.snappy.parquet", "notes.txt"])
@pytest.mark.parametrize("parts", ["nothing", "a status", "another run"])
def test_files_of_others_in_the_folder_are_never_removed(clf, data, tmp_path, name, parts):
    out = tmp_path / "out"
    if parts == "a status":
        Shards(out).path.mkdir()
        (Shards(out).path / "status.json").write_text("{}")
    if parts == "another run":  # that is to write a file
        stop_before_the_end(clf, data, out, folder=False)
    out.mkdir()
    (out / name).write_bytes(b"precious")
    for how in ({}, {"overwrite": True}, {"resume": False, "overwrite": True}):
        with pytest.raises(cr.errors.OutputError, match="holds files that no run wrote"):
            cr.score(clf, data, out, **SMALL, folder=True, **how)
    assert (out / name).read_bytes() == b"precious"


@pytest.mark.parametrize("number", [1, 7])
def test_a_name_like_ours_is_not_enough(clf, data, tmp_path, number):
    out = tmp_path / "out"
    if number == 7:  # beside the files of a finished run
        cr.score(clf, data, out, **SMALL, folder=True)
    out.mkdir(exist_ok=True)
    pq.write_table(pa.table({"a": [1.0]}), out / f"part-{number:06d}.parquet")
    before = contents(out)
    with pytest.raises(cr.errors.OutputError, match=rf"no run wrote.*part-{number:06d}"):
        cr.score(clf, data, out, **SMALL, folder=True, overwrite=True)
    assert contents(out) == before


def test_parts_of_which_nothing_is_known_need_a_word(clf, data, tmp_path):
    out = tmp_path / "out"
    cr.score(clf, data, out, **SMALL, folder=True)
    (out / "_manifest.json").unlink()
    Shards(out).path.mkdir()
    (Shards(out).path / "status.json").write_text("{}")  # no run has begun there
    before = contents(out)
    with pytest.raises(cr.errors.OutputError, match="of which nothing is known"):
        cr.score(clf, data, out, **SMALL, folder=True)
    assert contents(out) == before
    assert cr.score(clf, data, out, **SMALL, folder=True, overwrite=True).rows == ROWS


@pytest.mark.parametrize("pattern", [False, True])
def test_the_folder_of_the_inputs_is_no_output(clf, tmp_path, pattern):
    folder = write_tables(tmp_path / "in", name="part-00000{}.parquet")
    before = contents(tmp_path)
    given = folder / "*.parquet" if pattern else folder
    for out in (folder, tmp_path):
        with pytest.raises(cr.errors.OutputError, match="is the folder to be read"):
            cr.score(clf, given, out, **SMALL, folder=True, overwrite=True)
    assert contents(tmp_path) == before


def test_results_that_are_read_again_are_not_replaced(clf, data, tmp_path):
    cr.score(clf, data, tmp_path / "out", **SMALL, folder=True)
    columns = ["risk", "passes", "credence.red", "credence.blue"]
    source = cr.open_source(tmp_path / "out", columns=columns)
    with pytest.raises(cr.errors.OutputError, match="is the folder to be read"):
        cr.score(clf, source, tmp_path / "out", **SMALL, folder=True, overwrite=True)
    assert cr.verify_output(tmp_path / "out").is_whole


@pytest.mark.parametrize(
    ("given", "out", "how"),
    [
        ("in", "in/out.parquet", {}), ("in", "in/out", {"folder": True}), ("in", "in/out", {}),
        ("in/*.parquet", "in/out.parquet", {}), ("in/**/*.parquet", "in/out", {"folder": True}),
        ("*/*.parquet", "out.parquet", {}),  # its parts
    ],
)  # fmt: skip
def test_an_output_among_the_inputs_is_refused(clf, tmp_path, given, out, how):
    write_tables(tmp_path / "in")
    before = contents(tmp_path)
    with pytest.raises(cr.errors.OutputError, match=r"would be read as inputs.*outside of it"):
        cr.score(clf, tmp_path / given, tmp_path / out, **SMALL, **how)
    assert contents(tmp_path) == before
    cr.score(clf, tmp_path / given, tmp_path / "_out.parquet", **SMALL)


def test_an_input_in_a_store_is_not_replaced(clf):
    from credibly.io.stores import place_of

    with s3_server("bucket"):
        place = place_of("s3://bucket/in/x.parquet")
        table = pd.DataFrame(np.ones((5, 4)), columns=list("abcd"))
        place.write_whole(table.to_parquet())
        for given, out in (
            ("s3://bucket/in/x.parquet", "s3://bucket/in/x.parquet"),
            ("s3://bucket/in", "s3://bucket/in/out.parquet"),
            ("s3://bucket/in", "s3://bucket/in/"),
        ):
            with pytest.raises(cr.errors.OutputError, match="be read"):
                cr.score(clf, given, out, **SMALL, overwrite=True)
        assert place.read_whole() == table.to_parquet()


@pytest.mark.parametrize("place", ["disk", "store"])
def test_a_finished_folder_stays_if_the_new_run_is_refused(clf, data, tmp_path, place):
    with s3_server("bucket"):
        out = tmp_path / "out" if place == "disk" else "s3://bucket/out"
        cr.score(clf, data, out, **SMALL, folder=True)
        with pytest.raises(cr.errors.ModelError):
            cr.score(other_kind(clf), data, out, **SMALL, folder=True, overwrite=True)
        assert cr.verify_output(out).is_whole
        assert cr.verify_output(out).note == ""  # nothing is left beside it


def stop_before_the_end(clf, data, out, *, folder):
    name = "_list_files" if folder else "merge"
    stop = mock.patch.object(Shards, name, side_effect=KeyboardInterrupt)
    with stop, pytest.raises(KeyboardInterrupt):
        cr.score(clf, data, out, **SMALL, folder=folder)


@pytest.mark.parametrize("folder", [False, True])
def test_rows_of_an_interrupted_run_stay_if_the_new_one_is_refused(clf, data, tmp_path, folder):
    out = tmp_path / "out"
    stop_before_the_end(clf, data, out, folder=folder)
    with pytest.raises(cr.errors.ModelError):
        cr.score(other_kind(clf), data, out, **SMALL, folder=folder, resume=False)
    assert cr.score(clf, data, out, **SMALL, folder=folder).resumed == ROWS


@pytest.mark.parametrize("error", [KeyboardInterrupt, cr.errors.FileFormatError])
@pytest.mark.parametrize("place", ["disk", "store"])
def test_a_run_that_never_began_leaves_nothing(clf, data, tmp_path, monkeypatch, *, error, place):
    from credibly.batch import score as module
    from credibly.io.stores import place_of

    def fails(*_):
        raise error

    monkeypatch.setattr(module, "find_weights", fails)
    with s3_server("bucket"):
        out = tmp_path / "out.parquet" if place == "disk" else "s3://bucket/out.parquet"
        with pytest.raises(error):
            cr.score(clf, data, out, **SMALL)
        assert list(place_of("s3://bucket").list()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]
