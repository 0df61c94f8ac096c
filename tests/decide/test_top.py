"""Rules on profiles of the most probable classes answer with the classes of the model."""

import pytest
import torch

import credibly as cr
from credibly.decide.rules import load_rule
from tests.reference import models

CLASSES = 20
CLF = cr.Classifier(models.smooth_network(classes=CLASSES), classes=[f"k{k}" for k in range(20)])
X = 3 * models.inputs(120)
QUICK = {"gamma": 5.0, "solver": cr.solvers.LBFGS(steps=4)}
PREDICTED = CLF.predict(X)


@pytest.fixture(scope="module")
def profile():
    return cr.credibility(CLF, X, top=3, **QUICK)


def test_a_selective_rule_answers_with_numbers_of_the_model(profile):
    assert int(PREDICTED.max()) > 3  # more than there are columns
    rule = cr.SelectiveClassifier.for_error_rate(CLF, profile, PREDICTED, 0.1)
    decision = rule.decide(profile)
    assert list(decision.classes) == PREDICTED.tolist()
    assert decision.accuracy(PREDICTED) == 1
    assert decision.named() == [f"k{k}" for k in PREDICTED.tolist()]
    with pytest.raises(cr.errors.InvalidArgumentError, match="classes from 0 to 19"):
        decision.accuracy(PREDICTED + 19)


def test_other_rules_do_so_too(profile):
    answers = cr.OutlierFlag.fit(CLF, profile, false_alarms=0.05).answers(profile)
    assert list(answers.predicted) == PREDICTED.tolist()
    known = [(k, int(p)) for k, p in zip(answers.classes, PREDICTED, strict=True) if k is not None]
    assert known
    assert all(k == p for k, p in known)


def test_the_most_credible_class_is_refused_since_it_may_be_none(profile):
    for make in (
        lambda: cr.SelectiveClassifier.for_alpha(CLF, profile, 0.5),
        lambda: cr.SelectiveClassifier.for_coverage(CLF, profile, 0.5, answer="credible"),
        lambda: cr.SelectiveClassifier.for_error_rate(
            CLF, profile, PREDICTED, 0.1, answer="credible"
        ),
    ):
        with pytest.raises(cr.errors.InvalidArgumentError, match="`answer`: expected 'model'"):
            make()


def test_sets_of_classes_need_all_of_them(profile):
    with pytest.raises(cr.errors.InvalidArgumentError, match="a profile of all classes, got top 3"):
        cr.ConformalSets.fit(CLF, profile, PREDICTED)


@pytest.mark.parametrize("top", [None, 2])
def test_a_rule_refuses_profiles_of_another_choice_of_classes(profile, top):
    rule = cr.SelectiveClassifier.for_coverage(CLF, profile, 0.8)
    other = cr.credibility(CLF, X, top=top, **QUICK)
    with pytest.raises(cr.errors.InvalidArgumentError, match="Solve with top=3, or choose"):
        rule.decide(other)
    ordinary = cr.SelectiveClassifier.for_coverage(CLF, other, 0.8)
    wanted = "without top" if top is None else f"with top={top}"
    with pytest.raises(cr.errors.InvalidArgumentError, match=f"Solve {wanted}, or choose"):
        ordinary.decide(profile)


def test_a_rule_comes_back_from_its_file(profile, tmp_path):
    for rule in (
        cr.SelectiveClassifier.for_coverage(CLF, profile, 0.8),
        cr.OutlierFlag.fit(CLF, profile, false_alarms=0.05),
    ):
        rule.save(tmp_path / "rule.json")
        again = load_rule(tmp_path / "rule.json")
        assert again.settings == profile.settings
        assert again.answers(profile).classes == rule.answers(profile).classes
        assert "top 3 of 20 classes" in repr(again)
    text = (tmp_path / "rule.json").read_text("utf-8")
    (tmp_path / "rule.json").write_text(text.replace('"top": 3', '"top": 7'))
    with pytest.raises(cr.errors.FileFormatError, match="top 7 of 20 classes"):
        load_rule(tmp_path / "rule.json")


def test_models_are_compared_by_their_classes():
    other = cr.Classifier(models.smooth_network(classes=CLASSES, seed=3))
    bound = {"a": cr.bind(CLF, X, top=3), "b": cr.bind(other, X, top=3)}
    found = cr.compare(bound, None, **QUICK)
    same = (other.predict(X) == PREDICTED).double().mean()
    assert found.agreement["a", "b"].value == pytest.approx(float(same))
    p = cr.credibility(CLF, X, top=3, **QUICK)
    kept = (p.credibility.argmax(1) == 0).double().mean()
    assert found.means["class kept"]["a"].value == pytest.approx(float(kept))


def test_every_sample_is_told_apart_by_its_own_classes(profile):
    assert len({tuple(row) for row in profile.kept.tolist()}) > 1
    assert torch.equal(profile.predicted, profile.kept[:, 0])
