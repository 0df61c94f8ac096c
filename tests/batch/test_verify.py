"""What is there and whole is told from what is not, and what to run is right."""

import json
import shutil
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import credibly as cr
from credibly.batch.shards import FOLDER, Shards
from credibly.cli.app import app
from credibly.io.places import LocalPlace
from tests.batch.settings import ROWS, SMALL
from tests.object_store import s3_server

SHARDS = 3


@pytest.fixture
def folder(clf, data, tmp_path):
    cr.score(clf, data, tmp_path / "profiles", **SMALL, folder=True)
    return tmp_path / "profiles"


def stop_before_the_end(clf, data, out, **more):
    name = "_list_files" if more.get("folder") else "merge"
    stop = mock.patch.object(Shards, name, side_effect=KeyboardInterrupt)
    with stop, pytest.raises(KeyboardInterrupt):
        cr.score(clf, data, out, **SMALL, **more)


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(bytes(content))


def test_a_finished_output_is_whole(clf, data, out, folder):
    cr.score(clf, data, out, **SMALL)
    one, many = cr.verify_output(out), cr.verify_output(folder)
    assert (one.state, one.rows, one.files, one.problems, one.remedy) == ("whole", ROWS, 1, (), "")
    assert (many.state, many.rows, many.files) == ("whole", ROWS, SHARDS)
    assert many.summary() == f"{folder}: whole, {ROWS} rows in {SHARDS} files"


def test_verdicts_are_verified_as_well(clf, data, tmp_path):
    judge = cr.Judge.fit(clf, np.random.default_rng(1).normal(size=(200, 4)))
    cr.judge_file(judge, data, tmp_path / "verdicts", folder=True, shard_size=8, chunk_size=4)
    cr.judge_file(judge, data, tmp_path / "v.parquet", shard_size=8, chunk_size=4)
    assert cr.verify_output(tmp_path / "verdicts").is_whole
    assert cr.verify_output(tmp_path / "v.parquet").rows == ROWS


def test_damaged_missing_and_foreign_files_are_named_and_only_they_are_made_again(
    clf, data, folder
):
    expected = {path.name: path.read_bytes() for path in folder.iterdir()}
    flip(folder / "part-000000.parquet", 100)
    (folder / "part-000002.parquet").unlink()
    found = cr.verify_output(folder)
    assert (found.state, found.rows, found.files) == ("damaged", 8, 1)
    assert found.problems == (
        "part-000000.parquet: its bytes are not those that were written",
        "part-000002.parquet: is missing",
    )
    assert f"credibly verify {folder} --reopen" in found.remedy
    assert "makes 2 of 3 files again" in found.remedy
    cr.verify_output(folder, reopen=True)
    assert cr.verify_output(folder).state == "unfinished"
    report = cr.score(clf, data, folder, **SMALL, folder=True)
    assert report.resumed == 8
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == expected
    assert not Shards(folder).path.exists()


