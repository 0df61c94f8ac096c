"""What is not a profile, not a label, not a score, or of other settings is said in words."""

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import credibly as cr
from credibly._validation import labels as checked_labels
from tests.reference import models

SOLVER = cr.solvers.LBFGS(steps=10)


@pytest.fixture(scope="module")
def clf():
    return cr.Classifier(models.smooth_network(classes=3), classes=("a", "b", "c"))


@pytest.fixture(scope="module")
def profile(clf):
    return cr.credibility(clf, models.inputs(120), gamma=200.0, solver=SOLVER)


def calls(clf, profile):
    labels = profile.credence.argmax(1)
    rule = cr.SelectiveClassifier.for_coverage(clf, profile, 0.5)
    sets = cr.ConformalSets.fit(clf, profile, labels)
    flag = cr.OutlierFlag.fit(clf, profile)
    return {
        "for_coverage": lambda p: cr.SelectiveClassifier.for_coverage(clf, p, 0.5),
        "for_error_rate": lambda p: cr.SelectiveClassifier.for_error_rate(clf, p, labels, 0.2),
        "for_alpha": lambda p: cr.SelectiveClassifier.for_alpha(clf, p, 0.5),
        "decide": rule.decide,
        "fit": lambda p: cr.ConformalSets.fit(clf, p, labels),
        "sets": sets.sets,
        "named": sets.named,
        "fit a flag": lambda p: cr.OutlierFlag.fit(clf, p),
        "flag": flag.flag,
    }


@pytest.mark.parametrize("bad", [models.inputs(120), models.inputs(120).numpy(), None, [1.0]])
def test_inputs_in_place_of_a_profile_are_refused_with_the_remedy(clf, profile, bad):
    words = re.escape("Make one with credibility(clf, x, gamma=...)")
    for call in calls(clf, profile).values():
        with pytest.raises(cr.errors.InvalidArgumentError, match=rf"`profile`: .*{words}"):
            call(bad)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (torch.arange(120) % 4, "classes from 0 to 2, got 3 for sample 3"),
        (torch.arange(120) % 3 - 1, "-1 for sample 0"),
        (["z"] * 120, "names of classes, a, b, c, got 'z'"),
        (np.array(["z"] * 120), "names of classes"),
        (torch.zeros(120) + 0.5, "float32.*labels.long"),
        (torch.zeros(120, 1).long(), r"labels\[:, 0\]"),
        (torch.eye(3)[torch.arange(120) % 3], r"one-hot: labels.argmax\(1\)"),
        (torch.zeros(7).long(), "one label per sample, in the order"),
    ],
)
def test_labels_are_checked_where_they_are_used(clf, profile, labels, words):
    decision = cr.SelectiveClassifier.for_coverage(clf, profile, 0.5).decide(profile)
    for call in (
        lambda: cr.SelectiveClassifier.for_error_rate(clf, profile, labels, 0.2),
        lambda: decision.accuracy(labels),
        lambda: decision.summary(labels),
    ):
        with pytest.raises(cr.errors.InvalidArgumentError, match=rf"`labels`.*{words}"):
            call()


def test_labels_may_be_lists_and_small_integers(clf, profile):
    decision = cr.SelectiveClassifier.for_coverage(clf, profile, 0.5).decide(profile)
    truth = profile.credence.argmax(1)
    for labels in (truth.tolist(), truth.byte(), truth.numpy().astype(np.uint16)):
        assert decision.accuracy(labels) == 1.0
    assert replace(decision, class_count=None).accuracy(truth) == 1.0


def other_forms(values):
    """The same numbers as users have them."""
    array = values.numpy()
    series = pd.Series(array, index=range(7, 7 + 3 * len(array), 3))
    fixed = array.copy()
    fixed.flags.writeable = False
    return {
        "series": series,
        "read-only": fixed,
        "of pandas": series.to_numpy(),
        "nullable": series.convert_dtypes(),
        "objects": series.astype(object),
        "other byte order": array.astype(array.dtype.newbyteorder(">")),
        "backwards": array[::-1].copy()[::-1],
    }


FORMS = tuple(other_forms(torch.arange(3)))


