"""Rules of any kind in one form: rows for which nothing was searched are never answered."""

from dataclasses import replace

import pytest
import torch

import credibly as cr
from credibly.decide.rules import answers
from tests.reference import models


@pytest.fixture(scope="module")
def clf():
    return cr.Classifier(models.smooth_network(classes=3))


@pytest.fixture(scope="module")
def known(clf):
    return cr.credibility(clf, models.inputs(60, seed=5), gamma=30.0, solver=cr.LBFGS(steps=10))


@pytest.fixture(scope="module")
def rules(clf, known):
    labels = known.fit.argmax(1)
    return {
        "selective": cr.SelectiveClassifier.for_coverage(clf, known, 1.0),
        "judge": cr.Judge.learn(clf, known, false_alarms=0.05, doubted=0.05),
        "flag": cr.OutlierFlag.learn(clf, known, false_alarms=0.05),
        "sets": cr.ConformalSets.fit(clf, known, labels, confidence=0.5),
    }


@pytest.mark.parametrize("name", ["selective", "judge", "flag", "sets"])
def test_a_row_that_gives_no_gradient_is_unusable(rules, known, name):
    before = answers(rules[name], known)
    row = next(n for n, k in enumerate(before.classes) if k is not None)
    codes = known.codes.clone()
    codes[row] = int(cr.Status.NO_GRADIENT)
    after = answers(rules[name], replace(known, codes=codes))
    assert not before.unusable[row]
    assert after.unusable[row]
    assert after.classes[row] is None
    assert after.counts["answered"] == before.counts["answered"] - 1
    assert torch.tensor(after.unusable).sum() == 1
