"""Runs that were killed go on; what belongs to another run is left alone."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import credibly as cr
from credibly.batch import score as module
from credibly.batch.shards import Shards
from credibly.io.fingerprints import digest_of_space
from tests.batch.settings import CLASSES, ROWS, SMALL


class Killed(BaseException):
    """Stands for whatever ends a process."""


def killed_after(monkeypatch, chunks):
    """Let a run die in the middle of a chunk."""
    solve, seen = module.solve_chunk, []

    def mortal(job, read):
        if len(seen) == chunks:
            raise Killed
        seen.append(read.first)
        return solve(job, read)

    monkeypatch.setattr(module, "solve_chunk", mortal)
    return seen


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
        ({"solver": cr.solvers.LBFGS()}, r"solver was Hybrid\(.*is now LBFGS"),
        ({"bounds": (-9.0, 9.0)}, r"bounds was not set and is now \[-9.0, 9.0\]"),
        ({"fingerprint": "other"}, "model was .* and is now other"),
    ],
)
def test_other_settings_do_not_go_on(clf, data, out, monkeypatch, *, change, words):
    interrupted(clf, data, out, monkeypatch)
    with pytest.raises(cr.errors.OutputError, match=words) as caught:
        cr.score(clf, data, out, **{**SMALL, **change})
    assert "--restart" in str(caught.value)
    assert cr.score(clf, data, out, **{**SMALL, **change}, resume=False).resumed == 0


def test_other_weights_and_other_data_do_not_go_on(clf, data, out, monkeypatch):
    interrupted(clf, data, out, monkeypatch)
    with torch.no_grad():
        next(clf.net.parameters())[0, 0] += 1e-6
    with pytest.raises(cr.errors.OutputError, match="model was"):
        cr.score(clf, data, out, **SMALL)
    with torch.no_grad():
        next(clf.net.parameters())[0, 0] -= 1e-6
    x = np.load(data)
    x[0, 0] += 1
    np.save(data, x)
    with pytest.raises(cr.errors.OutputError, match="data was"):
        cr.score(clf, data, out, **SMALL)


def halve(x):
    return x / 2


class Divide:
    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return x / self.by


def test_another_preprocess_does_not_go_on(clf, data, out, monkeypatch):
    def with_preprocess(function):
        return cr.Classifier(clf.net, classes=CLASSES, preprocess=function)

    interrupted(with_preprocess(halve), data, out, monkeypatch)
    for other in (with_preprocess(Divide(2)), clf):
        with pytest.raises(
            cr.errors.OutputError, match=r"preprocess was test_score_resume\.halve and is now"
        ) as caught:
            cr.score(other, data, out, **SMALL)
        assert "--restart" in str(caught.value)
    assert cr.score(with_preprocess(halve), data, out, **SMALL).resumed == 8


def test_a_finished_file_is_kept_unless_said_otherwise(clf, data, out):
    cr.score(clf, data, out, **SMALL)
    before = out.read_bytes()
    with pytest.raises(cr.errors.OutputError, match=r"exists already.*--overwrite"):
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
    assert not Shards(out).path.exists()


def test_a_damaged_part_is_solved_again(clf, data, out, monkeypatch, tmp_path):
    interrupted(clf, data, out, monkeypatch)
    Shards(out).part("part-000000.parquet").write_bytes(b"PAR1 nonsense")
    assert cr.score(clf, data, out, **SMALL).resumed == 0
    cr.score(clf, data, tmp_path / "whole.parquet", **SMALL)
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_a_damaged_manifest_starts_anew(clf, data, out, monkeypatch):
    interrupted(clf, data, out, monkeypatch)
    Shards(out).manifest.write_text("{")
    assert cr.score(clf, data, out, **SMALL).resumed == 0


def test_files_of_others_in_the_folder_of_parts_are_left_alone(clf, data, out):
    folder = Shards(out).path
    folder.mkdir()
    (folder / "mine.txt").write_text("keep")
    cr.score(clf, data, out, **SMALL)
    assert (folder / "mine.txt").read_text() == "keep"


def test_two_runs_on_one_output_are_refused(clf, data, out):
    with (
        Shards(out).lock(),
        pytest.raises(cr.errors.OutputError, match="another run is working on"),
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
    with pytest.raises(cr.errors.OutputError, match="exists already"):
        cr.score(clf, data, out, **{**SMALL, "gamma": 3.0})
    assert len(seen) == 6  # those of the first run; the second solved nothing
    assert json.loads(pq.read_schema(out).metadata[b"settings"])["resolved"]["gamma"] == 2.0
    assert not Shards(out).path.exists()
    monkeypatch.undo()
    finished_meanwhile(monkeypatch, lambda: cr.score(clf, data, out, overwrite=True, **SMALL))
    cr.score(clf, data, out, overwrite=True, **{**SMALL, "gamma": 3.0})  # unless it may
    assert json.loads(pq.read_schema(out).metadata[b"settings"])["resolved"]["gamma"] == 3.0


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
    with pytest.raises(cr.errors.OutputError, match="space fingerprint was"):
        cr.score(cr.Classifier(clf.net, **settings), data, out, **SMALL)
    assert cr.score(first, data, out, **SMALL).resumed > 0


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
