"""From disk to disk: the same rows as in memory, however often the work is interrupted."""

import dataclasses
import json
import time
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import credibly as cr
from credibly.batch import chunks
from credibly.batch.shards import Shards
from credibly.io.models import LoadedClassifier
from tests.batch.settings import CLASSES, ROWS, SMALL


def test_rows_are_those_of_the_one_call(clf, data, out):
    started = time.monotonic()
    report = cr.score(clf, data, out, **SMALL)
    assert 0 <= report.seconds <= time.monotonic() - started
    x = torch.from_numpy(np.load(data))
    profile = cr.credibility(clf, x, gamma=2.0, chunk_size=4)
    frame, expected = pd.read_parquet(out), profile.to_pandas()
    assert frame["id"].tolist() == list(range(ROWS))
    assert list(frame.columns[1:]) == list(expected.columns)
    assert frame["status"].tolist() == expected["status"].tolist()
    assert frame["predicted"].dropna().tolist() == expected["predicted"].dropna().tolist()
    assert frame["predicted"].isna().tolist() == expected["predicted"].isna().tolist()
    numbers = [name for name in expected if "." in name or name == "risk"]
    np.testing.assert_allclose(frame[numbers], expected[numbers], rtol=1e-9, atol=1e-12)
    assert report.statuses["non finite input"] == 3
    assert sum(report.statuses.values()) == report.rows == ROWS
    assert "3 non finite input" in report.summary()
    for line in profile.summary().splitlines():
        if line.startswith(("  class unchanged", "  distance")):
            assert line in report.summary()
    assert "class unchanged by the trade-off: " in report.summary()
    assert not (out.parent / "profiles.parquet.parts").exists()


def test_the_metadata_tells_what_the_rows_were_made_with(clf, data, out):
    report = cr.score(clf, data, out, **{**SMALL, "gamma": "auto"}, bounds=(-50.0, 50.0))
    stored = json.loads(pq.read_schema(out).metadata[b"settings"])
    x = torch.from_numpy(np.load(data))
    assert (
        stored["resolved"]["gamma"]
        == report.gamma
        == pytest.approx(cr.auto_gamma(clf, x), rel=1e-12)
    )
    assert stored["settings"]["gamma"] == "auto"
    assert stored["settings"]["data"] == cr.open_source(data).fingerprint()
    assert stored["settings"]["classes"] == list(CLASSES)
    assert stored["settings"]["versions"]["torch"] == torch.__version__
    assert stored["settings"]["bounds"] == [-50.0, 50.0]


def test_what_is_no_number_is_nan_and_a_class_that_is_unknown_is_missing(clf, data, out):
    cr.score(clf, data, out, **SMALL)
    table = pq.read_table(out)
    for name in table.column_names:
        missing = 3 if name in ("predicted", "most_credible") else 0
        assert table.column(name).null_count == missing, name
    assert np.isnan(table.column("risk").to_numpy()).nonzero()[0].tolist() == [5, 6, 7]


def test_a_run_without_a_solved_row_says_nothing_of_movement(clf, tmp_path, out):
    np.save(tmp_path / "x.npy", np.full((3, 4), np.nan))
    report = cr.score(clf, tmp_path / "x.npy", out, gamma=1.0)
    assert report.unchanged is report.distances is None
    assert "distance" not in report.summary()


def test_rows_outside_the_bounds_get_a_status_and_stop_nobody(clf, tmp_path, out):
    x = np.zeros((6, 4))
    x[2, 1] = 1.5
    np.save(tmp_path / "x.npy", x)
    report = cr.score(clf, tmp_path / "x.npy", out, gamma=1.0, bounds=(0.0, 1.0))
    assert report.statuses["outside bounds"] == 1
    frame = pd.read_parquet(out)
    assert frame["status"].tolist().index("outside bounds") == 2
    assert frame["credibility.red"].isna().tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize("given", [True, False])
