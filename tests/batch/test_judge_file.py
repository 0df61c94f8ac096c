"""Verdicts from disk to disk: those of the one call; what cannot be judged costs only itself."""

import dataclasses
import json
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import credibly as cr
from credibly.batch.judge import VERDICTS
from credibly.batch.shards import Shards
from credibly.decide.judge_files import digest
from credibly.decide.shown import classes_as_words
from tests.batch.settings import CLASSES, ROWS

SIZES = {"chunk_size": 4, "shard_size": 8}


@pytest.fixture
def ordinary():
    return np.random.default_rng(1).normal(size=(220, 4))


@pytest.fixture
def judge(clf, ordinary):
    return cr.Judge.fit(clf, ordinary, chunk_size=4)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "verdicts.parquet"


def parts_of(out):
    return Shards(out, VERDICTS)


def test_rows_are_those_of_the_one_call_bit_for_bit(judge, data, out):
    x = np.load(data)
    x[9] = 60.0
    np.save(data, x)
    report = cr.judge_file(judge, data, out, **SIZES)
    found, expected = pd.read_parquet(out), judge(torch.from_numpy(x)).to_pandas()
    assert list(found.columns) == ["id", *expected.columns, "status"]
    assert found["id"].tolist() == list(range(ROWS))
    pd.testing.assert_frame_equal(
        found[expected.columns], expected, check_exact=True, check_dtype=False
    )
    assert found["verdict"][9] == "outlier"
    assert found["status"].tolist() == [
        "non finite input" if n in (5, 6, 7) else "judged" for n in range(ROWS)
    ]
    assert report.verdicts == expected["verdict"].value_counts().to_dict()
    assert report.cost == pytest.approx(expected["passes"].mean(), rel=1e-12)
    assert report.rows == ROWS
    assert not parts_of(out).path.exists()


def test_columns_are_named_in_the_order_of_the_docs(judge, data, out):
    cr.judge_file(judge, data, out)
    names = list(pd.read_parquet(out).columns)
    signals = [name for name in names if name.startswith("signal.")]
    assert names == [
        "id", "verdict", "predicted", "class", "accepted", "trust", "p_ordinary", "p_outlier",
        "p_tampered", "p_wrong", "passes", *signals, "reason", "status",
    ]  # fmt: skip
    assert len(signals) > 4


def test_the_metadata_tells_the_settings_and_the_judge(judge, data, out):
    cr.judge_file(judge, data, out, **SIZES)
    metadata = pq.read_schema(out).metadata
    assert metadata[b"format"] == b"credibly.verdicts"
    assert metadata[b"format_version"] == b"1"
    stored = json.loads(metadata[b"settings"])
    assert stored["settings"]["data"] == cr.open_source(data).fingerprint()
    assert stored["settings"]["judge"] == digest(judge)
    assert stored["settings"]["classes"] == list(CLASSES)
    assert stored["resolved"]["gamma"] == judge.examiner.gamma
    facts = json.loads(metadata[b"judge"])
    assert facts["false_alarms"] == 0.01
    assert facts["samples"] == judge.facts.samples
    with pq.ParquetFile(out) as file:
        column = file.metadata.row_group(0).column(1)
        assert column.has_column_index
        assert column.has_offset_index


def test_the_summary_says_what_to_do(clf, ordinary, data, out):
    judge = cr.Judge.fit(clf, ordinary, clf.predict(torch.from_numpy(ordinary)))
    report = cr.judge_file(judge, data, out)
    text = report.summary()
    assert f"{ROWS} rows in {out}, {report.cost:.2f} passes each" in text
    assert f"{report.verdicts['trust']:>6} trust (" in text
    assert "Use the class. Of such ordinary inputs 100.0% are right." in text
    assert "     3 non finite input: it holds NaN or infinity" in text
    assert "rows/s" in text


