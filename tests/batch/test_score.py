"""From disk to disk: the same rows as in memory, however often the work is interrupted."""

import dataclasses
import errno
import json
import os
import time
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import credibly as cr
from credibly.batch import score as module
from credibly.batch import shards as shards_module
from credibly.batch.lock import locked
from credibly.batch.shards import Shards
from credibly.model.fingerprint import digest_of_space

ROWS = 23
CLASSES = ("red", "green", "blue")


@pytest.fixture
def clf():
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double().eval()
    return cr.Classifier(net, classes=CLASSES)


@pytest.fixture
def data(tmp_path):
    x = np.random.default_rng(0).normal(size=(ROWS, 4))
    x[5, 2] = np.nan
    x[6:8] = np.inf
    np.save(tmp_path / "x.npy", x)
    return tmp_path / "x.npy"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "profiles.parquet"


SMALL = {"gamma": 2.0, "chunk_size": 4, "shard_size": 8}


class Killed(BaseException):
    """Stands for whatever ends a process."""


def killed_after(monkeypatch, chunks):
    """Let a run die in the middle of a chunk."""
    solve, seen = module.solve_chunk, []

    def mortal(job, first):
        if len(seen) == chunks:
            raise Killed
        seen.append(first)
        return solve(job, first)

    monkeypatch.setattr(module, "solve_chunk", mortal)
    return seen


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


