"""Columns in units of different sizes: a warning, and the deviations that a scaler knows."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC

import credibly as cr

X, Y = load_iris(return_X_y=True)
UNLIKE = X * [1.0, 1e-4, 1e4, 1.0]
QUICK = cr.solvers.LBFGS(steps=10)
WARNED = r"columns spread by 4\.\d+e-05 to 1\.\d+e\+04"


def scaled(*before):
    return make_pipeline(*before, StandardScaler(), SVC())


@pytest.mark.parametrize(
    "model",
    [
        scaled(),
        scaled(SimpleImputer(), "passthrough"),
        make_pipeline(make_pipeline(StandardScaler()), PCA(2), SVC()),
        GridSearchCV(scaled(), {"svc__C": [1.0]}, cv=2),
        FrozenEstimator(scaled().fit(UNLIKE, Y)),
    ],
    ids=["plain", "imputed", "nested", "search", "frozen"],
)
def test_a_standardised_space_comes_from_the_scaler(model):
    clf = cr.from_sklearn(model.fit(UNLIKE, Y), space="standardised")
    spreads = UNLIKE.std(0)
    np.testing.assert_allclose(clf.space.scale, spreads, rtol=1e-12)
    same = cr.from_sklearn(model, space=cr.Space(scale=spreads))
    one, two = (cr.credibility(c, UNLIKE[:5], gamma=1.0, solver=QUICK) for c in (clf, same))
    torch.testing.assert_close(one.credibility, two.credibility)


def test_constant_columns_are_locked_and_names_are_kept():
    table = pd.DataFrame(UNLIKE, columns=list("abcd")).assign(d=0.1)
    clf = cr.from_sklearn(scaled().fit(table, Y), space="standardised")
    assert clf.space.columns == tuple("abcd")
    profile = cr.credibility(clf, table[list("dcba")][:5], gamma=1.0, solver=QUICK)
    moved = (profile.perturbed - profile.x0).numpy()
    assert (moved[:, 3] == 0).all()
    assert (moved[:, :3] != 0).all()


@pytest.mark.parametrize(
    "model",
    [
        SVC(),
        make_pipeline(MinMaxScaler(), SVC()),
        make_pipeline(PCA(2), StandardScaler(), SVC()),
        make_pipeline(SelectKBest(k=2), StandardScaler(), SVC()),
        make_pipeline(StandardScaler(with_std=False), SVC()),
    ],
    ids=["bare", "other scaler", "after PCA", "after selection", "without deviations"],
)
def test_without_deviations_a_standardised_space_needs_the_sample(model):
    with pytest.raises(
        cr.errors.InvalidArgumentError, match=r"^`space`.*StandardScaler.*standardised\(X_train\)"
    ):
        cr.from_sklearn(model.fit(X, Y), space="standardised")


CALLS = {
    "credibility": lambda clf, x: cr.credibility(clf, x, gamma=1.0, solver=QUICK),
    "auto": lambda clf, x: cr.credibility(clf, x, gamma="auto", solver=QUICK),
    "auto_gamma": cr.auto_gamma,
    "path": lambda clf, x: cr.credibility_path(clf, x, [2.0, 1.0], solver=QUICK),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("rows", [3, 150])
def test_unlike_units_give_one_warning_per_call(call, rows):
    with pytest.warns(cr.errors.CrediblyWarning, match=WARNED) as caught:
        call(cr.from_sklearn(scaled().fit(UNLIKE, Y)), UNLIKE[:rows])
    assert len(caught) == 1


def test_named_columns_of_a_network_are_compared_too():
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 3).double()
    named = cr.Classifier(net, space=cr.Space(columns=list("abcd")))
    with pytest.warns(cr.errors.CrediblyWarning, match=WARNED):
        cr.auto_gamma(named, UNLIKE)
    cr.auto_gamma(cr.Classifier(net), UNLIKE)  # these may be anything, such as pixels


def test_no_warning_where_the_units_are_alike_or_taken_care_of():
    pipeline = scaled().fit(UNLIKE, Y)
    quiet = [
        (cr.from_sklearn(pipeline, space="standardised"), UNLIKE),
        (cr.from_sklearn(pipeline, space=cr.Space.standardised(UNLIKE)), UNLIKE[:3]),
        (cr.from_sklearn(scaled().fit(X, Y)), X),
        # a few rows say nothing: two numbers may be close by chance
        (cr.from_sklearn(LogisticRegression(max_iter=500).fit(X, Y)), UNLIKE[:9]),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for clf, x in quiet:
            cr.credibility(clf, x[:20], gamma=1.0, solver=QUICK)