def test_reopening_what_is_whole_changes_nothing(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert cr.verify_output(folder, reopen=True).is_whole
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_file_that_does_not_belong_there_is_named(folder):
    (folder / "part-000007.parquet").write_bytes(b"")
    found = cr.verify_output(folder)
    assert found.problems == ("part-000007.parquet: does not belong to it",)
    assert "Remove what does not belong" in found.remedy


def test_a_list_that_leaves_rows_out_is_damaged(folder):
    content = json.loads((folder / FOLDER).read_text())
    del content["files"][1]
    (folder / FOLDER).write_text(json.dumps(content))
    found = cr.verify_output(folder)
    assert "does not list the rows of this run in order" in found.problems[0]
    assert "--overwrite" in found.remedy


@pytest.mark.parametrize("how", [{}, {"folder": True}])
def test_an_interrupted_run_says_how_far_it_is(clf, data, tmp_path, how):
    out = tmp_path / "profiles"
    stop_before_the_end(clf, data, out, **how)
    parts = out if how else Shards(out).path
    flip(parts / "part-000001.parquet", 50)
    found = cr.verify_output(out)
    assert (found.state, found.rows, found.files) == ("unfinished", ROWS - 8, 2)
    assert found.problems[0] == f"2 of 3 shards are finished, {ROWS - 8} of {ROWS} rows"
    assert "part-000001.parquet: its bytes" in found.problems[1]
    assert "makes the other 1 shards" in found.remedy
    assert "The run was stopped at" in found.note
    assert cr.score(clf, data, out, **SMALL, **how).resumed == ROWS - 8
    assert cr.verify_output(out).is_whole


def test_a_run_that_is_to_replace_the_output_is_named(clf, data, out):
    cr.score(clf, data, out, **SMALL)
    stop_before_the_end(clf, data, out, overwrite=True)
    found = cr.verify_output(out)
    assert found.is_whole
    assert f"{Shards(out).path}" in found.note


def test_a_flipped_bit_in_any_column_of_one_file_is_found(clf, data, out):
    cr.score(clf, data, out, **SMALL)
    content, expected = out.read_bytes(), pd.read_parquet(out)
    group, rng = pq.read_metadata(out).row_group(0), np.random.default_rng(0)
    for column in map(group.column, range(group.num_columns)):
        start = column.dictionary_page_offset or column.data_page_offset
        flip(out, start + int(rng.integers(column.total_compressed_size)))
        found = cr.verify_output(out)  # a header may hold bits that mean nothing
        assert found.state == "damaged" or pd.read_parquet(out).equals(expected)
        out.write_bytes(content)
    out.write_bytes(content[:-9])
    assert "cannot be read" in cr.verify_output(out).problems[0]


def test_something_else_is_refused(tmp_path, data):
    with pytest.raises(cr.errors.FileFormatError, match="none that was begun"):
        cr.verify_output(tmp_path / "nothing.parquet")
    pd.DataFrame({"a": [1.0]}).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(cr.errors.FileFormatError, match="not from score or judge"):
        cr.verify_output(tmp_path / "other.parquet")
    with pytest.raises(cr.errors.FileFormatError, match="none that was begun"):
        cr.verify_output(tmp_path)
    with pytest.raises(cr.errors.FileFormatError, match=r"x\.npy: not from score or judge"):
        cr.verify_output(data)


def test_the_same_in_a_store(clf, data):
    from credibly.io.stores import place_of

    with s3_server("bucket"):
        cr.score(clf, data, "s3://bucket/profiles/", **SMALL)
        assert cr.verify_output("s3://bucket/profiles/").rows == ROWS
        place = place_of("s3://bucket/profiles/part-000001.parquet")
        content = bytearray(place.read_whole())
        content[90] ^= 1  # of the same size: no listing shows it
        place.write_whole(bytes(content))
        found = cr.verify_output("s3://bucket/profiles", reopen=True)
        assert found.problems == ("part-000001.parquet: its bytes are not those that were written",)
        assert cr.score(clf, data, "s3://bucket/profiles/", **SMALL).resumed == ROWS - 8
        assert cr.verify_output("s3://bucket/profiles").is_whole


@pytest.mark.parametrize(("damaged", "code"), [(False, 0), (True, 1)])
def test_the_command_exits_with_one_if_it_is_not_whole(folder, capsys, damaged, code):
    if damaged:
        (folder / "part-000000.parquet").unlink()
    with pytest.raises(SystemExit) as caught:
        app(["verify", str(folder)])
    assert caught.value.code == code
    assert ("damaged" if damaged else "whole") in capsys.readouterr().out


def damage_list(folder, how):
    path = folder / FOLDER
    content = json.loads(path.read_text())
    if how == "gone":
        path.unlink()
    elif how == "cut":
        path.write_text(path.read_text()[:100])
    else:
        content.pop("files") if how == "no files" else content["files"][0].pop("sha256")
        path.write_text(json.dumps(content))


@pytest.mark.parametrize("how", ["gone", "cut", "no files", "no digest"])
@pytest.mark.parametrize("missing", [0, 1])
def test_a_folder_without_its_list_is_made_a_run_of_what_is_whole(
    clf, data, folder, *, how, missing
):
    expected = {path.name: path.read_bytes() for path in folder.iterdir()}
    damage_list(folder, how)
    for number in range(missing):
        (folder / f"part-00000{number}.parquet").unlink()
    found = cr.verify_output(folder)
    assert (found.state, found.files) == ("damaged", SHARDS - missing)
    assert found.problems[0] == f"{FOLDER}: is missing, or damaged"
    makes = "makes 1 of 3 files again" if missing else "makes only its list again"
    assert "--reopen" in found.remedy
    assert makes in found.remedy
    assert makes in cr.verify_output(folder, reopen=True).remedy
    assert cr.score(clf, data, folder, **SMALL, folder=True).resumed == ROWS - 8 * missing
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == expected


def test_without_the_list_damaged_and_foreign_files_are_still_told(clf, data, folder, tmp_path):
    cr.score(clf, data, tmp_path / "other", **{**SMALL, "gamma": 9.0}, folder=True)
    (folder / FOLDER).unlink()
    with pq.ParquetFile(folder / "part-000000.parquet") as file:
        column = file.metadata.row_group(0).column(4)
    flip(folder / "part-000000.parquet", column.data_page_offset + column.total_compressed_size - 3)
    other = (tmp_path / "other" / "part-000001.parquet").read_bytes()
    (folder / "part-000001.parquet").write_bytes(other)
    shutil.copy(folder / "part-000002.parquet", folder / "part-000009.parquet")
    found = cr.verify_output(folder)
    assert (found.rows, found.files) == (ROWS - 16, 1)
    words = "cannot be read", "is of another run", "does not belong to it"
    assert all(word in problem for word, problem in zip(words, found.problems[1:], strict=True))


class Killed(BaseException):
    """Stands for whatever ends a process."""


@pytest.mark.parametrize("damage", ["missing", "flipped"])
@pytest.mark.parametrize("file", [FOLDER, "manifest.json", "part-000001.json"])
def test_a_kill_while_a_folder_is_reopened_hides_no_damage(
    clf, data, folder, monkeypatch, *, damage, file
):
    expected = {path.name: path.read_bytes() for path in folder.iterdir()}
    part = folder / "part-000002.parquet"
    flip(part, 100) if damage == "flipped" else part.unlink()

    def dies(self, *_):
        if self.name == file:
            raise Killed
        return (delete if not _ else write)(self, *_)

    delete, write = LocalPlace.delete, LocalPlace.write_whole
    with monkeypatch.context() as patch:
        patch.setattr(LocalPlace, "delete", dies)
        patch.setattr(LocalPlace, "write_whole", dies)
        with pytest.raises(Killed):
            cr.verify_output(folder, reopen=True)
    assert not cr.verify_output(folder).is_whole
    if file != FOLDER:  # no run has begun: it is still to be reopened
        with pytest.raises(cr.errors.OutputError, match="exists already"):
            cr.score(clf, data, folder, **SMALL, folder=True)
        cr.verify_output(folder, reopen=True)
    cr.score(clf, data, folder, **SMALL, folder=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == expected


def test_parts_of_another_run_are_not_reopened_over(clf, data, folder, out):
    stop_before_the_end(clf, data, out)
    before = Shards(out).manifest_bytes()
    folder.rename(out)  # as somebody may move it
    (out / "part-000001.parquet").unlink()
    with pytest.raises(cr.errors.OutputError, match="interrupted run is to replace"):
        cr.verify_output(out, reopen=True)
    assert Shards(out).manifest_bytes() == before


def test_what_is_no_output_of_its_own_is_named(clf, data, out, folder):
    with pytest.raises(cr.errors.FileFormatError, match=f"`credibly verify {folder}`"):
        cr.verify_output(folder / "part-000001.parquet")
    stop_before_the_end(clf, data, out)
    for name in (Shards(out).path, Shards(out).part("part-000001.parquet")):
        with pytest.raises(cr.errors.FileFormatError, match=f"`credibly verify {out}`"):
            cr.verify_output(name)


def test_a_single_file_is_not_reopened(clf, data, out):
    cr.score(clf, data, out, **SMALL)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`reopen`.*leave reopen out"):
        cr.verify_output(out, reopen=True)


@pytest.mark.parametrize("how", ["copied", "swapped"])
def test_without_the_list_a_part_in_the_place_of_another_is_told(clf, data, folder, how):
    expected = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / FOLDER).unlink()
    first, second = (folder / f"part-00000{number}.parquet" for number in (0, 1))
    content = first.read_bytes()
    if how == "swapped":
        first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    bad = cr.verify_output(folder, reopen=True).problems[1:]
    assert len(bad) == 1 + (how == "swapped")
    assert all(problem.endswith("holds the rows of another part") for problem in bad)
    cr.score(clf, data, folder, **SMALL, folder=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == expected