@pytest.mark.parametrize("form", FORMS)
def test_labels_are_taken_as_users_have_them(clf, profile, form):
    truth = profile.credence.argmax(1)
    truth[::7] = (truth[::7] + 1) % 3
    labels = other_forms(truth)[form]
    rule = cr.SelectiveClassifier.for_error_rate(clf, profile, labels, 0.4)
    assert rule == cr.SelectiveClassifier.for_error_rate(clf, profile, truth, 0.4)
    sets = cr.ConformalSets.fit(clf, profile, labels)
    assert sets == cr.ConformalSets.fit(clf, profile, truth)
    decision = rule.decide(profile)
    assert decision.accuracy(labels) == decision.accuracy(truth)
    assert decision.summary(labels) == decision.summary(truth)


@pytest.mark.parametrize("form", FORMS)
def test_metrics_take_them_likewise(profile, form):
    score = profile.risk
    right = torch.arange(len(score)) % 3 > 0
    for given in (other_forms(right.long())[form], other_forms(right)[form]):
        values = other_forms(score)[form]
        assert cr.metrics.aurc(values, given) == cr.metrics.aurc(score, right)
        assert cr.metrics.bootstrap(cr.metrics.aurc, values, given, n=5) == cr.metrics.bootstrap(
            cr.metrics.aurc, score, right, n=5
        )

    def mean(values):
        return values.double().mean()

    found = cr.metrics.bootstrap(mean, other_forms(score)[form], n=5)
    assert found == cr.metrics.bootstrap(mean, score, n=5)


@pytest.mark.parametrize("form", FORMS)
def test_attacks_and_studies_take_them_likewise(clf, form, tmp_path):
    x, truth = models.inputs(6), torch.arange(6) % 3
    labels = other_forms(truth)[form]
    attack = cr.attacks.PGD(eps=0.1, steps=2)
    assert torch.equal(attack(clf, x, labels), attack(clf, x, truth))
    system = cr.attacks.System.bare()
    assert torch.equal(system.judge(clf, x, labels).success, system.judge(clf, x, truth).success)
    study = cr.study.Study(clf=clf, gamma=30.0, solver=cr.solvers.LBFGS(steps=1), scores={})
    rows = study.run({"plain": cr.study.InputSet(x, labels, "ordinary")}, tmp_path)
    assert torch.equal(rows["plain"].labels, truth)


@pytest.mark.parametrize("bad", [["a", "b"], pd.Series(["a", "b"]), [[1], [1, 2]], [None, 1]])
def test_a_study_and_an_attack_say_what_labels_are(clf, bad):
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`labels`.*not an array of numbers"):
        cr.study.InputSet(models.inputs(2), bad, "ordinary")
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`labels`.*classes.index"):
        cr.attacks.PGD(eps=0.1, steps=2)(clf, models.inputs(2), bad)


def test_a_summary_without_answers_says_so(clf, profile):
    rule = cr.SelectiveClassifier.for_coverage(clf, profile, 0.5)
    decision = replace(rule, threshold=1e300).decide(profile)
    labels = profile.credence.argmax(1)
    assert math.isnan(decision.accuracy(labels))
    assert decision.summary(labels).endswith("right among the answered: nothing was answered")


def test_another_gamma_is_said_as_a_gamma(clf, profile):
    rule = cr.SelectiveClassifier.for_coverage(clf, profile, 0.5)
    other = cr.credibility(clf, models.inputs(2), gamma=100.0, solver=SOLVER)
    with pytest.raises(cr.errors.InvalidArgumentError) as caught:
        rule.decide(other)
    assert (
        "the gamma the threshold was chosen with, 200, got 100. Solve with gamma=200, or choose a"
        in str(caught.value)
    )


@pytest.mark.parametrize("differing", [0, 700])
def test_of_many_weights_the_first_that_differs_is_named(clf, profile, differing):
    rule = cr.SelectiveClassifier.for_coverage(clf, profile, 0.5)
    many = [float(k + 10) for k in range(1000)]
    rule = replace(rule, settings=replace(rule.settings, weights=tuple(many)))
    many[differing] = 7.0
    other = replace(profile, settings=replace(profile.settings, weights=tuple(many)))
    with pytest.raises(cr.errors.InvalidArgumentError) as caught:
        rule.decide(other)
    assert f"chosen with, {differing + 10} for class {differing}, got 7." in str(caught.value)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"1000 of them, got 3\."):
        rule.decide(profile)


@pytest.mark.parametrize("bad", [lambda p: p.risk, 3, ["margin"]])
def test_a_score_that_is_neither_name_nor_trust_score_is_refused(clf, profile, bad):
    for call in (
        lambda: cr.SelectiveClassifier.for_coverage(clf, profile, 0.5, score=bad),
        lambda: cr.SelectiveClassifier.for_error_rate(
            clf, profile, profile.credence.argmax(1), 0.2, score=bad
        ),
        lambda: cr.OutlierFlag.fit(clf, profile, score=bad),
    ):
        with pytest.raises(cr.errors.InvalidArgumentError, match=r"`score`.*TrustScore"):
            call()


