"""What people see when they print a rule, a decision or a verdict: short, and in words."""

import math

import pytest
import torch

import credibly as cr
from credibly.decide import thresholds
from tests.reference import models

CLF = cr.Classifier(models.smooth_network(), classes=("ant", "bee", "cat", "dog", "elk"))
X = models.inputs(40)
X[3, 0] = math.nan


@pytest.fixture(scope="module")
def profile():
    return cr.credibility(CLF, X, gamma=30.0, solver=cr.solvers.LBFGS(steps=5))


def rules(profile):
    labels = profile.credence.nan_to_num(-1.0).argmax(1)
    return [
        cr.SelectiveClassifier.for_coverage(CLF, profile, 0.8),
        cr.SelectiveClassifier.for_error_rate(CLF, profile, labels, 0.5, score="margin"),
        cr.SelectiveClassifier.for_alpha(CLF, profile, 0.3),
        cr.OutlierFlag.fit(CLF, profile, false_alarms=0.1),
        cr.ConformalSets.fit(CLF, profile, labels, confidence=0.8),
    ]


def test_rules_print_their_gamma_once_and_fit_on_two_lines(profile):
    for rule in rules(profile):
        text = repr(rule)
        assert text.startswith(type(rule).__name__)
        assert text.count("30") == 1, text
        assert "gamma 30, 5 classes" in text
        assert "ant" not in text
        assert len(text) < 260


def test_a_decision_prints_no_tensors(profile):
    decision = cr.SelectiveClassifier.for_coverage(CLF, profile, 0.8).decide(profile)
    answered = int(decision.accepted.sum())
    least = f"{decision.threshold:.4g}"
    assert repr(decision) == f"Decision({answered} of 40 answered; score below {least})"


def test_a_rule_that_accepts_everything_says_so_in_words(profile):
    labels = profile.credence.nan_to_num(-1.0).argmax(1)
    rule = cr.SelectiveClassifier.for_error_rate(CLF, profile, labels, 0.5)
    assert rule.threshold == thresholds.EVERYTHING
    text = rule.decide(profile).summary() + repr(rule) + repr(rule.decide(profile))
    assert "e+308" not in text
    assert "1 abstained (no score is too low, 1 of them without a profile)" in text
    assert "score below" not in text


def test_verdicts_and_statuses_print_as_words_and_stay_what_they_are(profile):
    assert str(cr.Verdict.DOUBTFUL) == f"{cr.Verdict.DOUBTFUL}"
    assert str(cr.Verdict.DOUBTFUL) == "doubtful"
    assert repr(cr.Verdict.TRUST) == "<Verdict.TRUST: 'trust'>"
    assert str(cr.ABSTAINED) == "abstained"
    assert str(profile.status[3]) == f"{profile.status[3]}" == "non finite input"
    assert repr(cr.Status.STALLED) == "<Status.STALLED: 2>"
    assert f"{cr.Status.STALLED:d}|{cr.Status.STALLED:>8}" == "2| stalled"
    assert int(cr.Status.STALLED) == 2
    assert torch.tensor([cr.Status.STALLED]).tolist() == [2]


def test_settings_print_one_weight_where_all_are_the_same(profile):
    assert repr(profile.settings).startswith("Settings(gamma 30 x 5, solver='LBFGS(")
    many = cr.credibility(CLF, X[:3], weights=[1.0, 2, 3, 4, 5], solver=cr.solvers.LBFGS(steps=2))
    assert "weights per class x 5" in repr(many.settings)
