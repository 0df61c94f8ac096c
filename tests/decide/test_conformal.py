"""Sets that hold the true class: MAPIE's own, kept in a file, and as often right as promised."""

import json
import math
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mapie.classification import SplitConformalClassifier
from sklearn.base import BaseEstimator, ClassifierMixin

import credibly as cr
from credibly.decide import conformal
from tests.reference import models

GAMMA = 30.0
METHODS = ["lac", "aps"]
SOURCES = ["profile", "softmax"]


class Passing(ClassifierMixin, BaseEstimator):
    """Another wrapping of probabilities than that of the package."""

    def fit(self, X, _y):
        self.classes_ = np.arange(X.shape[1])
        return self

    def predict_proba(self, X):
        return X

    def predict(self, X):
        return X.argmax(1)


@pytest.fixture(scope="module")
def clf():
    return cr.Classifier(models.smooth_network(classes=4), classes=("a", "b", "c", "d"))


@pytest.fixture(scope="module")
def population(clf):
    return cr.credibility(
        clf, models.inputs(3000, seed=5), gamma=GAMMA, solver=cr.solvers.LBFGS(steps=10)
    )


@pytest.fixture(scope="module")
def truth(population):
    """Labels drawn from flattened probabilities: the model is often wrong, and too sure."""
    return torch.multinomial(
        (0.5 * population.credence).softmax(1), 1, generator=torch.Generator().manual_seed(1)
    ).squeeze(1)


def chosen(probabilities):
    return {"profile": "credibility", "softmax": "credence"}[probabilities]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("confidence", [0.6, 0.9])
def test_sets_are_those_of_mapie_called_by_hand(
    clf, population, truth, *, method, source, confidence
):
    known, new = population[:300], population[300:500]
    found = cr.ConformalSets.fit(
        clf, known, truth[:300], confidence=confidence, probabilities=source, method=method, seed=3
    )
    values, others = (
        torch.exp(c - c.logsumexp(1, keepdim=True)).numpy()
        for c in (getattr(known, chosen(source)), getattr(new, chosen(source)))
    )
    hand = SplitConformalClassifier(
        Passing().fit(values, None), confidence_level=confidence, conformity_score=method,
        prefit=True, random_state=3,
    )  # fmt: skip
    hand.conformalize(values, truth[:300].numpy())
    _, expected = hand.predict_set(others)
    assert found.sets(new).dtype == torch.bool
    assert found.sets(new).tolist() == expected[:, :, 0].tolist()
    assert found.samples == 300


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("source", SOURCES)
def test_the_true_class_is_inside_as_often_as_asked(clf, population, truth, method, source):
    draws, size, tried, confidence = 200, 60, 20, 0.8
    inside, total = 0, draws * tried
    for _ in range(draws):
        rows = torch.randperm(len(population))[: size + tried]
        known, new = rows[:size], rows[size:]
        found = cr.ConformalSets.fit(
            clf, population[known], truth[known], confidence=confidence,
            probabilities=source, method=method,
        )  # fmt: skip
        inside += int(found.sets(population[new])[torch.arange(tried), truth[new]].sum())
    variance = confidence * (1 - confidence)
    # the samples of a draw share its threshold, whose own coverage varies as a beta distribution
    error = math.sqrt(variance / total + variance / (size + 2) / draws)
    assert inside / total > confidence - 3 * error
    if method == "lac":  # exact up to 1 / (size + 1): the test would see sets that are too large
        assert inside / total < confidence + 1 / (size + 1) + 3 * error


def test_a_model_that_is_much_too_sure_does_not_lose_coverage(clf, population):
    sure = replace_fit(population, 200.0)
    truth = torch.randint(4, (len(sure),), generator=torch.Generator().manual_seed(2))
    found = cr.ConformalSets.fit(
        clf, sure[:1000], truth[:1000], probabilities="softmax", method="aps"
    )
    inside = found.sets(sure[1000:])[torch.arange(2000), truth[1000:]].double().mean()
    assert float((sure.credence.softmax(1) < 0.001).double().mean()) > 0.6
    assert float(inside) > 0.9 - 0.03


