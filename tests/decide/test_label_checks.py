"""Labels of a Judge: by name or by number, in the order of the inputs, and worth something."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.utils.data import DataLoader, TensorDataset

import credibly as cr
from credibly.errors import CrediblyWarning, InvalidArgumentError
from tests.reference import models


def rows(count, seed=0):
    return torch.randn(count, 3, generator=models.generator(seed), dtype=torch.float64).numpy()


def fitted(classes, count=300):
    """A model of so many classes, and new rows with their classes."""
    x = rows(2 * count)
    y = np.array(classes)[np.digitize(x[:, 0], np.linspace(-0.8, 0.8, len(classes) - 1))]
    return LogisticRegression().fit(x[:count], y[:count]), x[count:], y[count:]


@pytest.mark.parametrize("classes", [("no", "yes"), (False, True), (1, 2, 3, 5), (-1, 1)])
@pytest.mark.parametrize("kind", [np.array, list, pd.Series])
def test_labels_may_be_the_classes_of_a_fitted_model(classes, kind):
    model, x, y = fitted(classes)
    judge = cr.Judge.fit(model, x[:200], kind(y[:200]))
    numbers = np.searchsorted(model.classes_, y)
    by_number = cr.Judge.fit(model, x[:200], numbers[:200])
    assert judge.facts == by_number.facts
    found = judge(x[200:])
    assert found.accuracy(kind(y[200:])) == found.accuracy(numbers[200:])
    page = found.explore(labels=kind(y[200:]), details=0)
    assert page.rows == 100


def test_other_words_than_the_classes_are_refused_by_name():
    model, x, y = fitted(("no", "yes"))
    with pytest.raises(InvalidArgumentError, match="names of classes, no, yes, got 'maybe'"):
        cr.Judge.fit(model, x, np.where(y == "yes", "maybe", y))


def test_labels_that_a_guess_would_match_are_named():
    model, x, y = fitted(("no", "yes"))
    order = np.random.default_rng(0).permutation(len(y))
    with pytest.warns(CrediblyWarning, match="in the order of the inputs"):
        cr.Judge.fit(model, x, y[order])


@pytest.mark.parametrize("shuffle", [False, True])
def test_labels_apart_do_not_go_with_a_loader_that_shuffles(shuffle):
    model, x, y = fitted((0, 1))
    data = TensorDataset(torch.tensor(x), torch.tensor(y))
    loader = DataLoader(data, batch_size=50, shuffle=shuffle)
    assert cr.Judge.fit(model, loader, True).facts.labelled
    if not shuffle:
        assert cr.Judge.fit(model, loader, y).facts.labelled
        return
    with pytest.raises(InvalidArgumentError, match=r"since it shuffles.*labels=True"):
        cr.Judge.fit(model, loader, y)


def test_a_verdict_equals_its_name():
    assert cr.Verdict.TRUST == "trust"
    assert f"{cr.Verdict.TRUST}" == "trust"
    assert {cr.Verdict.OUTLIER: 1}["outlier"] == 1