def test_a_judge_that_was_saved_is_the_same_run(judge, clf, tmp_path, data, out):
    judge.save(tmp_path / "judge")
    again = cr.Judge.load(tmp_path / "judge", clf)
    assert digest(again) == digest(judge)
    cr.judge_file(judge, data, out, **SIZES)
    cr.judge_file(again, data, tmp_path / "again.parquet", **SIZES)
    assert (tmp_path / "again.parquet").read_bytes() == out.read_bytes()


@pytest.mark.parametrize("profile", ["doubtful", "always", "never"])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_chunk_without_a_usable_row_has_the_columns_of_any(
    tmp_path, ordinary, out, *, profile, classes
):
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, classes)).double().eval()
    judge = cr.Judge.fit(net, ordinary, profile=profile)
    x = np.random.default_rng(0).normal(size=(12, 4))
    x[:4] = x[8:] = np.nan
    np.save(tmp_path / "x.npy", x)
    report = cr.judge_file(judge, tmp_path / "x.npy", out, chunk_size=4, shard_size=4)
    assert report.statuses == {"non finite input": 8, "judged": 4}
    found = pd.read_parquet(out)
    expected = classes_as_words(judge(torch.from_numpy(x[4:8])).to_pandas())
    pd.testing.assert_frame_equal(
        found.loc[4:7, expected.columns].reset_index(drop=True), expected,
        check_exact=True, check_dtype=False,
    )  # fmt: skip
    parts = [judge(torch.from_numpy(x[k : k + 4])) for k in (0, 4)]
    assert cr.Judgement.concatenate(parts).codes.tolist() == found["verdict"].map(
        {str(v): v.code for v in cr.Verdict}
    ).tolist()[:8]  # fmt: skip