def replace_fit(profile, factor):
    return replace(profile, credence=(factor * profile.credence).log_softmax(1))


@given(
    levels=st.lists(st.floats(0.05, 0.95), min_size=2, max_size=2, unique=True).map(sorted),
    method=st.sampled_from(METHODS),
    source=st.sampled_from(SOURCES),
    start=st.integers(0, 2000),
)
def test_more_confidence_never_gives_less(clf, population, truth, *, levels, method, source, start):
    known, new = slice(start, start + 80), slice(start + 80, start + 120)
    small, large = (
        cr.ConformalSets.fit(
            clf, population[known], truth[known], confidence=level, probabilities=source,
            method=method,
        ).sets(population[new])
        for level in levels
    )  # fmt: skip
    assert bool((small <= large).all())


@given(st.floats(0.01, 0.995))
def test_the_number_of_samples_that_is_named_suffices_and_one_less_does_not(
    clf, population, truth, confidence
):
    needed = conformal.samples_needed(confidence)
    cr.ConformalSets.fit(clf, population[:needed], truth[:needed], confidence=confidence)
    with pytest.raises(cr.errors.InvalidArgumentError, match=rf"at least {needed} labelled.*got"):
        cr.ConformalSets.fit(
            clf, population[: needed - 1], truth[: needed - 1], confidence=confidence
        )


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99, 0.5, np.float32(0.9)])
def test_common_confidences_need_what_the_arithmetic_says(clf, population, truth, confidence):
    needed = conformal.samples_needed(float(confidence))
    assert needed == math.ceil(round(1 / (1 - float(confidence)), 4))
    cr.ConformalSets.fit(clf, population[:needed], truth[:needed], confidence=confidence)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("source", SOURCES)
def test_samples_without_a_profile_get_every_class(clf, population, truth, method, source):
    x = models.inputs(30)
    x[3] = math.nan
    x[5, 0] = math.inf
    holes = cr.credibility(clf, x, gamma=GAMMA, solver=cr.solvers.LBFGS(steps=10))
    settings = {"confidence": 0.5, "probabilities": source, "method": method}
    found = cr.ConformalSets.fit(clf, population[:200], truth[:200], **settings)
    sizes = found.sets(holes).sum(1)
    assert sizes[[3, 5]].tolist() == [4, 4]
    assert int((sizes < 4).sum()) > 20
    assert found.sets(holes[[3, 5]]).all()
    labels = torch.arange(30) % 4
    with_holes = cr.ConformalSets.fit(clf, holes, labels, **settings)
    rows = [n for n in range(30) if n not in (3, 5)]
    without = cr.ConformalSets.fit(clf, holes[rows], labels[rows], **settings)
    assert with_holes.samples == 28
    assert with_holes == without


def test_names_are_those_of_the_classes(clf, population, truth):
    found = cr.ConformalSets.fit(clf, population[:200], truth[:200], confidence=0.8)
    rows = found.sets(population[:20]).tolist()
    expected = [["abcd"[k] for k in range(4) if row[k]] for row in rows]
    assert found.named(population[:20]) == expected


def test_a_sample_without_some_class_is_no_problem(clf, population, truth):
    rows = (truth != 2).nonzero().squeeze(1)[:100]
    found = cr.ConformalSets.fit(clf, population[rows], truth[rows])
    assert found.sets(population[:10]).shape == (10, 4)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (torch.zeros(99, dtype=torch.long), "one whole number per sample, 100"),
        (torch.zeros(100, 1, dtype=torch.long), r"shape \(100, 1\)"),
        (torch.zeros(100) + 0.5, "float32"),
        (["z"] * 100, "in the order of the model's outputs"),
        (np.array(["z"] * 100), "in the order of the model's outputs"),
        (torch.zeros(100, dtype=torch.bool), "bool"),
        (torch.arange(100) % 5, "classes from 0 to 3, got 4 for sample 4"),
        (torch.arange(100) % 4 - 1, "-1 for sample 0"),
    ],
)
def test_labels_are_checked(clf, population, labels, words):
    with pytest.raises(cr.errors.InvalidArgumentError, match=rf"`labels`.*{words}"):
        cr.ConformalSets.fit(clf, population[:100], labels)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"confidence": 1.0}, "`confidence`"),
        ({"confidence": "high"}, "`confidence`"),
        ({"probabilities": "logits"}, "`probabilities`"),
        ({"method": "raps"}, "`method`"),
        ({"seed": 0.5}, "`seed`"),
        ({"seed": -1}, "`seed`"),
        ({"seed": 2**32}, "`seed`"),
    ],
)
def test_bad_settings_are_refused(clf, population, truth, settings, match):
    with pytest.raises(cr.errors.InvalidArgumentError, match=match):
        cr.ConformalSets.fit(clf, population[:100], truth[:100], **settings)


