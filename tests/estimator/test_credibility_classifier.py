"""The estimator inside scikit-learn's own tools."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import credibly as cr

X, Y = load_iris(return_X_y=True)
LABELS = np.array(["setosa", "versicolor", "virginica"])[Y]
QUICK = cr.solvers.LBFGS(steps=10)


def pipeline():
    return make_pipeline(StandardScaler(), SVC())


@pytest.fixture(scope="module")
def fitted():
    return cr.CredibilityClassifier(pipeline(), solver=QUICK).fit(X, LABELS)


def test_predictions_are_those_of_the_inner_model(fitted):
    inner = pipeline().fit(X, LABELS)
    np.testing.assert_array_equal(fitted.predict(X), inner.predict(X))
    np.testing.assert_allclose(fitted.decision_function(X), inner.decision_function(X))
    assert fitted.score(X, LABELS) == inner.score(X, LABELS)
    assert not hasattr(fitted, "predict_proba")
    assert list(fitted.classes_) == sorted(set(LABELS))
    assert fitted.n_features_in_ == 4


def test_probabilities_where_the_inner_model_has_them():
    model = cr.CredibilityClassifier(LogisticRegression(max_iter=500), gamma=1.0)
    assert hasattr(model, "predict_proba")
    model.fit(X, Y)
    np.testing.assert_allclose(model.predict_proba(X), model.estimator_.predict_proba(X))


UNLIKE = X * [1.0, 1e-4, 1e4, 1.0]


@pytest.mark.parametrize(
    "space", ["standardised", cr.Space.standardised(UNLIKE)], ids=["by name", "own"]
)
@pytest.mark.parametrize("gamma", ["auto", 2.0])
def test_with_a_space_the_units_of_columns_do_not_matter(space, gamma):
    model = cr.CredibilityClassifier(pipeline(), gamma=gamma, solver=QUICK, space=space)
    found = clone(model).fit(UNLIKE, LABELS)
    twin = cr.from_sklearn(pipeline().fit(UNLIKE, LABELS), space=cr.Space.standardised(UNLIKE))
    assert found.gamma_ == (cr.auto_gamma(twin, UNLIKE) if gamma == "auto" else gamma)
    expected = cr.credibility(twin, UNLIKE[:7], gamma=found.gamma_, solver=QUICK)
    np.testing.assert_array_equal(found.predict_credibility(UNLIKE[:7]), expected.credibility)
    alike = clone(model).set_params(space="standardised", gamma=found.gamma_).fit(X, LABELS)
    np.testing.assert_allclose(
        found.predict_credibility(UNLIKE[:7]), alike.predict_credibility(X[:7]), atol=1e-6
    )
    restored = pickle.loads(pickle.dumps(found))  # noqa: S301
    np.testing.assert_array_equal(restored.profile(UNLIKE[:3]).risk, found.profile(UNLIKE[:3]).risk)


@pytest.mark.parametrize("gamma", [1.0, "auto"])
def test_very_different_units_give_one_warning_even_with_a_scaler_inside(gamma):
    with pytest.warns(
        cr.errors.CrediblyWarning, match=r"spread by 4\.3\de-05 to .*space='standardised'"
    ) as caught:
        cr.CredibilityClassifier(pipeline(), gamma=gamma).fit(UNLIKE, LABELS)
    assert len(caught) == 1
    outside = make_pipeline(StandardScaler(), cr.CredibilityClassifier(SVC(), gamma=1.0))
    outside.fit(UNLIKE, LABELS)  # warnings are errors here
    assert outside[-1].profile(outside[:-1].transform(UNLIKE[:2])).usable.all()


@pytest.mark.parametrize("space", ["standard", 3, [1.0, 2.0]])
def test_an_invalid_space_is_refused(space):
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`space`.*'standardised'"):
        cr.CredibilityClassifier(pipeline(), space=space).fit(X, LABELS)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`space`.*credibly\.Space"):
        cr.from_sklearn(pipeline().fit(X, LABELS), space=space)


def test_credibilities_are_those_of_the_twin(fitted):
    twin = cr.from_sklearn(fitted.estimator_)
    expected = cr.credibility(twin, X[:7], gamma=fitted.gamma_, solver=QUICK)
    np.testing.assert_allclose(fitted.predict_credibility(X[:7]), expected.credibility.numpy())
    assert fitted.predict_credibility(X[:7]).shape == (7, 3)
    assert isinstance(fitted.profile(X[:2]), cr.Profile)
    chosen = fitted.predict_most_credible(X[:7])
    np.testing.assert_array_equal(chosen, fitted.classes_[expected.ranking()[:, 0].numpy()])


def test_gamma_is_set_once_from_the_training_data(fitted):
    twin = cr.from_sklearn(fitted.estimator_)
    assert fitted.gamma_ == cr.auto_gamma(twin, X)
    alone = fitted.predict_credibility(X[3:4])
    together = fitted.predict_credibility(X[:20])[3:4]
    np.testing.assert_allclose(alone, together, atol=1e-5)


@pytest.mark.parametrize("gamma", [0, -1.0, "median", None, np.nan, True])
def test_gamma_is_checked_at_fit(gamma):
    with pytest.raises(cr.errors.InvalidArgumentError, match="gamma"):
        cr.CredibilityClassifier(pipeline(), gamma=gamma).fit(X, Y)


def test_parameters_can_be_read_set_and_cloned():
    model = cr.CredibilityClassifier(pipeline(), gamma=2.0, solver=QUICK)
    copy = clone(model).set_params(estimator__svc__C=7.0, gamma=3.0)
    assert copy.get_params()["estimator__svc__C"] == 7.0
    assert (copy.gamma, copy.solver) == (3.0, QUICK)
    assert model.get_params()["estimator__svc__C"] == 1.0
    assert "svc_outputs" in repr(clone(model).set_params(svc_outputs="probabilities"))


def test_a_search_over_the_inner_model_and_over_gamma():
    grid = {"estimator__svc__C": [0.1, 1.0], "gamma": ["auto", 50.0]}
    model = cr.CredibilityClassifier(pipeline(), solver=QUICK)
    scoring = cr.CredibilityClassifier.most_credible_score
    search = GridSearchCV(model, grid, cv=2, scoring=scoring).fit(X, Y)
    assert 0.8 < search.best_score_ <= 1.0
    assert search.best_estimator_.predict_credibility(X[:2]).shape == (2, 3)
    assert (cross_val_score(model, X, Y, cv=3) > 0.9).all()


def test_the_score_of_the_most_credible_class(fitted):
    right = fitted.predict_most_credible(X[::5]) == LABELS[::5]
    assert fitted.most_credible_score(X[::5], LABELS[::5]) == right.mean()


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_fitted_model_is_used_as_it_is(wrapped):
    inner = pipeline().fit(X[:, ::-1], Y)
    settings = {"estimator": FrozenEstimator(inner)} if wrapped else {"estimator": inner}
    model = cr.CredibilityClassifier(**settings, prefit=not wrapped, gamma=1.0).fit(X[:, ::-1], Y)
    np.testing.assert_array_equal(model.predict(X[:, ::-1]), inner.predict(X[:, ::-1]))
    if wrapped:  # a frozen estimator survives a clone
        again = clone(model).fit(X[:5], Y[:5])
        np.testing.assert_array_equal(again.predict(X), inner.predict(X))


def test_prefit_needs_a_fitted_model():
    with pytest.raises(cr.errors.ModelError, match="not fitted"):
        cr.CredibilityClassifier(pipeline(), prefit=True).fit(X, Y)


def test_tables_in_and_out():
    table = load_iris(as_frame=True).data
    model = cr.CredibilityClassifier(pipeline(), solver=QUICK).fit(table, Y)
    assert list(model.feature_names_in_) == list(table.columns)
    found = model.predict_credibility(table.iloc[:4])
    np.testing.assert_allclose(found, model.predict_credibility(table.iloc[:4].to_numpy()))
    with pytest.raises(cr.errors.InvalidArgumentError, match="another order"):
        model.profile(table[table.columns[::-1]])
    model.fit(table.to_numpy(), Y)
    assert not hasattr(model, "feature_names_in_")
    assert isinstance(table, pd.DataFrame)


@pytest.mark.parametrize(
    "method", ["predict", "decision_function", "profile", "predict_credibility"]
)
def test_nothing_works_before_fit(method):
    with pytest.raises(NotFittedError):
        getattr(cr.CredibilityClassifier(pipeline()), method)(X)


def test_models_without_a_twin_are_refused_at_fit():
    with pytest.raises(cr.errors.ModelError, match=r"DecisionTreeClassifier.*piecewise constant"):
        cr.CredibilityClassifier(DecisionTreeClassifier()).fit(X, Y)
    with pytest.raises(cr.errors.ModelError, match="not a classifier"):
        cr.CredibilityClassifier(KernelRidge()).fit(X, Y)


def test_sparse_input_is_refused(fitted):
    with pytest.raises(cr.errors.InvalidArgumentError, match="sparse"):
        cr.CredibilityClassifier(pipeline()).fit(sparse.csr_matrix(X), Y)
    with pytest.raises(cr.errors.InvalidArgumentError, match="sparse"):
        fitted.profile(sparse.csr_matrix(X))


def test_bounds_and_losses_reach_the_profile():
    low, high = float(X.min()), float(X.max())
    model = cr.CredibilityClassifier(
        pipeline(), bounds=(low, high), loss="logistic", chunk_size=3, solver=QUICK
    ).fit(X, Y)
    profile = model.profile(X[:5])
    assert profile.settings.bounds == (low, high)
    assert "Logistic" in profile.settings.loss
    assert bool((profile.perturbed >= low).all() and (profile.perturbed <= high).all())


def test_it_can_be_pickled(fitted):
    again = pickle.loads(pickle.dumps(fitted))  # noqa: S301  # our own bytes
    np.testing.assert_array_equal(
        again.predict_credibility(X[:3]), fitted.predict_credibility(X[:3])
    )


def test_the_output_container_of_scikit_learn_changes_nothing(fitted):
    with sklearn.config_context(transform_output="pandas"):
        assert isinstance(fitted.predict_credibility(X[:2]), np.ndarray)


def test_parameters_of_fit_reach_the_model():
    weights = np.where(Y == 0, 1.0, 1e-9)
    model = cr.CredibilityClassifier(LogisticRegression(), gamma=1.0)
    assert (model.fit(X, Y, sample_weight=weights).predict(X) == 0).all()


def test_without_scikit_learn_the_extra_is_named():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import credibly as cr\n"
        "for use in (lambda: cr.CredibilityClassifier, lambda: cr.from_sklearn(3)):\n"
        "    try:\n"
        "        use()\n"
        "    except cr.errors.MissingExtraError as error:\n"
        "        print('credibly[sklearn]' in str(error))\n"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "True"]
    assert torch.get_default_dtype() == torch.float32


def test_a_missing_value_is_named_with_its_row_and_column():
    model = cr.CredibilityClassifier(LogisticRegression(max_iter=500), gamma=1.0).fit(X, Y)
    gaps = np.array(X)
    gaps[[3, 8, 8, 9, 11], [1, 0, 2, 0, 3]] = np.nan
    with pytest.raises(cr.errors.InvalidArgumentError) as caught:
        model.profile(gaps)
    expected = "row 3, column 1; row 8, column 0; row 8, column 2; and 2 more places"
    assert expected in caught.value.got
    names = list("abcd")
    table = pd.DataFrame(X.copy(), columns=names)
    named = cr.CredibilityClassifier(LogisticRegression(max_iter=500), gamma=1.0).fit(table, Y)
    table.loc[5, "c"] = np.inf
    with pytest.raises(cr.errors.InvalidArgumentError, match="row 5, column 'c'"):
        named.profile(table)


@pytest.mark.parametrize(("gamma", "words"), [("200", "without quotes"), ("Auto", "lower case")])
def test_a_gamma_as_text_gets_a_remedy(gamma, words):
    with pytest.raises(cr.errors.InvalidArgumentError, match=words):
        cr.CredibilityClassifier(pipeline(), gamma=gamma).fit(X, Y)