class Picky(nn.Module):
    """Refuses inputs above ten, and has no answer below minus ten."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        if bool((x > 10).any()):
            message = "out of my domain"
            raise ValueError(message)
        return torch.where((x < -10).any(1, keepdim=True), torch.nan, self.net(x))


@pytest.mark.parametrize("bad", [0, 5])
def test_rows_that_cannot_be_judged_get_their_status_and_do_not_affect_others(
    clf, ordinary, tmp_path, out, *, bad
):
    judge = cr.Judge.fit(Picky(clf.net).eval(), ordinary)
    x = np.random.default_rng(0).normal(size=(9, 4))
    x[bad, 0], x[2, 1], x[7, 2] = 11.0, -11.0, np.nan
    np.save(tmp_path / "x.npy", x)
    report = cr.judge_file(judge, tmp_path / "x.npy", out, chunk_size=3)
    found = pd.read_parquet(out)
    words = {bad: "model failed", 2: "non finite model", 7: "non finite input"}
    assert found["status"].tolist() == [words.get(n, "judged") for n in range(9)]
    assert found["verdict"][list(words)].tolist() == ["unusable"] * 3
    assert found["reason"][bad] == "unusable: the model raised an exception"
    assert found["trust"].isna().tolist() == [n in words for n in range(9)]
    good = [n for n in range(9) if n not in words]
    expected = judge(torch.from_numpy(x[good])).to_pandas()
    np.testing.assert_allclose(found["trust"][good], expected["trust"], rtol=1e-9)
    assert found["verdict"][good].tolist() == expected["verdict"].tolist()
    assert "1 model failed: the model raised an exception on it" in report.summary()


def test_files_that_cannot_be_read_cost_only_themselves(tmp_path, out):
    from PIL import Image

    random = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for k in range(6):
        Image.fromarray(random.integers(0, 256, (4, 4), np.uint8)).save(
            tmp_path / "images" / f"{k}.png"
        )
    (tmp_path / "images" / "3.png").write_bytes(b"broken")
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).eval()
    judge = cr.Judge.fit(net, torch.from_numpy(random.random((150, 1, 4, 4), np.float32)))
    report = cr.judge_file(judge, tmp_path / "images", out)
    found = pd.read_parquet(out)
    assert found["id"].tolist() == [f"{k}.png" for k in range(6)]
    assert report.statuses == {"judged": 5, "unreadable file": 1}
    assert found["status"][3] == "unreadable file"
    assert found["reason"][3] == "unusable: the file could not be read"


def test_rows_outside_the_bounds_of_a_space_get_a_status(clf, ordinary, tmp_path, out):
    bounded = cr.Classifier(clf.net, space=cr.Space(bounds=(-9.0, 9.0)))
    judge = cr.Judge.fit(bounded, torch.from_numpy(ordinary))
    x = np.random.default_rng(0).normal(size=(6, 4))
    x[4, 1] = 9.5
    np.save(tmp_path / "x.npy", x)
    cr.judge_file(judge, tmp_path / "x.npy", out)
    assert pd.read_parquet(out)["status"].tolist() == [*["judged"] * 4, "outside bounds", "judged"]


def test_inputs_of_another_shape_are_refused_and_leave_nothing_behind(judge, tmp_path, out):
    np.save(tmp_path / "x.npy", np.zeros((5, 7)))
    with pytest.raises(
        cr.errors.InvalidArgumentError, match=r"shape of the ordinary ones, \(4,\), got \(7,\)"
    ):
        cr.judge_file(judge, tmp_path / "x.npy", out)
    assert [path.name for path in tmp_path.glob("verdicts*")] == []


def test_a_file_without_a_usable_row_has_no_verdicts(judge, tmp_path, out):
    np.save(tmp_path / "x.npy", np.full((5, 4), np.nan))
    report = cr.judge_file(judge, tmp_path / "x.npy", out)
    assert not report.has_verdicts
    assert report.verdicts == {"unusable": 5}
    assert report.cost == 0


def test_memory_does_not_grow_with_the_number_of_rows(tmp_path):
    random = np.random.default_rng(0)
    net = nn.Linear(100, 3).double()
    judge = cr.Judge.fit(net, random.normal(size=(120, 100)), profile="never")
    peaks = []
    for rows in (4096, 512, 4096):  # the first also loads what is needed
        np.save(tmp_path / "x.npy", random.normal(size=(rows, 100)))
        tracemalloc.start()
        sizes = {"chunk_size": 128, "shard_size": 256}
        cr.judge_file(judge, tmp_path / "x.npy", tmp_path / f"{len(peaks)}.parquet", **sizes)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.5 * peaks[1]


def test_labels_of_more_inputs_than_are_used_are_cut(monkeypatch, clf, ordinary):
    from credibly.decide import ordinary as ordinary_inputs

    monkeypatch.setattr(ordinary_inputs, "MOST", 150)
    labels = clf.predict(torch.from_numpy(ordinary))
    judge = cr.Judge.fit(clf, ordinary, labels, chunk_size=50)
    assert judge.facts.samples <= 150
    assert judge.facts.labelled
    with pytest.raises(cr.errors.InvalidArgumentError, match="labels"):
        cr.Judge.fit(clf, ordinary, labels[:140], chunk_size=50)


@pytest.mark.parametrize("setting", ["outputs", "preprocess", "module"])
def test_a_judge_of_the_same_network_used_otherwise_is_refused(judge, clf, tmp_path, setting):
    judge.save(tmp_path / "judge")
    other = {"outputs": "probabilities", "preprocess": torch.nn.functional.relu, "module": "0"}
    with pytest.raises(cr.errors.InvalidArgumentError, match=f"got {setting} .* and not"):
        cr.Judge.load(tmp_path / "judge", cr.Classifier(clf.net, **{setting: other[setting]}))


def test_an_old_judge_survives_one_that_cannot_be_written(judge, clf, tmp_path, monkeypatch):
    from pathlib import Path

    judge.save(tmp_path / "judge")
    before = {path.name: path.read_bytes() for path in (tmp_path / "judge").iterdir()}
    other = dataclasses.replace(judge, thresholds=judge.thresholds + 1)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        for place in ("judge", "new"):
            with pytest.raises(cr.errors.OutputError, match="the disk is full"):
                other.save(tmp_path / place)
    assert {path.name: path.read_bytes() for path in (tmp_path / "judge").iterdir()} == before
    assert not (tmp_path / "new").exists()
    cr.Judge.load(tmp_path / "judge", clf)
