"""Runs of verdicts that were killed go on; what belongs to another run is left alone."""

import dataclasses

import numpy as np
import pytest
import torch

import credibly as cr
from credibly.batch import judge as module
from credibly.batch.judge import VERDICTS
from credibly.batch.shards import Shards
from tests.batch.settings import ROWS, SMALL

SIZES = {"chunk_size": 4, "shard_size": 8}


class Killed(BaseException):
    """Stands for whatever ends a process."""


@pytest.fixture
def judge(clf):
    return cr.Judge.fit(clf, np.random.default_rng(1).normal(size=(220, 4)))


@pytest.fixture
def out(tmp_path):
    return tmp_path / "verdicts.parquet"


def killed_after(monkeypatch, chunks):
    """Let a run die in the middle of a chunk."""
    work, seen = module.judge_chunk, []

    def mortal(job, read):
        if len(seen) == chunks:
            raise Killed
        seen.append(read.first)
        return work(job, read)

    monkeypatch.setattr(module, "judge_chunk", mortal)
    return seen


def interrupted(judge, data, out, monkeypatch, chunks=3, **settings):
    with monkeypatch.context() as patch:
        killed_after(patch, chunks)
        with pytest.raises(Killed):
            cr.judge_file(judge, data, out, **{**SIZES, **settings})


@pytest.mark.parametrize("chunks", [0, 1, 2, 5])
def test_a_killed_run_goes_on_and_gives_the_same_file(
    judge, data, out, tmp_path, *, monkeypatch, chunks
):
    cr.judge_file(judge, data, tmp_path / "whole.parquet", **SIZES)
    interrupted(judge, data, out, monkeypatch, chunks)
    assert not out.exists()
    with monkeypatch.context() as patch:
        seen = killed_after(patch, 99)
        report = cr.judge_file(judge, data, out, **SIZES)
    assert report.resumed == 8 * (chunks // 2)
    assert len(seen) == 6 - 2 * (chunks // 2)
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert "rows were finished before" in report.summary() or chunks < 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"chunk_size": 8}, "chunk_size was 4 and is now 8"),
        ({"fingerprint": "other"}, "model was .* and is now other"),
        ({"judge": None}, "judge was .* and is now"),
    ],
)
def test_other_settings_do_not_go_on(judge, data, out, monkeypatch, *, change, words):
    interrupted(judge, data, out, monkeypatch)
    other = dataclasses.replace(judge, thresholds=judge.thresholds + 1)
    used = other if "judge" in change else judge
    settings = {**SIZES, **{n: v for n, v in change.items() if n != "judge"}}
    with pytest.raises(cr.errors.OutputError, match=words) as caught:
        cr.judge_file(used, data, out, **settings)
    assert "--restart" in str(caught.value)
    assert cr.judge_file(used, data, out, **settings, resume=False).resumed == 0


def test_other_data_do_not_go_on(judge, data, out, monkeypatch):
    interrupted(judge, data, out, monkeypatch)
    x = np.load(data)
    x[0, 0] += 1
    np.save(data, x)
    with pytest.raises(cr.errors.OutputError, match="data was"):
        cr.judge_file(judge, data, out, **SIZES)


def test_a_damaged_part_is_judged_again(judge, data, out, monkeypatch, *, tmp_path):
    interrupted(judge, data, out, monkeypatch)
    Shards(out, VERDICTS).part("part-000000.parquet").write_bytes(b"PAR1 nonsense")
    assert cr.judge_file(judge, data, out, **SIZES).resumed == 0
    cr.judge_file(judge, data, tmp_path / "whole.parquet", **SIZES)
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_a_finished_file_is_kept_unless_said_otherwise(judge, data, out):
    cr.judge_file(judge, data, out, **SIZES)
    before = out.read_bytes()
    with pytest.raises(cr.errors.OutputError, match=r"exists already.*--overwrite"):
        cr.judge_file(judge, data, out, **SIZES)
    assert out.read_bytes() == before
    assert cr.judge_file(judge, data, out, **SIZES, overwrite=True).rows == ROWS


def test_two_runs_on_one_output_are_refused(judge, data, out):
    with (
        Shards(out, VERDICTS).lock(),
        pytest.raises(cr.errors.OutputError, match="another run is working on"),
    ):
        cr.judge_file(judge, data, out, **SIZES)


@pytest.mark.parametrize("kind", ["verdicts", "profiles"])
def test_the_parts_of_a_run_of_another_kind_are_not_touched(
    clf, judge, data, out, *, monkeypatch, kind
):
    def scored(**settings):
        return cr.score(clf, data, out, **SMALL, **settings)

    def judged(**settings):
        return cr.judge_file(judge, data, out, **SIZES, **settings)

    first, second = (judged, scored) if kind == "verdicts" else (scored, judged)
    with monkeypatch.context() as patch:
        patch.setattr(Shards, "merge", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            first()
    with pytest.raises(cr.errors.OutputError, match=r"run of another kind.*--restart"):
        second()
    assert first().resumed == ROWS
    out.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(Shards, "merge", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            first()
    assert second(resume=False).resumed == 0


def test_an_input_that_changes_during_the_run_is_refused(judge, data, out):
    def change(share):
        if 0.3 < share < 0.9:
            np.save(data, np.zeros((ROWS, 4)))

    with pytest.raises(cr.errors.FileFormatError, match="changed while it was read"):
        cr.judge_file(judge, data, out, **SIZES, progress=change)
    assert not out.exists()


def test_chunks_as_large_as_those_of_the_judge_are_the_default(judge, data, out, monkeypatch):
    seen = killed_after(monkeypatch, 99)
    cr.judge_file(judge, data, out)
    assert seen == [0]
    assert judge.examiner.chunk_size == 256
    with pytest.raises(cr.errors.InvalidArgumentError, match="chunk_size"):
        cr.judge_file(judge, data, out, chunk_size=0, overwrite=True)
    assert torch.is_grad_enabled()