def test_bounds_are_about_what_may_move(clf, tmp_path, out, given):
    x = np.random.default_rng(1).uniform(size=(9, 4))
    x[:, 0] = 40.0  # locked: an age, say
    x[[1, 7], 2] = -0.5
    np.save(tmp_path / "x.npy", x)
    space = cr.Space(locked=[0], bounds=None if given else (0.0, 1.0))
    moved = cr.Classifier(clf.net, space=space)
    bounds = (0.0, 1.0) if given else None
    report = cr.score(moved, tmp_path / "x.npy", out, bounds=bounds, **SMALL)
    assert report.statuses["outside bounds"] == 2
    frame = pd.read_parquet(out)
    inside = [0, 2, 3, 4, 5, 6, 8]
    assert frame.index[frame["status"] == "outside bounds"].tolist() == [1, 7]
    expected = cr.credibility(moved, torch.from_numpy(x[inside]), gamma=2.0, bounds=bounds)
    np.testing.assert_allclose(frame["risk"][inside], expected.risk, rtol=1e-9, atol=1e-12)


def test_bounds_of_a_module_are_about_what_it_gives(clf, tmp_path, out):
    x = np.random.default_rng(2).normal(size=(9, 4))
    np.save(tmp_path / "x.npy", x)
    moved = cr.Classifier(clf.net, module="0")
    values = clf.net[0](torch.from_numpy(x)).detach()
    limit = float(values.abs().amax(1).median())
    cr.score(moved, tmp_path / "x.npy", out, bounds=(-limit, limit), **SMALL)
    found = (pd.read_parquet(out)["status"] == "outside bounds").tolist()
    assert found == (values.abs() > limit).any(1).tolist()
    assert 0 < sum(found) < 9


@pytest.mark.parametrize("broken", [0, 2])
def test_bounds_that_no_row_keeps_are_the_reason_named(clf, tmp_path, out, broken):
    x = np.full((6, 4), 7.5)
    x[0] = 200.0
    x[6 - broken :] = np.nan
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"gamma as a number") as caught:
        cr.score(clf, tmp_path / "x.npy", out, bounds=(0.0, 1.0))
    assert caught.value.argument == "bounds"
    assert f"{6 - broken} of the first 6 rows lie outside" in str(caught.value)
    assert "7.5 to 200" in str(caught.value)
    assert not Shards(out).path.exists()
    x[3] = 0.5  # one row inside is enough
    np.save(tmp_path / "x.npy", x)
    report = cr.score(clf, tmp_path / "x.npy", out, bounds=(0.0, 1.0))
    assert report.statuses["outside bounds"] == 5 - broken


def test_files_of_which_none_can_be_read_are_the_reason_named(tmp_path, out):
    (tmp_path / "images").mkdir()
    for k in range(3):
        (tmp_path / "images" / f"{k}.png").write_bytes(b"broken")
    source = cr.open_source(tmp_path / "images", size=2, mode="grey")
    flat = cr.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval())
    with pytest.raises(cr.errors.FileFormatError, match="none of the first 3 files can be read"):
        cr.score(flat, source, out)
    assert cr.score(flat, source, out, gamma=1.0).statuses == {"unreadable file": 3}


def test_weights_of_their_own(clf, data, out):
    report = cr.score(clf, data, out, gamma=None, weights=[1.0, 2.0, 3.0], chunk_size=4)
    assert report.gamma is None
    assert json.loads(pq.read_schema(out).metadata[b"settings"])["resolved"]["weights"] == [
        1.0,
        2.0,
        3.0,
    ]
    assert "weights per class" in report.summary()


def test_single_precision_models_take_double_precision_tables(tmp_path, out):
    net = nn.Linear(2, 2).eval()
    (tmp_path / "x.csv").write_text("name,a,b\nfirst,1,2\nsecond,,2\nthird,1e300,0\n")
    source = cr.open_source(tmp_path / "x.csv", id_column="name")
    cr.score(cr.Classifier(net), source, out, gamma=1.0)
    frame = pd.read_parquet(out)
    assert frame["id"].tolist() == ["first", "second", "third"]
    assert frame["status"].tolist()[1:] == ["non finite input"] * 2
    assert frame["credibility.0"].dtype == np.float32


