"""Outputs and settings that are refused, and leave nothing behind."""

import errno
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from torch import nn

import credibly as cr
from credibly.batch import shards
from credibly.batch.report import lower_median
from credibly.batch.shards import Shards
from tests.batch.settings import SMALL


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("overwrite", [True, False])
def test_a_link_is_not_replaced_by_a_file(clf, data, tmp_path, there, overwrite):
    target, link = tmp_path / "target.parquet", tmp_path / "link.parquet"
    if there:
        target.write_bytes(b"somebody's")
    link.symlink_to(target)
    with pytest.raises(
        cr.errors.OutputError, match=r"is a link to .*target\.parquet.*Name the file"
    ):
        cr.score(clf, data, link, overwrite=overwrite, **SMALL)
    assert link.is_symlink()
    assert target.exists() is there
    assert not there or target.read_bytes() == b"somebody's"
    assert not Shards(link).path.exists()


def test_a_model_that_does_not_fit_the_data_leaves_nothing_behind(clf, tmp_path, out):
    np.save(tmp_path / "x.npy", np.zeros((5, 3)))
    with pytest.raises(cr.errors.ModelError, match=r"batch of shape \(2, 3\)"):
        cr.score(clf, tmp_path / "x.npy", out, gamma=1.0)
    assert list(tmp_path.glob("profiles*")) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"gamma": -1.0}, "gamma"),
        ({"gamma": "large"}, "gamma"),
        ({"weights": [1.0]}, "weights"),
        ({"gamma": 2.0, "weights": [1.0, 2.0, 3.0]}, "exactly one of gamma and weights"),
        ({"weights": "heavy"}, "weights"),
        ({"bounds": (1.0, 0.0)}, "bounds"),
        ({"chunk_size": 0}, "chunk_size"),
        ({"solver": "fast"}, "solver"),
        ({"progress": "bar"}, "progress"),
    ],
)
def test_bad_settings_are_refused_and_leave_nothing_behind(clf, data, out, settings, words):
    with pytest.raises(cr.errors.InvalidArgumentError, match=words):
        cr.score(clf, data, out, **settings)
    assert not out.exists()


def test_a_model_that_is_not_wrapped_is_refused(data, out):
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"credibly.Classifier\(net\)"):
        cr.score(nn.Linear(4, 3), data, out)


def test_the_inputs_are_not_overwritten(clf, tmp_path):
    table = tmp_path / "x.parquet"
    pd.DataFrame(np.random.default_rng(0).normal(size=(5, 4))).rename(columns=str).to_parquet(table)
    before = table.read_bytes()
    (tmp_path / "other.parquet").symlink_to(table)
    for out in (table, tmp_path / "other.parquet"):
        with pytest.raises(cr.errors.OutputError, match=r"is the file to be read.*another name"):
            cr.score(clf, table, out, gamma=1.0, overwrite=True)
    assert table.read_bytes() == before


def test_a_missing_folder_and_a_folder_as_output_are_refused(clf, data, tmp_path):
    with pytest.raises(cr.errors.OutputError, match="does not exist"):
        cr.score(clf, data, tmp_path / "no" / "out.parquet", **SMALL)
    with pytest.raises(cr.errors.OutputError, match="is a folder"):
        cr.score(clf, data, tmp_path, **SMALL)


@pytest.mark.parametrize("name", [".", "/"])
def test_a_name_without_a_last_part_is_refused_as_a_folder(clf, data, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(cr.errors.OutputError, match="is a folder"):
        cr.score(clf, data, name, **SMALL)


def test_an_empty_name_is_refused(clf, data):
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`out`.*got an empty name"):
        cr.score(clf, data, "", **SMALL)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`path`.*got an empty name"):
        cr.open_source("")
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`out`.*got an empty name"):
        cr.verify_output("")


def test_what_is_no_plain_file_is_never_replaced_by_one(clf, data, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for overwrite in (True, False):
        with pytest.raises(cr.errors.OutputError, match="not a plain file"):
            cr.score(clf, data, pipe, overwrite=overwrite, **SMALL)
    assert pipe.is_fifo()


def test_a_full_disk_is_said_and_finished_rows_are_kept(clf, data, out, monkeypatch):
    write, calls = Path.write_bytes, []

    def full(place, content):
        if ".parquet." in place.name:
            calls.append(place)
        second = len(calls) == 2 and place == calls[-1]
        write(place, content[: len(content) // 2] if second else content)
        if second:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(cr.errors.OutputError, match=r"disk is full.*Finished parts are kept"):
            cr.score(clf, data, out, **SMALL)
    assert not list(Shards(out).path.glob("*.tmp"))
    assert cr.score(clf, data, out, **SMALL).resumed == 8


@pytest.mark.parametrize("name", ["profiles.csv", "PROFILES.CSV", "profiles.json"])
def test_a_name_of_another_format_is_refused_before_any_work(clf, data, tmp_path, name):
    with pytest.raises(cr.errors.OutputError, match=r"Parquet file.*read_parquet"):
        cr.score(clf, data, tmp_path / name, **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_rows_are_joined_to_groups_of_some_size(clf, tmp_path, out, monkeypatch):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(200, 4)))
    monkeypatch.setattr(shards, "GROUP", 10_000)
    cr.score(clf, tmp_path / "x.npy", out, **SMALL)
    with pq.ParquetFile(out) as file:
        groups = [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)]
    assert sum(groups) == 200
    assert 1 < len(groups) < 10  # of 25 shards
    assert len(set(groups[:-1])) == 1
    assert pd.read_parquet(out)["id"].tolist() == list(range(200))


def test_the_report_holds_the_median_and_the_largest_distance(clf, data, out):
    report = cr.score(clf, data, out, **SMALL)
    risk = pd.read_parquet(out)["risk"].dropna()
    assert len(risk) == 20
    expected = np.sqrt(risk.sort_values().iloc[9]), np.sqrt(risk.max())
    assert report.distances == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
@pytest.mark.parametrize("kind", ["spread", "ties", "tiny", "minus zero", "infinite"])
def test_a_median_of_pieces_is_that_of_all(count, kind):
    random = np.random.default_rng(count)
    values = {
        "spread": random.lognormal(sigma=20, size=count),
        "ties": random.integers(0, 4, count) / 7,
        "tiny": random.integers(0, 5, count) * 5e-324,
        "minus zero": np.where(random.random(count) < 0.7, -0.0, 1.0),
        "infinite": np.where(random.random(count) < 0.5, np.inf, 1.0),
    }[kind]
    found = lower_median(lambda: np.array_split(values, 3), count)
    assert found == np.sort(values)[(count - 1) // 2]