@pytest.mark.parametrize("chunks", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("gamma", [2.0, "auto"])
def test_a_killed_run_goes_on_and_gives_the_same_rows(
    clf, data, tmp_path, monkeypatch, *, chunks, gamma
):
    settings = {**SMALL, "gamma": gamma}
    cr.score(clf, data, tmp_path / "whole.parquet", **settings)
    out = tmp_path / "twice.parquet"
    with monkeypatch.context() as patch:
        killed_after(patch, chunks)
        with pytest.raises(Killed):
            cr.score(clf, data, out, **settings)
    assert not out.exists()
    with monkeypatch.context() as patch:
        seen = killed_after(patch, 99)
        report = cr.score(clf, data, out, **settings)
    assert report.resumed == 8 * (chunks // 2)
    assert len(seen) == 6 - 2 * (chunks // 2)
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def interrupted(clf, data, out, monkeypatch, **settings):
    with monkeypatch.context() as patch:
        killed_after(patch, 3)
        with pytest.raises(Killed):
            cr.score(clf, data, out, **{**SMALL, **settings})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gamma": 3.0}, "gamma was 2.0 and is now 3.0"),
        ({"gamma": "auto"}, "gamma was 2.0 and is now auto"),
        ({"chunk_size": 8}, "chunk_size was 4 and is now 8"),
        ({"solver": cr.LBFGS()}, r"solver was Hybrid\(.*is now LBFGS"),
        ({"bounds": (-9.0, 9.0)}, r"bounds was not set and is now \[-9.0, 9.0\]"),
        ({"fingerprint": "other"}, "model was .* and is now other"),
    ],
)
def test_other_settings_do_not_go_on(clf, data, out, monkeypatch, *, change, words):
    interrupted(clf, data, out, monkeypatch)
    with pytest.raises(cr.OutputError, match=words) as caught:
        cr.score(clf, data, out, **{**SMALL, **change})
    assert "--restart" in str(caught.value)
    assert cr.score(clf, data, out, **{**SMALL, **change}, resume=False).resumed == 0


def test_other_weights_and_other_data_do_not_go_on(clf, data, out, monkeypatch):
    interrupted(clf, data, out, monkeypatch)
    with torch.no_grad():
        next(clf.net.parameters())[0, 0] += 1e-6
    with pytest.raises(cr.OutputError, match="model was"):
        cr.score(clf, data, out, **SMALL)
    with torch.no_grad():
        next(clf.net.parameters())[0, 0] -= 1e-6
    x = np.load(data)
    x[0, 0] += 1
    np.save(data, x)
    with pytest.raises(cr.OutputError, match="data was"):
        cr.score(clf, data, out, **SMALL)


def test_another_preprocess_does_not_go_on(clf, data, out, monkeypatch):
    def scaled(factor):
        return cr.Classifier(clf.net, classes=CLASSES, preprocess=lambda x: x / factor)

    interrupted(scaled(torch.tensor(2.0)), data, out, monkeypatch)
    for other in (scaled(torch.tensor(3.0)), clf):
        with pytest.raises(cr.OutputError, match=r"preprocess was .*lambda.* and is now") as caught:
            cr.score(other, data, out, **SMALL)
        assert "--restart" in str(caught.value)
    assert cr.score(scaled(torch.tensor(2.0)), data, out, **SMALL).resumed == 8


def test_a_finished_file_is_kept_unless_said_otherwise(clf, data, out):
    cr.score(clf, data, out, **SMALL)
    before = out.read_bytes()
    with pytest.raises(cr.OutputError, match=r"exists already.*--overwrite"):
        cr.score(clf, data, out, **SMALL)
    assert out.read_bytes() == before
    cr.score(clf, data, out, **{**SMALL, "gamma": 9.0}, overwrite=True)
    assert out.read_bytes() != before


def test_killed_between_the_merge_and_the_cleaning_is_finished(clf, data, out, monkeypatch):
    def dies(_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Shards, "remove", dies)
        with pytest.raises(Killed):
            cr.score(clf, data, out, **SMALL)
    before = out.read_bytes()
    assert cr.score(clf, data, out, **SMALL).resumed == ROWS
    assert out.read_bytes() == before
    assert not Shards(out).folder.exists()


def test_a_damaged_part_is_solved_again(clf, data, out, monkeypatch, tmp_path):
    interrupted(clf, data, out, monkeypatch)
    Shards(out).part(0).write_bytes(b"PAR1 nonsense")
    assert cr.score(clf, data, out, **SMALL).resumed == 0
    cr.score(clf, data, tmp_path / "whole.parquet", **SMALL)
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_a_damaged_manifest_starts_anew(clf, data, out, monkeypatch):
    interrupted(clf, data, out, monkeypatch)
    Shards(out).manifest.write_text("{")
    assert cr.score(clf, data, out, **SMALL).resumed == 0


def test_files_of_others_in_the_folder_of_parts_are_left_alone(clf, data, out):
    folder = Shards(out).folder
    folder.mkdir()
    (folder / "mine.txt").write_text("keep")
    cr.score(clf, data, out, **SMALL)
    assert (folder / "mine.txt").read_text() == "keep"


def test_two_runs_on_one_output_are_refused(clf, data, out):
    shards = Shards(out)
    shards.create()
    with (
        locked(shards.lock, out),
        pytest.raises(cr.OutputError, match="another run is working on"),
    ):
        cr.score(clf, data, out, **SMALL)
    cr.score(clf, data, out, **SMALL)


def finished_meanwhile(monkeypatch, other):
    """Let another run finish after this one has looked at its output, before it has the lock."""
    create = Shards.create

    def late(self):
        monkeypatch.setattr(Shards, "create", create)
        other()
        create(self)

    monkeypatch.setattr(Shards, "create", late)


def test_a_file_that_was_finished_meanwhile_is_not_replaced(clf, data, out, monkeypatch):
    finished_meanwhile(monkeypatch, lambda: cr.score(clf, data, out, **SMALL))
    seen = killed_after(monkeypatch, 6)
    with pytest.raises(cr.OutputError, match="exists already"):
        cr.score(clf, data, out, **{**SMALL, "gamma": 3.0})
    assert len(seen) == 6  # those of the first run; the second solved nothing
    assert json.loads(pq.read_schema(out).metadata[b"settings"])["gamma"] == 2.0
    assert not Shards(out).folder.exists()
    monkeypatch.undo()
    finished_meanwhile(monkeypatch, lambda: cr.score(clf, data, out, overwrite=True, **SMALL))
    cr.score(clf, data, out, overwrite=True, **{**SMALL, "gamma": 3.0})  # unless it may
    assert json.loads(pq.read_schema(out).metadata[b"settings"])["gamma"] == 3.0


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("overwrite", [True, False])
def test_a_link_is_not_replaced_by_a_file(clf, data, tmp_path, there, overwrite):
    target, link = tmp_path / "target.parquet", tmp_path / "link.parquet"
    if there:
        target.write_bytes(b"somebody's")
    link.symlink_to(target)
    with pytest.raises(cr.OutputError, match=r"is a link to .*target\.parquet.*Name the file"):
        cr.score(clf, data, link, overwrite=overwrite, **SMALL)
    assert link.is_symlink()
    assert target.exists() is there
    assert not there or target.read_bytes() == b"somebody's"
    assert not Shards(link).folder.exists()


def test_a_lock_is_gone_with_the_run_and_a_stale_one_is_in_nobodys_way(out):
    path = out.with_name("lock")
    path.touch()  # of a run that was killed
    with locked(path, out):
        assert path.exists()
        with pytest.raises(cr.OutputError, match="another run"), locked(path, out):
            pass
        assert path.exists()  # who is refused takes nothing away
    assert not path.exists()
    with pytest.raises(Killed), locked(path, out):
        raise Killed
    assert not path.exists()
    with locked(path, out):
        path.unlink()  # by a run that cleans up, and another one begins
        path.write_text("the next")
    assert path.read_text() == "the next"


def test_the_metadata_tells_what_the_rows_were_made_with(clf, data, out):
    report = cr.score(clf, data, out, **{**SMALL, "gamma": "auto"}, bounds=(-50.0, 50.0))
    stored = json.loads(pq.read_schema(out).metadata[b"settings"])
    x = torch.from_numpy(np.load(data))
    assert stored["gamma"] == report.gamma == pytest.approx(cr.auto_gamma(clf, x), rel=1e-12)
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
    with pytest.raises(cr.InvalidArgumentError, match=r"gamma as a number") as caught:
        cr.score(clf, tmp_path / "x.npy", out, bounds=(0.0, 1.0))
    assert caught.value.argument == "bounds"
    assert f"{6 - broken} of the first 6 rows lie outside" in str(caught.value)
    assert "7.5 to 200" in str(caught.value)
    assert not Shards(out).folder.exists()
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
    with pytest.raises(cr.FileFormatError, match="none of the first 3 files can be read"):
        cr.score(flat, source, out)
    assert cr.score(flat, source, out, gamma=1.0).statuses == {"unreadable file": 3}


def test_weights_of_their_own(clf, data, out):
    report = cr.score(clf, data, out, gamma=None, weights=[1.0, 2.0, 3.0], chunk_size=4)
    assert report.gamma is None
    assert json.loads(pq.read_schema(out).metadata[b"settings"])["weights"] == [1.0, 2.0, 3.0]
    assert "weights of their own" in report.summary()


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
    with pytest.raises(cr.InvalidArgumentError, match="none of them finite"):
        cr.score(clf, tmp_path / "x.npy", out)
    assert not Shards(out).folder.exists()
    assert cr.score(clf, tmp_path / "x.npy", out, gamma=1.0).statuses == {"non finite input": 5}
    assert pd.read_parquet(out)["predicted"].isna().all()


def test_a_model_that_does_not_fit_the_data_leaves_nothing_behind(clf, tmp_path, out):
    np.save(tmp_path / "x.npy", np.zeros((5, 3)))
    with pytest.raises(cr.ModelError, match=r"batch of shape \(2, 3\)"):
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
    with pytest.raises(cr.InvalidArgumentError, match=words):
        cr.score(clf, data, out, **settings)
    assert not out.exists()


def test_a_model_that_is_not_wrapped_is_refused(data, out):
    with pytest.raises(cr.InvalidArgumentError, match=r"credibly.Classifier\(net\)"):
        cr.score(nn.Linear(4, 3), data, out)


def test_the_inputs_are_not_overwritten(clf, tmp_path):
    table = tmp_path / "x.parquet"
    pd.DataFrame(np.random.default_rng(0).normal(size=(5, 4))).rename(columns=str).to_parquet(table)
    before = table.read_bytes()
    (tmp_path / "other.parquet").symlink_to(table)
    for out in (table, tmp_path / "other.parquet"):
        with pytest.raises(cr.OutputError, match=r"is the file that is to be read.*another name"):
            cr.score(clf, table, out, gamma=1.0, overwrite=True)
    assert table.read_bytes() == before


def test_whole_numbers_of_numpy_are_sizes(clf, data, out):
    sizes = {"chunk_size": np.int64(4), "shard_size": np.int32(8)}
    assert cr.score(clf, data, out, gamma=2.0, **sizes).rows == ROWS


def test_a_missing_folder_and_a_folder_as_output_are_refused(clf, data, tmp_path):
    with pytest.raises(cr.OutputError, match="does not exist"):
        cr.score(clf, data, tmp_path / "no" / "out.parquet", **SMALL)
    with pytest.raises(cr.OutputError, match="is a folder"):
        cr.score(clf, data, tmp_path, **SMALL)


@pytest.mark.parametrize("name", [".", "/", ""])
def test_a_name_without_a_last_part_is_refused_as_a_folder(clf, data, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(cr.OutputError, match="is a folder"):
        cr.score(clf, data, name, **SMALL)


def test_what_is_no_plain_file_is_never_replaced_by_one(clf, data, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(cr.OutputError, match="no plain file"):
        cr.score(clf, data, pipe, overwrite=True, **SMALL)
    assert pipe.is_fifo()


def test_a_full_disk_is_said_and_finished_rows_are_kept(clf, data, out, monkeypatch):
    write, calls = shards_module.Shards.write, []

    def full(self, number, table):
        calls.append(number)
        if len(calls) == 2:
            with shards_module.writing(self.part(number)):
                raise OSError(errno.ENOSPC, "No space left on device")
        write(self, number, table)

    with monkeypatch.context() as patch:
        patch.setattr(shards_module.Shards, "write", full)
        with pytest.raises(cr.OutputError, match=r"the disk is full.*finished are kept"):
            cr.score(clf, data, out, **SMALL)
    assert cr.score(clf, data, out, **SMALL).resumed == 8


def test_progress_is_told_as_a_share(clf, data, out):
    shares = []
    cr.score(clf, data, out, **SMALL, progress=shares.append)
    assert shares[0] == 0.0
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_loaded_classifier_brings_its_fingerprint(data, out, clf):
    loaded = cr.LoadedClassifier(clf, "python", "ab" * 32, "a test")
    cr.score(loaded, data, out, **SMALL)
    stored = json.loads(pq.read_schema(out).metadata[b"settings"])
    assert stored["settings"]["model"] == "ab" * 32


def test_memory_does_not_grow_with_the_number_of_rows(tmp_path):
    clf = cr.Classifier(lambda x: x[:, :2], dtype=torch.float64)
    solver = dataclasses.replace(cr.GradientDescent(), steps=1)
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
    monkeypatch.setattr(module, "AUTO_ROWS", 4)
    source = cr.open_source(data)
    sizes = []
    read = type(source).read

    def counted(self, start, stop):
        sizes.append(stop - start)
        return read(self, start, stop)

    monkeypatch.setattr(type(source), "read", counted)
    cr.score(clf, source, out, **SMALL)
    assert max(sizes) == 4


class Picky(nn.Module):
    """Refuses inputs above ten, as a model with a domain would."""

    def forward(self, x):
        if bool((x > 10).any()):
            message = "out of my domain"
            raise ValueError(message)
        return x[:, :3]


def test_a_row_on_which_the_model_raises_costs_only_itself(tmp_path, out):
    clf = cr.Classifier(Picky(), dtype=torch.float64)
    x = np.random.default_rng(0).normal(size=(9, 4))
    x[5, 0] = 11.0
    np.save(tmp_path / "x.npy", x)
    report = cr.score(clf, tmp_path / "x.npy", out, gamma=1.0, chunk_size=5)
    assert report.statuses["model failed"] == 1
    assert "raised an exception" in report.summary()
    frame = pd.read_parquet(out)
    assert frame["status"].tolist().index("model failed") == 5
    assert frame["risk"].isna().sum() == 1


def test_gamma_is_set_by_the_rows_on_which_the_model_does_not_raise(tmp_path, out):
    clf = cr.Classifier(Picky(), dtype=torch.float64)
    x = np.random.default_rng(0).normal(size=(9, 4))
    x[5, 0] = 11.0
    np.save(tmp_path / "x.npy", x)
    report = cr.score(clf, tmp_path / "x.npy", out)
    assert report.statuses["model failed"] == 1
    assert report.gamma == cr.auto_gamma(clf, torch.from_numpy(np.delete(x, 5, axis=0)))
    x[2:] = 11.0  # no row is left
    x[:2] = np.nan
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(cr.ModelError):
        cr.score(clf, tmp_path / "x.npy", out, overwrite=True)
    assert not Shards(out).folder.exists()


def test_a_whole_chunk_of_such_rows_stops_nobody(tmp_path, out):
    clf = cr.Classifier(Picky(), dtype=torch.float64)
    x = np.random.default_rng(0).normal(size=(7, 4))
    x[6] = 11.0
    np.save(tmp_path / "x.npy", x)
    report = cr.score(clf, tmp_path / "x.npy", out, gamma=1.0, chunk_size=3)
    assert report.statuses["model failed"] == 1


class PickyInside(nn.Module):
    """The same with a part that can be named."""

    def __init__(self):
        super().__init__()
        self.part = nn.Identity()

    def forward(self, x):
        return Picky()(self.part(x))


@pytest.mark.parametrize("settings", [{"module": "part"}, {}], ids=["module", "inputs"])
@pytest.mark.parametrize("bad", [[0], [5], [0, 1, 4]])
@pytest.mark.parametrize("gamma", [1.0, "auto"])
def test_a_row_on_which_the_model_raises_may_be_among_the_first(
    tmp_path, out, *, settings, bad, gamma
):
    clf = cr.Classifier(PickyInside(), dtype=torch.float64, **settings)
    x = np.random.default_rng(0).normal(size=(9, 4))
    good = [n for n in range(9) if n not in bad]
    x[bad, 0] = 11.0
    np.save(tmp_path / "x.npy", x)
    report = cr.score(clf, tmp_path / "x.npy", out, gamma=gamma, chunk_size=4)
    frame = pd.read_parquet(out)
    assert [n for n, status in enumerate(frame["status"]) if status == "model failed"] == bad
    rows = torch.from_numpy(x[good])
    assert report.gamma == (cr.auto_gamma(clf, rows) if gamma == "auto" else gamma)
    expected = cr.credibility(clf, rows, gamma=report.gamma).risk
    np.testing.assert_allclose(frame["risk"][good], expected, rtol=1e-6)
    assert frame["risk"][bad].isna().all()


class PickyOfNaN(PickyInside):
    """Refuses NaN as well."""

    def forward(self, x):
        if bool(x.isnan().any()):
            message = "not a number"
            raise ValueError(message)
        return super().forward(x)


@pytest.mark.parametrize("settings", [{"module": "part"}, {}], ids=["module", "inputs"])
def test_a_model_that_refuses_gaps_too_is_not_asked_about_them(tmp_path, out, settings):
    clf = cr.Classifier(PickyOfNaN(), dtype=torch.float64, **settings)
    x = np.random.default_rng(0).normal(size=(9, 4)).clip(-2, 2)
    x[1, 2], x[4, 0], x[7, 1] = np.nan, 11.0, -5.0
    x[6] = np.nan
    np.save(tmp_path / "x.npy", x)
    cr.score(clf, tmp_path / "x.npy", out, bounds=(-4.0, 20.0), chunk_size=3)
    frame = pd.read_parquet(out)
    bad = {1: "non finite input", 4: "model failed", 6: "non finite input", 7: "outside bounds"}
    found = dict(enumerate(frame["status"]))
    assert {n: found[n] for n in bad} == bad
    assert set(np.delete(frame["status"], list(bad))) <= {"converged", "stalled"}
    assert frame["risk"].isna().tolist() == [n in bad for n in range(9)]


class Mortal(nn.Module):
    """Works for a while, as a device does that is about to fail."""

    left = 10**9

    def forward(self, x):
        self.left -= 1
        if self.left < 0:
            message = "the device is gone"
            raise RuntimeError(message)
        return x[:, :3]


def test_a_model_that_stops_working_is_named_and_finished_rows_are_kept(tmp_path, out):
    net = Mortal()
    clf = cr.Classifier(net, dtype=torch.float64)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(9, 4)))

    def dies(share):
        net.left = 0 if share > 0.6 else net.left

    settings = {"gamma": 1.0, "chunk_size": 3, "shard_size": 3}
    with pytest.raises(cr.ModelError, match="rows 6 to 8 with RuntimeError: the device is gone"):
        cr.score(clf, tmp_path / "x.npy", out, **settings, progress=dies)
    net.left = 10**9
    assert cr.score(clf, tmp_path / "x.npy", out, **settings).resumed == 6


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


@pytest.mark.parametrize(
    "settings",
    [{"module": "0"}, *[{"space": cr.Space(scale=torch.tensor([s, 1.0, 1, 1]))} for s in (2, 3)]],
)
def test_another_space_or_module_does_not_go_on(clf, data, out, monkeypatch, settings):
    first = cr.Classifier(clf.net, space=cr.Space(scale=torch.ones(4)))
    with monkeypatch.context() as patch:
        killed_after(patch, 3)
        with pytest.raises(Killed):
            cr.score(first, data, out, **SMALL)
    with pytest.raises(cr.OutputError, match="space fingerprint was"):
        cr.score(cr.Classifier(clf.net, **settings), data, out, **SMALL)
    assert cr.score(first, data, out, **SMALL).resumed > 0


@pytest.mark.parametrize("name", ["profiles.csv", "PROFILES.CSV", "profiles.json"])
def test_a_name_of_another_format_is_refused_before_any_work(clf, data, tmp_path, name):
    with pytest.raises(cr.OutputError, match=r"Parquet file.*read_parquet"):
        cr.score(clf, data, tmp_path / name, **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_the_digest_of_a_space_tells_every_setting():
    spaces = [
        cr.Space(),
        cr.Space(vary="a"),
        cr.Space(scale=2.0),
        cr.Space(scale=np.array([2.0, 1.0])),
        cr.Space(scale={"a": [2.0, 1.0]}),
        cr.Space(locked=["a"], columns=["a", "b"]),
        cr.Space(bounds=(torch.zeros(2), torch.ones(2))),
        cr.Space(bounds=(torch.zeros(2), 2 * torch.ones(2))),
    ]
    digests = [digest_of_space(space) for space in spaces]
    assert len(set(digests)) == len(spaces)
    assert digest_of_space(cr.Space(scale=np.array([2.0, 1.0]))) == digests[3]


def test_numbers_of_words_in_a_file_give_the_profiles_of_the_same_numbers_in_memory(tmp_path, out):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(30, 4), nn.Flatten(), nn.Tanh(), nn.Linear(20, 3)).double()
    words = torch.randint(0, 30, (ROWS, 5))
    np.save(tmp_path / "words.npy", words.numpy())
    source = cr.open_source(tmp_path / "words.npy", scale=1)
    with pytest.raises(cr.ModelError, match=r"preprocess=torch\.Tensor\.long"):
        cr.score(cr.Classifier(net.eval(), module="0"), source, out, gamma=2.0)
    clf = cr.Classifier(net, module="0", preprocess=torch.Tensor.long)
    cr.score(clf, source, out, gamma=2.0)
    expected = cr.credibility(cr.Classifier(net, module="0"), words, gamma=2.0)
    found = cr.Profile.from_parquet(out)
    torch.testing.assert_close(found.credibility, expected.credibility, atol=1e-9, rtol=0)
