"""Rules of any kind in one form: rows for which nothing was searched are never answered."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import credibly as cr
from tests.reference import models


@pytest.fixture(scope="module")
def clf():
    return cr.Classifier(models.smooth_network(classes=3))


@pytest.fixture(scope="module")
def known(clf):
    return cr.credibility(
        clf, models.inputs(60, seed=5), gamma=30.0, solver=cr.solvers.LBFGS(steps=10)
    )


@pytest.fixture(scope="module")
def rules(clf, known):
    labels = known.credence.argmax(1)
    return {
        "selective": cr.SelectiveClassifier.for_coverage(clf, known, 1.0),
        "flag": cr.OutlierFlag.fit(clf, known, false_alarms=0.05),
        "sets": cr.ConformalSets.fit(clf, known, labels, confidence=0.5),
    }


@pytest.mark.parametrize("name", ["selective", "flag", "sets"])
def test_a_row_that_gives_no_gradient_is_unusable(rules, known, name):
    before = rules[name].answers(known)
    row = next(n for n, k in enumerate(before.classes) if k is not None)
    codes = known.codes.clone()
    codes[row] = int(cr.Status.NO_GRADIENT)
    after = rules[name].answers(replace(known, codes=codes))
    assert not before.unusable[row]
    assert after.unusable[row]
    assert after.classes[row] is None
    assert after.counts["answered"] == before.counts["answered"] - 1
    assert torch.tensor(after.unusable).sum() == 1


@pytest.mark.parametrize("name", ["selective", "flag", "sets"])
def test_an_old_file_outlives_a_disk_that_is_full(rules, name, tmp_path, monkeypatch):
    path = tmp_path / "rule.json"
    rules[name].save(path)
    before, whole = path.read_bytes(), Path.write_text

    def half(self, text, **settings):
        whole(self, text[: len(text) // 2], **settings)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(cr.errors.OutputError, match="the disk is full"):
        rules[name].save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["rule.json"]


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_a_file_that_is_there_keeps_its_mode(rules, tmp_path):
    path = tmp_path / "rule.json"
    rules["selective"].save(path)
    path.chmod(0o640)
    rules["selective"].save(path)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_link_to_a_rule_stays_a_link(rules, tmp_path):
    link, path = tmp_path / "current.json", tmp_path / "rule.json"
    link.symlink_to(path)
    rules["selective"].save(link)
    assert link.is_symlink()
    assert cr.SelectiveClassifier.load(path) == rules["selective"]


def test_sets_of_one_class_are_answers_and_their_sizes_are_told(known, rules):
    rule = replace(rules["sets"], threshold=0.4)  # classes of at least 0.6: one of them, or none
    found = rule.answers(known)
    inside = [[p >= 0.6 for p in row] for row in known.credence.softmax(1).tolist()]
    sizes = [sum(row) for row in inside]
    assert found.columns["set_size"] == sizes
    assert found.columns["set"] == [[str(k) for k in range(3) if row[k]] for row in inside]
    assert list(found.classes) == [row.index(True) if sum(row) == 1 else None for row in inside]
    assert 0 < sizes.count(0) < 60
    mean = sum(sizes) / 60
    assert f"{mean:.3g} classes per set on average, {sizes.count(0)} empty sets" in found.notes
    wide = replace(rule, threshold=0.95).answers(known)
    assert max(wide.columns["set_size"]) > 1
    for k, size in zip(wide.classes, wide.columns["set_size"], strict=True):
        assert (k is None) == (size != 1)
    nothing = rule.answers(known[:0])
    assert nothing.classes == ()
    assert "0 classes per set on average, 0 empty sets" in nothing.notes


def test_what_a_flag_says_stands_in_columns(known, rules):
    flagged = rules["flag"].answers(known)
    flags = rules["flag"].flag(known).tolist()
    assert 0 < sum(flags) < 60
    assert list(flagged.predicted) == known.credence.argmax(1).tolist()
    assert flagged.columns["flagged"] == flags
    assert [k is None for k in flagged.classes] == flags
    assert flagged.counts == {"answered": 60 - sum(flags), "abstained": sum(flags)}
