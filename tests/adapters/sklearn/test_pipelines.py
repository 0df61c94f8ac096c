"""Pipelines of every supported transform, nested and side by side."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
from sklearn.feature_selection import RFE, SelectKBest, VarianceThreshold
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)
from sklearn.svm import SVC

import credibly as cr
from credibly.adapters.sklearn.context import Context
from credibly.adapters.sklearn.dispatch import build_transform

X, Y = load_iris(return_X_y=True)
RNG = np.random.default_rng(0)
FAR = X[::4] + RNG.normal(size=X[::4].shape) * np.linspace(0, 4, len(X[::4]))[:, None]

TRANSFORMS = [
    StandardScaler(),
    StandardScaler(with_mean=False),
    StandardScaler(with_std=False),
    MinMaxScaler(),
    MinMaxScaler((-1.0, 2.0), clip=True),
    MaxAbsScaler(),
    RobustScaler(),
    RobustScaler(with_centering=False),
    RobustScaler(with_scaling=False, unit_variance=True),
    PCA(2),
    PCA(3, whiten=True),
    IncrementalPCA(2),
    TruncatedSVD(2, random_state=0),
    Nystroem(n_components=20, random_state=0),
    Nystroem("poly", degree=2, coef0=0.5, n_components=10, random_state=0),
    Nystroem("laplacian", gamma=0.2, n_components=10, random_state=0),
    RBFSampler(n_components=15, random_state=0),
    PolynomialFeatures(3),
    PolynomialFeatures(2, include_bias=False),
    PolynomialFeatures(3, interaction_only=True),
    PolynomialFeatures((2, 3)),
    Normalizer("l1"),
    Normalizer("l2"),
    Normalizer("max"),
    FunctionTransformer(),
    SimpleImputer(),
    SelectKBest(k=2),
    VarianceThreshold(0.6),
    RFE(LogisticRegression(max_iter=500), n_features_to_select=2),
    FeatureUnion([("a", PCA(2)), ("b", StandardScaler())], transformer_weights={"a": 0.3}),
    ColumnTransformer([("a", StandardScaler(), [2, 0]), ("b", "passthrough", slice(1, 2))]),
    ColumnTransformer([("a", PCA(1), [True, False, True, False])], remainder="passthrough"),
    ColumnTransformer([("a", "drop", [0]), ("b", MinMaxScaler(), [1])], remainder="drop"),
    make_pipeline(StandardScaler(), make_pipeline(PCA(3), "passthrough"), PolynomialFeatures(2)),
]


def assert_same_transform(model, points=FAR):
    twin = build_transform(model, Context(torch.float64))
    found = twin(torch.from_numpy(points)).numpy()
    np.testing.assert_allclose(found, model.transform(points), atol=1e-9, rtol=1e-9)
    return twin


def assert_same_slopes(twin, model, points=FAR, step=1e-6):
    x = torch.from_numpy(points).requires_grad_()
    values = twin(x)
    weights = torch.randn(values.shape[1], dtype=torch.float64)
    (values @ weights).sum().backward()
    along = RNG.normal(size=points.shape)
    ahead, behind = model.transform(points + step * along), model.transform(points - step * along)
    expected = ((ahead - behind) / (2 * step)) @ weights.numpy()
    found = (x.grad.numpy() * along).sum(1)
    np.testing.assert_allclose(found, expected, atol=1e-6 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize("model", TRANSFORMS, ids=str)
def test_a_transform_and_its_slopes(model):
    twin = assert_same_transform(model.fit(X, Y))
    assert_same_slopes(twin, model, FAR[1::2])


@pytest.mark.parametrize("extrapolation", ["constant", "linear", "continue", "periodic"])
@pytest.mark.parametrize("degree", [1, 2, 3, 5])
@pytest.mark.parametrize("knots", ["uniform", "quantile"])
@pytest.mark.parametrize("include_bias", [True, False])
def test_splines_within_and_beyond_their_knots(extrapolation, degree, knots, include_bias):
    # of degree 1, scikit-learn extrapolates only the first feature linearly: see test_refusals
    features = 1 if (degree, extrapolation) == (1, "linear") else 3
    wine = load_wine().data[:, :features]
    model = SplineTransformer(
        7, degree, knots=knots, extrapolation=extrapolation, include_bias=include_bias
    ).fit(wine)
    low, high = wine.min(0), wine.max(0)
    shares = np.linspace(-0.6, 1.6, 41)[:, None] + np.array([0.0, 0.01, 0.02])[:features]
    points = low + shares * (high - low)
    twin = assert_same_transform(model, points)
    assert_same_slopes(twin, model, points[1:-1] + 1e-3)
    edges = np.stack([low, high])  # exactly at the knots
    assert_same_transform(model, edges)


@pytest.mark.parametrize("extrapolation", ["constant", "linear", "continue", "periodic"])
@pytest.mark.parametrize("knots", ["uniform", "quantile"])
def test_splines_with_equal_knots(extrapolation, knots):
    counts = np.repeat([0.0, 0.0, 0.0, 1.0, 2.0, 2.0, 5.0], 10)
    data = np.column_stack([counts, counts[::-1] ** 2, RNG.normal(size=70), np.full(70, 3.0)])
    model = SplineTransformer(5, 3, knots=knots, extrapolation=extrapolation).fit(data)
    points = np.concatenate([data[::7], data[::7] + RNG.normal(size=(10, 4))])
    if extrapolation == "continue":  # between equal knots SciPy has no polynomial to continue
        points = points[:10]
    assert_same_transform(model, points)


@given(
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
    st.lists(st.floats(-3, 3), min_size=4, max_size=4),
)
def test_polynomial_features_of_any_kind(degree, interaction_only, include_bias, row):
    model = PolynomialFeatures(degree, interaction_only=interaction_only, include_bias=include_bias)
    assert_same_transform(model.fit(X), np.array([row, [0.0, 0.0, 1.0, -1.0]]))


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_rows_of_zeros_are_not_scaled(norm):
    assert_same_transform(Normalizer(norm).fit(X), np.zeros((2, 4)))


@pytest.mark.parametrize(
    "scaler", [StandardScaler(), MinMaxScaler(), MaxAbsScaler(), RobustScaler()], ids=str
)
def test_constant_columns_are_not_scaled(scaler):
    constant = np.column_stack([X[:, 0], np.full(len(X), 3.0)])
    assert_same_transform(scaler.fit(constant), constant + 1.0)


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_a_setting_of_nystroem_has_precedence_over_kernel_params(kernel):
    params = {"gamma": 0.7, "degree": 2}
    assert_same_transform(
        Nystroem(kernel, kernel_params=dict(params), n_components=4, random_state=0).fit(X)
    )
    both = Nystroem(kernel, gamma=0.1, kernel_params=dict(params), n_components=4, random_state=0)
    assert_same_transform(both.fit(X))


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(StandardScaler(), LogisticRegression()),
        make_pipeline(StandardScaler(), PCA(3), SVC()),
        make_pipeline(None, StandardScaler(), "passthrough", make_pipeline(PCA(2), SVC())),
        make_pipeline(SplineTransformer(), RidgeClassifier()),
        make_pipeline(Nystroem(n_components=30, random_state=0), LogisticRegression(max_iter=500)),
        GridSearchCV(make_pipeline(StandardScaler(), SVC()), {"svc__C": [1.0, 5.0]}, cv=2),
        Pipeline([("s", StandardScaler()), ("g", GridSearchCV(SVC(), {"C": [1, 2]}, cv=2))]),
    ],
    ids=str,
)
def test_whole_pipelines(model):
    model.fit(X, Y)
    for wrapped in (model, FrozenEstimator(model)):
        clf = cr.from_sklearn(wrapped)
        found = clf.net.decision_function(torch.from_numpy(FAR)).numpy()
        np.testing.assert_allclose(found, model.decision_function(FAR), atol=1e-6)
    profile = cr.credibility(clf, FAR[:5], gamma="auto")
    assert profile.credibility.shape == (5, 3)
    assert bool(profile.usable.all())
