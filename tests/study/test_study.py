import json
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn

import credibly as cr
from credibly.decide import scores
from credibly.io.fingerprints import digest_of_tensor
from credibly.study.rows import read_rows, read_study
from credibly.study.study import InputSet, Study
from tests.reference import models


class Counting(nn.Module):
    """A network that counts how often it is asked."""

    def __init__(self, net):
        super().__init__()
        self.net = net
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.net(x)


def largest_logit(clf, x):
    with torch.no_grad():
        return clf.net(x).amax(1)


OTHERWISE = (
    {"loss": "logistic"},
    {"space": cr.Space(scale=2.0)},
    {"module": "net.0"},
    {"preprocess": lambda x: 2 * x},
    {"pick": lambda found: 2 * found},
)
"""Other questions to the same weights."""


@pytest.fixture
def net():
    return Counting(models.smooth_network(classes=3))


@pytest.fixture
def study(net):
    return Study(clf=cr.Classifier(net), gamma=30.0, baselines={"logit": largest_logit})


def some_sets():
    x = models.inputs(8)
    labels = torch.arange(8) % 3
    return {
        "clean": InputSet(x, labels, "ordinary"),
        "Noise, a 0.1": InputSet(lambda: x + 0.1, labels, "shifted"),
        "far away": InputSet(10 * x, None, "outliers"),
    }


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name, rows in left.items():
        other = right[name]
        assert rows.kind == other.kind
        for column in ("labels", "predicted", "credible"):
            assert torch.equal(getattr(rows, column), getattr(other, column))
        assert rows.scores.keys() == other.scores.keys()
        for score, values in rows.scores.items():
            assert torch.equal(values.nan_to_num(7.0), other.scores[score].nan_to_num(7.0))
        assert dict(rows.facts) == dict(other.facts)


def test_a_study_is_what_its_parts_are_by_themselves(study, tmp_path):
    found = study.run(some_sets(), tmp_path)
    x, labels = models.inputs(8), torch.arange(8) % 3
    profile = cr.credibility(study.clf, x + 0.1, gamma=30.0)
    rows = found["Noise, a 0.1"]
    assert set(rows.scores) == {*scores.SCORES, "logit"}
    for name, score in scores.SCORES.items():
        assert torch.equal(rows.scores[name], score(profile))
    assert torch.equal(rows.scores["logit"], largest_logit(study.clf, x + 0.1))
    assert torch.equal(rows.correct, profile.credence.argmax(1) == labels)
    assert torch.equal(rows.credible_correct, profile.credibility.argmax(1) == labels)
    assert rows.facts["samples"] == 8
    assert rows.facts["gamma"] == 30.0
    assert found["far away"].labels.tolist() == [-1] * 8
    assert not bool(found["far away"].correct.any())
    assert_same(read_study(tmp_path), {n: found[n] for n in sorted(found)} | found)


def test_a_study_that_is_run_again_computes_nothing(study, net, tmp_path):
    done = []
    first = study.run(some_sets(), tmp_path, progress=done.append)
    assert done[-1] == 1.0
    net.calls = 0

    def forbidden():
        pytest.fail("inputs were made again")

    sets = some_sets()
    sets["Noise, a 0.1"] = replace(sets["Noise, a 0.1"], inputs=forbidden)
    again = study.run(sets, tmp_path)
    assert net.calls == 0
    assert_same(first, again)


def test_progress_is_told_within_sets_and_begins_with_what_was_finished(study, tmp_path):
    sets = some_sets()  # of 8 inputs each
    first = dict(list(sets.items())[:1])
    small, done, later = replace(study, chunk_size=2), [], []
    small.run(first, tmp_path, progress=done.append)
    assert {0.0, 0.25, 0.5, 0.75, 1.0} <= set(done)  # a set of four chunks
    assert done == sorted(done)
    late = sets["far away"].load().clone
    sets["far away"] = replace(sets["far away"], inputs=late)  # how many is not known before
    small.run(sets, tmp_path, progress=later.append)
    assert later[0] == pytest.approx(1 / len(sets))
    assert later == sorted(later)
    assert later[-1] == 1.0
    assert len(set(later)) > 4 * (len(sets) - 1)
    again = []
    small.run(sets, tmp_path, progress=again.append)
    assert again == [1.0]