def test_profiles_of_another_model_or_gamma_are_refused(clf, population, truth, tmp_path):
    cr.ConformalSets.fit(clf, population[:100], truth[:100]).save(tmp_path / "s.json")
    found = cr.ConformalSets.load(tmp_path / "s.json")
    other = cr.Classifier(models.smooth_network(classes=4, seed=1))
    x, solver = models.inputs(3), cr.solvers.LBFGS(steps=10)
    with pytest.raises(cr.errors.InvalidArgumentError, match="the model the threshold"):
        found.sets(cr.credibility(other, x, gamma=GAMMA, solver=solver))
    with pytest.raises(cr.errors.InvalidArgumentError, match="the gamma the threshold"):
        found.sets(cr.credibility(clf, x, gamma=2 * GAMMA, solver=solver))
    with pytest.raises(cr.errors.InvalidArgumentError, match="this very classifier"):
        cr.ConformalSets.fit(other, population[:100], truth[:100])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("source", SOURCES)
def test_what_was_saved_gives_the_same_sets(clf, population, truth, tmp_path, *, method, source):
    path = tmp_path / "sets.json"
    found = cr.ConformalSets.fit(
        clf, population[:150], truth[:150], probabilities=source, method=method
    )
    found.save(path)
    again = cr.ConformalSets.load(path)
    assert again == found
    assert torch.equal(again.sets(population), found.sets(population))
    json.loads(path.read_text("utf-8"), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "credibly.judge"},
        {"format_version": 2},
        {"threshold": "high"},
        {"threshold": math.nan},
        {"confidence": 1.5},
        {"probabilities": "logits"},
        {"method": ["lac"]},
        {"settings": {}},
        {"samples": None},
    ],
)
def test_files_of_other_content_are_refused(clf, population, truth, tmp_path, change):
    path = tmp_path / "sets.json"
    cr.ConformalSets.fit(clf, population[:100], truth[:100]).save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(cr.errors.FileFormatError, match=r"sets\.json"):
        cr.ConformalSets.load(path)


def test_without_mapie_the_extra_is_named(clf, population, truth, monkeypatch):
    monkeypatch.setitem(sys.modules, "mapie", None)
    with pytest.raises(cr.errors.MissingExtraError, match=r"credibly\[conformal\]"):
        cr.ConformalSets.fit(clf, population[:100], truth[:100])


@pytest.mark.parametrize("classes", [2, 3_000_000])
def test_the_least_probability_keeps_order_and_sum_however_many_classes_there_are(classes):
    fit = torch.full((1, classes), -60.0, dtype=torch.float64)
    fit[0, 1] = 0.0  # the others have less than MAPIE tells from zero
    values = conformal._probabilities(SimpleNamespace(credence=fit), "softmax")
    assert values.sum() == pytest.approx(1.0)
    assert values.min() == pytest.approx(min(1e-6, 0.1 / classes))
    assert values[0, 1] >= 0.9 - 1e-9


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_one_class_without_a_number_leaves_nothing_known_of_the_sample(
    clf, population, truth, source, value
):
    broken = getattr(population, chosen(source))[:100].clone()
    broken[7, 2] = value
    holes = replace(population[:100], **{chosen(source): broken})
    for other in SOURCES:
        rule = cr.ConformalSets.fit(clf, holes, truth[:100], confidence=0.5, probabilities=other)
        assert rule.samples == 99
        sets = rule.sets(holes)
        assert bool(sets[7].all())
        assert not bool(sets.all())