def test_a_file_of_bad_rows_alone_is_scored_where_gamma_is_a_number(clf, tmp_path, out):
    np.save(tmp_path / "x.npy", np.full((5, 4), np.nan))
    with pytest.raises(cr.errors.InvalidArgumentError, match="none of them finite"):
        cr.score(clf, tmp_path / "x.npy", out)
    assert not Shards(out).path.exists()
    assert cr.score(clf, tmp_path / "x.npy", out, gamma=1.0).statuses == {"non finite input": 5}
    assert pd.read_parquet(out)["predicted"].isna().all()


def test_whole_numbers_of_numpy_are_sizes(clf, data, out):
    sizes = {"chunk_size": np.int64(4), "shard_size": np.int32(8)}
    assert cr.score(clf, data, out, gamma=2.0, **sizes).rows == ROWS


def test_progress_is_told_as_a_share(clf, data, out):
    shares = []
    cr.score(clf, data, out, **SMALL, progress=shares.append)
    assert shares[0] == 0.0
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_loaded_classifier_brings_its_fingerprint(data, out, clf):
    loaded = LoadedClassifier(clf, "python", "a test", (("weights", "ab" * 32),))
    cr.score(loaded, data, out, **SMALL)
    stored = json.loads(pq.read_schema(out).metadata[b"settings"])
    assert stored["settings"]["model weights"] == "ab" * 32


def test_memory_does_not_grow_with_the_number_of_rows(tmp_path):
    clf = cr.Classifier(lambda x: x[:, :2], dtype=torch.float64)
    solver = dataclasses.replace(cr.solvers.GradientDescent(), steps=1)
    peaks = []
    for rows in (512, 4096):
        np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(rows, 200)))
        tracemalloc.start()
        cr.score(
            clf, tmp_path / "x.npy", tmp_path / f"{rows}.parquet",
            gamma=1.0, solver=solver, chunk_size=128, shard_size=256,
        )  # fmt: skip
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_no_more_than_a_chunk_is_ever_read(clf, data, out, monkeypatch):
    monkeypatch.setattr(chunks, "AUTO_ROWS", 4)
    source = cr.open_source(data)
    sizes = []
    read = type(source).read

    def counted(self, start, stop):
        sizes.append(stop - start)
        return read(self, start, stop)

    monkeypatch.setattr(type(source), "read", counted)
    cr.score(clf, source, out, **SMALL)
    assert max(sizes) == 4


@pytest.mark.parametrize(
    "settings",
    [
        {"space": cr.Space(locked=[0, 3])},
        {"space": cr.Space(scale=[5.0, 1.0, 1.0, 0.2])},
        {"module": "0"},
    ],
)
def test_what_moves_is_what_the_space_or_the_module_says(clf, data, out, settings):
    moved = cr.Classifier(clf.net, **settings)
    cr.score(moved, data, out, **SMALL)
    expected = cr.credibility(moved, torch.from_numpy(np.load(data)), gamma=2.0, chunk_size=4)
    plain = cr.credibility(clf, torch.from_numpy(np.load(data)), gamma=2.0, chunk_size=4)
    risk = pd.read_parquet(out)["risk"].to_numpy()
    np.testing.assert_allclose(risk, expected.risk, rtol=1e-9, atol=1e-12)
    assert not np.allclose(risk, plain.risk, rtol=1e-3, equal_nan=True)


def test_numbers_of_words_in_a_file_give_the_profiles_of_the_same_numbers_in_memory(tmp_path, out):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(30, 4), nn.Flatten(), nn.Tanh(), nn.Linear(20, 3)).double()
    words = torch.randint(0, 30, (ROWS, 5))
    np.save(tmp_path / "words.npy", words.numpy())
    source = cr.open_source(tmp_path / "words.npy", scale=1)
    with pytest.raises(cr.errors.ModelError, match=r"preprocess=torch\.Tensor\.long"):
        cr.score(cr.Classifier(net.eval(), module="0"), source, out, gamma=2.0)
    clf = cr.Classifier(net, module="0", preprocess=torch.Tensor.long)
    cr.score(clf, source, out, gamma=2.0)
    expected = cr.credibility(cr.Classifier(net, module="0"), words, gamma=2.0)
    found = cr.Profile.from_parquet(out)
    torch.testing.assert_close(found.credibility, expected.credibility, atol=1e-9, rtol=0)