def test_a_killed_study_goes_on_where_it_was_and_finds_the_same(study, net, tmp_path):
    auto = replace(study, gamma="auto")
    whole = auto.run(some_sets(), tmp_path / "whole")

    def killed():
        raise KeyboardInterrupt

    sets = some_sets()
    sets["Noise, a 0.1"] = replace(sets["Noise, a 0.1"], inputs=killed)
    with pytest.raises(KeyboardInterrupt):
        auto.run(sets, tmp_path / "killed")
    assert set(read_study(tmp_path / "killed")) == {"clean"}
    stamp = (tmp_path / "killed" / "clean.safetensors").stat().st_mtime_ns
    net.calls = 0
    assert_same(whole, auto.run(some_sets(), tmp_path / "killed"))
    assert net.calls > 0
    assert (tmp_path / "killed" / "clean.safetensors").stat().st_mtime_ns == stamp


def test_a_part_that_cannot_be_read_is_not_taken(study, tmp_path):
    study.run(some_sets(), tmp_path)
    part = tmp_path / "far-away.safetensors"
    content = part.read_bytes()
    for bad in (content[: len(content) // 2], b"", b"not a part"):
        part.write_bytes(bad)
        with pytest.raises(cr.errors.FileFormatError, match="far-away"):
            study.run(some_sets(), tmp_path)
        with pytest.raises(cr.errors.FileFormatError, match="far-away"):
            read_study(tmp_path)
    cr.credibility(study.clf, models.inputs(2), gamma=1.0).save(part)
    with pytest.raises(cr.errors.FileFormatError, match=r"not a 'credibly.study' file"):
        read_rows(part)


def test_other_studies_are_refused_in_the_same_folder(study, tmp_path):
    study.run(some_sets(), tmp_path)
    stranger = cr.Classifier(models.smooth_network(classes=3, seed=4))
    for other in (
        replace(study, gamma=31.0),
        replace(study, gamma="auto"),
        replace(study, solver=cr.solvers.LBFGS()),
        replace(study, bounds=(-9.0, 9.0)),
        replace(study, clf=stranger),
        replace(study, baselines={}),
        replace(study, baselines={"logit": partial(largest_logit)}),
        replace(study, scores={"ratio": scores.ratio}),
        *(replace(study, clf=cr.Classifier(study.clf.net, **asked)) for asked in OTHERWISE),
    ):
        with pytest.raises(cr.errors.OutputError, match="run with other settings"):
            other.run(some_sets(), tmp_path)
    sets = some_sets()
    sets["clean"] = replace(sets["clean"], labels=torch.zeros(8, dtype=torch.long))
    with pytest.raises(cr.errors.InvalidArgumentError, match="labels in clean"):
        study.run(sets, tmp_path)
    sets = some_sets()
    sets["Noise, a 0.1"] = replace(sets["Noise, a 0.1"], kind="attacked")
    with pytest.raises(cr.errors.InvalidArgumentError, match="parts with kind attacked"):
        study.run(sets, tmp_path)


def test_parts_of_other_inputs_are_noticed(study, tmp_path):
    sets = some_sets()
    x = models.inputs(8)
    sets["Noise, a 0.1"] = replace(sets["Noise, a 0.1"], source="x + 0.1")
    first = study.run(sets, tmp_path)
    assert_same(first, study.run(sets, tmp_path))
    moved = x.clone()
    moved[7, 0] += 1e-9
    for name, other in (
        ("clean", replace(sets["clean"], inputs=moved)),
        ("clean", replace(sets["clean"], inputs=x.flip(1))),
        ("clean", replace(sets["clean"], inputs=x.float())),
        ("far away", replace(sets["far away"], inputs=x)),
        ("Noise, a 0.1", replace(sets["Noise, a 0.1"], source="x + 0.2")),
    ):
        with pytest.raises(cr.errors.InvalidArgumentError, match=r"`folder`.*parts with inputs"):
            study.run({**sets, name: other}, tmp_path)
        with pytest.raises(cr.errors.InvalidArgumentError, match=r"`folder`.*parts with inputs"):
            study.part(name, other, tmp_path)
    with safe_open(tmp_path / "noise-a-0.1.safetensors", "pt") as file:
        assert file.metadata()["input bytes"] == digest_of_tensor(x + 0.1)


def test_parts_from_several_processes_are_those_of_one(study, tmp_path):
    whole = study.run(some_sets(), tmp_path / "whole")
    parts = {name: study.part(name, part, tmp_path) for name, part in some_sets().items()}
    assert_same(whole, parts)
    records = [(tmp_path / place / "study.json").read_text() for place in ("", "whole")]
    assert records[0] == records[1]
    auto = replace(study, gamma="auto")
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`gamma`.*ordinary set first"):
        auto.part("far away", some_sets()["far away"], tmp_path / "auto")
    auto.part("clean", some_sets()["clean"], tmp_path / "auto")
    auto.part("far away", some_sets()["far away"], tmp_path / "auto")
    with pytest.raises(cr.errors.InvalidArgumentError, match="`sets`"):
        study.part("?", some_sets()["clean"], tmp_path)


def test_a_baseline_is_the_same_in_another_process(study, tmp_path):
    study.run(some_sets(), tmp_path)
    record = json.loads((tmp_path / "study.json").read_text())
    assert record["settings"]["baselines"] == {"logit": "<function largest_logit>"}  # no address


def test_a_damaged_record_is_refused(study, tmp_path):
    study.run(some_sets(), tmp_path)
    for bad in ("", "{}", "[]", '{"gamma": "x"}'):
        (tmp_path / "study.json").write_text(bad)
        with pytest.raises(cr.errors.FileFormatError, match=r"study\.json"):
            study.run(some_sets(), tmp_path)


def test_rows_without_numbers_are_neither_right_nor_scored(study, tmp_path):
    x = models.inputs(6)
    x[2] = math.nan
    sets = {
        "clean": InputSet(x, torch.zeros(6, dtype=torch.long), "ordinary"),
        "outliers": InputSet(x, None, "outliers"),
    }
    found = study.run(sets, tmp_path)
    for rows in found.values():
        assert int(rows.predicted[2]) == int(rows.credible[2]) == -1
        assert not bool(rows.correct[2])
        assert not bool(rows.credible_correct[2])
        assert all(bool(rows.scores[name][2].isnan()) for name in scores.SCORES)
        assert rows.facts["without a profile"] == 1
    assert int(found["clean"].scores["ratio"].isnan().sum()) == 1


def test_sets_that_make_no_study_are_refused(study, tmp_path):
    x, labels = models.inputs(3), torch.arange(3)
    good = InputSet(x, labels, "ordinary")
    for bad in (
        {},
        {"a": good, "b": good},
        {"a": InputSet(x, labels, "shifted")},
        {"a b": good, "A-B": InputSet(x, labels, "shifted")},
        {"?": good},
    ):
        with pytest.raises(cr.errors.InvalidArgumentError, match="`sets`"):
            study.run(bad, tmp_path)
    for kind, truth in (("weird", labels), ("outliers", labels), ("shifted", None)):
        with pytest.raises(cr.errors.InvalidArgumentError, match="`kind`"):
            InputSet(x, truth, kind)
    with pytest.raises(cr.errors.InvalidArgumentError, match="one number per sample, 3"):
        study.run({"a": InputSet(x, labels[:2], "ordinary")}, tmp_path / "labels")
    wide = replace(study, baselines={"wide": lambda clf, x: clf.net(x)})
    with pytest.raises(cr.errors.InvalidArgumentError, match="wide"):
        wide.run({"a": good}, tmp_path / "wide")
    with pytest.raises(cr.errors.InvalidArgumentError, match="`baselines`"):
        replace(study, baselines={"ratio": largest_logit})
    with pytest.raises(cr.errors.InvalidArgumentError, match="`chunk_size`"):
        replace(study, chunk_size=0)
    with pytest.raises(cr.errors.FileFormatError, match="no part of a study"):
        read_study(tmp_path / "nothing")


@pytest.mark.parametrize(
    "labels", [[0.5] * 8, [-1] * 8, [True] * 8, ["cat"] * 8, [[0]] * 8, 3, [], torch.tensor(0)]
)
def test_labels_that_are_no_classes_are_refused_before_the_work(labels):
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`labels`.*(number|classes)"):
        InputSet(models.inputs(8), labels, "ordinary")


def test_arrays_and_lists_are_taken_and_other_inputs_named(study, net, tmp_path):
    x, labels = models.inputs(8), torch.arange(8) % 3
    whole = study.run({"clean": InputSet(x, labels, "ordinary")}, tmp_path)
    for truth in (labels.numpy(), labels.tolist(), labels.double()):
        for number, inputs in enumerate((x.numpy(), x.numpy)):
            sets = {"clean": InputSet(inputs, truth, "ordinary")}
            folder = (
                tmp_path / f"{type(truth).__name__} {truth[0]} {number}"
            )  # nothing is there yet
            assert_same(whole, study.run(sets, folder))
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`inputs`.*list"):
        InputSet(x.tolist(), labels, "ordinary")
    net.calls = 0
    with pytest.raises(cr.errors.InvalidArgumentError, match="one number per sample, 8"):
        study.run({"clean": InputSet(x, labels[:7], "ordinary")}, tmp_path / "few")
    assert net.calls == 0  # told before the solve


@pytest.mark.parametrize(
    ("name", "bad"),
    [("bounds", (1.0, 0.0)), ("bounds", torch.tensor([0.0, 1.0])), ("solver", cr.solvers.LBFGS)],
)
def test_bad_settings_are_refused_before_anything_is_written(study, name, bad):
    with pytest.raises(cr.errors.InvalidArgumentError, match=f"`{name}`"):
        replace(study, **{name: bad})


def test_bounds_of_numpy_can_be_written(study, tmp_path):
    bounds = (np.float32(-9.0), np.float32(9.0))
    replace(study, bounds=bounds).part("clean", some_sets()["clean"], tmp_path)
    assert json.loads((tmp_path / "study.json").read_text())["settings"]["bounds"] == [-9.0, 9.0]


@pytest.mark.parametrize("gamma", [0.0, -1.0, float("nan"), float("inf"), "big", None, True])
def test_a_gamma_that_is_none_is_refused_before_anything_is_written(gamma):
    with pytest.raises(cr.errors.InvalidArgumentError, match="`gamma`"):
        cr.study.Study(clf=cr.Classifier(models.smooth_network(classes=3)), gamma=gamma)


@pytest.mark.parametrize("gamma", [1e-60, 1e60])
def test_a_gamma_beyond_the_precision_of_the_inputs_leaves_nothing_behind(gamma, tmp_path):
    folder = tmp_path / "o"
    net = models.smooth_network(classes=3).float()
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`gamma`.*torch.float32 can hold"):
        Study(clf=cr.Classifier(net), gamma=gamma)
    x, labels = models.inputs(4).float(), torch.zeros(4)
    sets = {"clean": InputSet(x, labels, "ordinary")}
    function = Study(clf=cr.Classifier(net.forward), gamma=gamma)  # the inputs will tell
    for go in (function.run, lambda sets, place: function.part("a", sets["clean"], place)):
        with pytest.raises(
            cr.errors.InvalidArgumentError, match=r"^`gamma`.*torch.float32 can hold"
        ):
            go(sets, folder)
    assert not folder.exists()
    Study(clf=cr.Classifier(net.double()), gamma=gamma)


@pytest.mark.parametrize("own_precision", [True, False])
def test_gammas_are_compared_in_the_precision_in_which_they_are_used(own_precision, tmp_path):
    net = models.smooth_network(classes=3).float()
    clf = cr.Classifier(net if own_precision else net.forward)
    sets = {"clean": InputSet(models.inputs(4).float(), torch.arange(4) % 3, "ordinary")}
    study = Study(clf=clf, gamma=0.1, solver=cr.solvers.LBFGS(steps=2))
    first = study.run(sets, tmp_path)
    profile = cr.credibility(clf, sets["clean"].load(), gamma=0.1, solver=study.solver)
    assert profile.gamma != 0.1  # but in single precision it is the same
    same = [profile.gamma, np.float32(0.1), torch.tensor(0.1), np.array(0.1)]
    for gamma in same:
        assert_same(replace(study, gamma=gamma).run(sets, tmp_path), first)
    with pytest.raises(cr.errors.OutputError, match="asked gamma"):
        replace(study, gamma=0.1 + 1e-8).run(sets, tmp_path)
    with pytest.raises(cr.errors.OutputError, match="asked gamma"):
        replace(study, gamma="auto").run(sets, tmp_path)


def test_what_is_no_classifier_is_named():
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`clf`.*Wrap your model"):
        Study(clf=models.smooth_network())


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("gamma", [30.0, "auto"])
@pytest.mark.parametrize("alone", [True, False])
def test_bounds_that_the_inputs_break_leave_no_record(study, tmp_path, made, gamma, alone):
    x, labels, calls = models.inputs(8), torch.arange(8) % 3, []

    def make():
        calls.append(1)
        return x

    inputs = InputSet(make if made else x, labels, "ordinary")

    def go(bounds):
        chosen = replace(study, gamma=gamma, bounds=bounds)
        if alone:
            return {"clean": chosen.part("clean", inputs, tmp_path)}
        return chosen.run({"clean": inputs}, tmp_path)

    with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`bounds`.*inputs span"):
        go((-0.1, 0.1))
    assert not (tmp_path / "study.json").exists()
    calls.clear()
    found = go((-9.0, 9.0))  # the corrected one is not refused
    assert len(calls) == int(made)  # made once
    again = replace(study, gamma=gamma, bounds=(-9.0, 9.0)).run({"clean": inputs}, tmp_path)
    assert_same(found, again)


def test_labels_of_no_class_of_the_model_are_refused_before_the_work(study, tmp_path):
    x, labels = models.inputs(8), torch.arange(8) % 3
    labels[5] = 3
    shifted = InputSet(lambda: x + 0.1, labels, "shifted")
    for sets in (
        {"clean": InputSet(x, labels, "ordinary")},
        {"clean": InputSet(lambda: x, labels, "ordinary")},
        {"noise": shifted, "clean": some_sets()["clean"]},
        {**some_sets(), "more": InputSet(x, labels, "attacked")},
    ):
        with pytest.raises(
            cr.errors.InvalidArgumentError, match=r"^`labels`.*0 to 2.*3 for sample 5"
        ):
            study.run(sets, tmp_path)
        assert not (tmp_path / "study.json").exists()
    study.run(some_sets(), tmp_path)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`labels`.*0 to 2.*3 for sample 5"):
        study.part("noise", shifted, tmp_path)
    assert not (tmp_path / "noise.safetensors").exists()


def test_the_facts_of_a_set_are_those_of_its_profile(study, tmp_path):
    x = models.inputs(8)
    x[3] = math.nan
    labels = torch.arange(8) % 3
    nothing = InputSet(torch.full((2, 8), math.nan, dtype=torch.float64), labels[:2], "shifted")
    sets = {"clean": InputSet(x, labels, "ordinary"), "nothing": nothing}
    found = study.run(sets, tmp_path)
    passes = cr.credibility(study.clf, x, gamma=30.0).passes[~x.isnan().any(1)]
    assert dict(found["clean"].facts) == {
        "gamma": 30.0, "samples": 8.0, "without a profile": 1.0,
        "median passes": float(passes.median()),
    }  # fmt: skip
    assert found["clean"].facts["median passes"] > 0
    facts = found["nothing"].facts
    assert (facts["samples"], facts["without a profile"]) == (2.0, 2.0)
    assert math.isnan(facts["median passes"])