def test_a_balanced_score_of_ones_own_is_public(clf, profile):
    own = cr.scores.Balanced.fit(profile, ("softmax_ratio", "predicted_ratio"), (1.0, 0.5))
    assert own == cr.scores.failure_score(profile)
    rule = cr.SelectiveClassifier.for_coverage(clf, profile, 0.5, score=own)
    assert rule.decide(profile).coverage == 0.5


def test_an_estimator_is_taken_once_it_is_fitted():
    x = models.inputs(120).numpy()
    model = cr.CredibilityClassifier(LogisticRegression(), gamma=1.0)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`clf`.*Fit it first"):
        cr.SelectiveClassifier.for_coverage(model, None, 0.8)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`clf`.*Fit it first"):
        cr.credibility(model, x, gamma=1.0)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`clf`.*from_sklearn\(model\)"):
        cr.credibility(LogisticRegression(), x, gamma=1.0)
    model.fit(x, (x[:, 0] > 0).astype(int))
    profile = cr.credibility(model, x, gamma=1.0)
    assert torch.equal(profile.credibility, model.profile(x).credibility)
    assert cr.auto_gamma(model, x) == cr.auto_gamma(model.classifier_, x)
    assert cr.bind(model, x).clf is model.classifier_
    rules = [
        cr.SelectiveClassifier.for_coverage(model, profile, 0.8),
        cr.SelectiveClassifier.for_alpha(model, profile, 0.5),
        cr.OutlierFlag.fit(model, profile, false_alarms=0.2),
    ]
    assert {rule.settings.model for rule in rules} == {profile.settings.model}
    assert rules[0].decide(profile).coverage == pytest.approx(0.8)


def test_the_file_of_another_rule_is_refused_by_its_format(tmp_path):
    clf = cr.Classifier(models.smooth_network())
    profile = cr.credibility(clf, models.inputs(30), gamma=30.0)
    path = tmp_path / "rule.json"
    made = [
        cr.SelectiveClassifier.for_coverage(clf, profile, 0.8),
        cr.OutlierFlag.fit(clf, profile, false_alarms=0.1),
        cr.ConformalSets.fit(clf, profile, torch.zeros(30, dtype=torch.long), confidence=0.8),
    ]
    for rule in made:
        rule.save(path)
        assert type(rule).load(path) == rule
        for other in {type(r) for r in made} - {type(rule)}:
            with pytest.raises(cr.errors.FileFormatError, match=f"{other.format}.*{rule.format}"):
                other.load(path)
    path.write_text("[]")
    with pytest.raises(cr.errors.FileFormatError, match=r"not a 'credibly\.outlier-flag' file"):
        cr.OutlierFlag.load(path)


def test_columns_of_tables_and_arrays_that_run_backwards_are_what_they_hold(clf, profile):
    labels = profile.credence.argmax(1)
    labels[::5] = (labels[::5] + 1) % 3
    rows = np.arange(len(labels)) + 7  # as after a split: no row is called 0
    column = pd.Series(labels.numpy(), index=rows)
    backwards = labels.flip(0).numpy()[::-1]
    expected = cr.SelectiveClassifier.for_error_rate(clf, profile, labels, 0.5)
    right, score = labels == 0, profile.risk
    for same in (column, backwards):
        assert cr.SelectiveClassifier.for_error_rate(clf, profile, same, 0.5) == expected
        found = cr.metrics.aurc(pd.Series(score.numpy(), index=rows), same == 0)
        assert found == cr.metrics.aurc(score, right)
    assert cr.metrics.bootstrap(
        torch.mean, pd.Series(score.numpy(), index=rows), n=9
    ) == cr.metrics.bootstrap(torch.mean, score, n=9)


@pytest.mark.parametrize(
    "labels", [[0.0, 1.0, 2.0], np.array([0.0, 1.0, math.nan]), torch.tensor([True, False, True])]
)
def test_labels_that_are_not_whole_are_told_how_to_become_so(labels):
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"labels\.astype\(int\)"):
        checked_labels(labels, 3, 3)
    with pytest.raises(cr.errors.InvalidArgumentError, match="one label per sample, in the order"):
        checked_labels([0, 1], 3, 3)
