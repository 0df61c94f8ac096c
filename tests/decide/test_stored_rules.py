"""Files of rules as they are stored: what users have saved must be read for ever."""

import dataclasses
import json
from dataclasses import asdict
from pathlib import Path

import pytest

import credibly as cr
from credibly.decide import scores
from credibly.decide.rules import load_rule
from tests.reference import models

CLASSES = ("a", "b", "c")
BALANCED = {
    "kind": "balanced", "names": ["softmax_ratio", "predicted_ratio"], "shares": [1.0, 0.5],
    "spreads": [2.0, 0.25],
}  # fmt: skip
DISTANCE = {
    "kind": "distance", "names": ["shift", "gain"], "centres": [1.0, 0.5], "spreads": [2.0, 0.1],
}  # fmt: skip
RULES = {
    cr.SelectiveClassifier: {
        "format": "credibly.selective", "format_version": 1, "threshold": 1.25, "score": BALANCED,
        "answer": "credible", "origin": {"rule": "coverage", "coverage": 0.9, "samples": 40},
    },
    cr.OutlierFlag: {
        "format": "credibly.outlier-flag", "format_version": 1, "threshold": -4.7,
        "score": DISTANCE, "false_alarms": 0.05, "samples": 99,
    },
    cr.ConformalSets: {
        "format": "credibly.conformal", "format_version": 1, "threshold": 0.7, "confidence": 0.8,
        "probabilities": "softmax", "method": "lac", "samples": 300,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def profile():
    clf = cr.Classifier(models.smooth_network(classes=3), classes=CLASSES)
    return cr.credibility(clf, models.inputs(40), gamma=30.0, solver=cr.solvers.LBFGS(steps=10))


@pytest.fixture(params=RULES, ids=lambda kind: kind.__name__)
def stored(request, profile, tmp_path):
    settings = profile.settings
    known = {
        "weights": [30.0] * 3, "solver": repr(cr.solvers.LBFGS(steps=10)), "loss": settings.loss,
        "dtype": "torch.float64", "classes": list(CLASSES), "bounds": None,
        "moves": "inputs", "space": "inputs", "model": settings.model, "version": settings.version,
    }  # fmt: skip
    assert set(asdict(settings)) == {*known, "top", "class_count"}  # these came later
    content = {**RULES[request.param], "settings": known}
    path = tmp_path / "rule.json"
    path.write_text(json.dumps(content))
    return request.param, content, path


def test_a_stored_rule_is_read_and_written_as_it_was(stored, tmp_path):
    kind, content, path = stored
    for rule in (kind.load(path), load_rule(path)):
        assert type(rule) is kind
        rule.save(tmp_path / "again.json")
        assert json.loads((tmp_path / "again.json").read_text("utf-8")) == content


def by_hand(kind, profile):
    """What each stored rule says, from its numbers."""
    shift, gain = scores.shift(profile), scores.gain(profile)
    failure = scores.softmax_ratio(profile) / 2.0 + 0.5 * scores.predicted_ratio(profile) / 0.25
    tamper = -((shift - 1.0).abs() / 2.0 + (gain - 0.5).abs() / 0.1)
    if kind is cr.SelectiveClassifier:
        best = profile.credibility.argmax(1).tolist()
        answered = (failure >= 1.25).tolist()
        return [k if yes else cr.ABSTAINED for k, yes in zip(best, answered, strict=True)]
    if kind is cr.OutlierFlag:
        return (tamper < -4.7).tolist()
    return (profile.credence.softmax(1) >= 1 - 0.7).tolist()


def test_a_stored_rule_decides_by_its_numbers(stored, profile):
    kind, _, path = stored
    rule = kind.load(path)
    if kind is cr.SelectiveClassifier:
        found = list(rule.decide(profile).classes)
    elif kind is cr.OutlierFlag:
        found = rule.flag(profile).tolist()
    else:
        found = rule.sets(profile).tolist()
    assert found == by_hand(kind, profile)
    assert len({str(answer) for answer in found}) > 1  # else nothing was shown


@pytest.mark.parametrize(
    "change", [{"format_version": 2}, {"format_version": None}, {"format": ""}]
)
def test_other_versions_are_not_guessed_at(stored, change):
    kind, content, path = stored
    path.write_text(json.dumps({**content, **change}))
    with pytest.raises(cr.errors.FileFormatError, match=r"rule\.json"):
        kind.load(path)


def test_weights_of_another_precision_are_the_same_and_others_are_not(stored, profile):
    kind, content, path = stored
    ask = {cr.SelectiveClassifier: "decide", cr.OutlierFlag: "flag", cr.ConformalSets: "sets"}[kind]
    for factor, same in ((1 + 5e-7, True), (1 - 5e-7, True), (1 + 2e-6, False), (1 - 2e-6, False)):
        settings = {**content["settings"], "weights": [30.0, 30.0, 30.0 * factor]}
        path.write_text(json.dumps({**content, "settings": settings}))
        rule = kind.load(path)
        if same:
            getattr(rule, ask)(profile)
        else:
            with pytest.raises(
                cr.errors.InvalidArgumentError, match=r"the (weights|gamma) the threshold"
            ):
                getattr(rule, ask)(profile)


@pytest.mark.parametrize(
    "change", [{"classes": ["a", "b"]}, {"classes": [*"abcd"]}, {"weights": []}, {"weights": None}]
)
def test_a_rule_of_another_number_of_classes_is_a_damaged_file(stored, change):
    kind, content, path = stored
    path.write_text(json.dumps({**content, "settings": {**content["settings"], **change}}))
    for load in (kind.load, load_rule):
        with pytest.raises(cr.errors.FileFormatError, match=r"rule\.json"):
            load(path)


def test_names_of_another_number_are_told_and_not_compared_one_by_one(stored, profile):
    kind, _, path = stored
    rule = kind.load(path)
    more = dataclasses.replace(rule.settings, classes=(*CLASSES, "d"))
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"number of classes.*4, got 3"):
        dataclasses.replace(rule, settings=more).answers(profile)


def test_a_rule_that_cannot_be_opened_is_named(stored, monkeypatch):
    _, _, path = stored

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(cr.errors.FileFormatError, match=r"rule\.json: cannot be read"):
        load_rule(path)
