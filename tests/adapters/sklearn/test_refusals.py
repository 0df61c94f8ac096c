"""What has no twin is refused by name, with a reason and a way out; so is unusable input."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process import kernels as gp
from sklearn.impute import SimpleImputer
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.naive_bayes import BernoulliNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    OneHotEncoder,
    OrdinalEncoder,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
)
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import credibly as cr
from tests.reference.models import known_settings

X, Y = load_iris(return_X_y=True)
TWO = Y < 2
MANY = np.column_stack([Y == 0, Y != 1, Y == 2]).astype(int)
BINS = known_settings(KBinsDiscretizer, quantile_method="averaged_inverted_cdf")


@pytest.mark.parametrize(
    "model",
    [
        DecisionTreeClassifier(),
        RandomForestClassifier(3),
        GradientBoostingClassifier(n_estimators=2),
        HistGradientBoostingClassifier(max_iter=2),
        KNeighborsClassifier(),
        BaggingClassifier(n_estimators=2),
        BaggingClassifier(make_pipeline(StandardScaler(), RandomForestClassifier(2)), 2),
        BaggingClassifier(SVC(), 2),  # votes
        AdaBoostClassifier(LogisticRegression(), n_estimators=2),  # votes
    ],
    ids=lambda model: type(model).__name__,
)
def test_flat_models_are_refused_by_step_and_reason(model):
    pipeline = make_pipeline(StandardScaler(), model).fit(X, Y)
    kind = type(model).__name__
    with pytest.raises(cr.errors.ModelError) as caught:
        cr.from_sklearn(pipeline)
    assert f"step '{kind.lower()}' of the pipeline: {kind}" in str(caught.value)
    assert "piecewise constant" in caught.value.problem
    assert "LogisticRegression" in caught.value.remedy


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (BaggingClassifier(LogisticRegression(max_iter=500), 2), "no twin.*VotingClassifier"),
        (BaggingClassifier(make_pipeline(StandardScaler(), LogisticRegression()), 2), "no twin"),
        (KNeighborsClassifier(weights="distance"), "jumps where other neighbours"),
        (NearestCentroid(), "NearestCentroid: it has no twin"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_models_with_slopes_are_not_called_piecewise_constant(model, words):
    with pytest.raises(cr.errors.ModelError, match=words) as caught:
        cr.from_sklearn(model.fit(X, Y))
    assert "piecewise" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (BernoulliNB(), "BernoulliNB: it has no twin"),
        (OneVsOneClassifier(LogisticRegression()), "OneVsOneClassifier: it has no twin"),
        (SVC(kernel=lambda a, b: a @ b.T), "a function has no twin"),
        (VotingClassifier([("a", LogisticRegression(max_iter=500))]), "voting='hard'"),
        (CalibratedClassifierCV(LogisticRegression(max_iter=500), method="isotonic"), "isotonic"),
        (CalibratedClassifierCV(SVC()), "counts votes"),
        (CalibratedClassifierCV(MLPClassifier(2, max_iter=500, tol=1), cv=2), "decision_function"),
        (GaussianProcessClassifier(multi_class="one_vs_one", optimizer=None), "one_vs_one"),
        (GaussianProcessClassifier(gp.Matern(nu=0.7), optimizer=None), "Bessel"),
        (
            GaussianProcessClassifier(gp.PairwiseKernel(metric="rbf"), optimizer=None),
            "PairwiseKernel",
        ),
        (make_pipeline(FunctionTransformer(np.log1p), SVC()), "'functiontransformer'"),
        (make_pipeline(SplineTransformer(extrapolation="error"), SVC()), "beyond the knots"),
        (make_pipeline(SplineTransformer(degree=0), SVC()), "piecewise constant"),
        (make_pipeline(SplineTransformer(degree=1, extrapolation="linear"), SVC()), "other ends"),
        (make_pipeline(QuantileTransformer(n_quantiles=10), SVC()), "'quantiletransformer'"),
        (
            make_pipeline(KBinsDiscretizer(3, **BINS), SVC()),
            "'kbinsdiscretizer' of the pipeline: KBinsDiscretizer",
        ),
        (
            make_pipeline(
                ColumnTransformer([("code", OneHotEncoder(handle_unknown="ignore"), [0])]), SVC()
            ),
            "'columntransformer' > 'code' of the pipeline: OneHotEncoder",
        ),
    ],
    # a function's address differs between workers
    ids=lambda value: re.sub("0x[0-9a-f]+", "", str(value))[:60],
)
def test_what_has_no_twin_says_so(model, words):
    with pytest.raises(cr.errors.ModelError, match=words.replace(".", r"\.")):
        cr.from_sklearn(model.fit(X, Y))


IMPUTED = [
    SimpleImputer(strategy="most_frequent"),
    SimpleImputer(strategy="constant", fill_value="?"),
]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        *[(make_pipeline(imputer, OneHotEncoder()), "it fills categories") for imputer in IMPUTED],
        (OneHotEncoder(), "category has no gradient"),
        (OrdinalEncoder(), "category has no gradient"),
    ],
    ids=str,
)
def test_steps_for_categories_are_refused_with_a_remedy(step, words):
    table = pd.DataFrame({"size": X[:, 0], "region": np.where(X[:, 1] > 3, "north", "south")})
    columns = ColumnTransformer([("n", StandardScaler(), ["size"]), ("c", step, ["region"])])
    model = make_pipeline(columns, LogisticRegression()).fit(table, Y)
    with pytest.raises(cr.errors.ModelError, match=f"'columntransformer' > 'c'.*{words}") as caught:
        cr.from_sklearn(model)
    assert "Space(columns=names, locked=" in caught.value.remedy


class Subclass(LogisticRegression):
    """May compute anything."""


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: SVC(kernel="precomputed").fit(X @ X.T, Y),
            "kernel='precomputed'.*on the features themselves",
        ),
        (
            lambda: OneVsRestClassifier(LogisticRegression(max_iter=500)).fit(X, MANY),
            "several labels per sample",
        ),
        (lambda: RidgeClassifier().fit(X, MANY), "several labels per sample"),
        (
            lambda: MLPClassifier(3, max_iter=500, tol=1.0).fit(X, MANY),
            "several labels per sample",
        ),
        (SVC, "SVC: it is not fitted"),
        (LogisticRegression, "not fitted"),
        (KernelRidge, "not fitted"),
        (StandardScaler, "no classifier"),
        (
            lambda: GridSearchCV(SVC(), {"C": [1.0, 2.0]}, cv=2, refit=False).fit(X, Y),
            "refit=True",
        ),
        (
            lambda: make_pipeline(StandardScaler(), LogisticRegression().fit(X[:, :2], TWO)),
            "step 'standardscaler' of the pipeline.*not fitted",
        ),
        (lambda: None, "not a scikit-learn estimator"),
        (lambda: 3, "not a scikit-learn estimator"),
        (lambda: "SVC", "not a scikit-learn estimator"),
        (lambda: torch.nn.Linear(2, 2), "not a scikit-learn estimator"),
        (lambda: SVC, "SVC: it is a class"),
        (lambda: Subclass().fit(X[TWO], Y[TWO]), "subclass of LogisticRegression"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unusable_models_are_refused(make, words):
    with pytest.raises(cr.errors.ModelError, match=words):
        cr.from_sklearn(make())


def test_probabilities_must_have_been_fitted():
    with pytest.raises(cr.errors.ModelError, match="without probabilities"):
        cr.from_sklearn(SVC().fit(X, Y), svc_outputs="probabilities")


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ({"dtype": torch.float16}, "dtype"),
        ({"dtype": "float64"}, "dtype"),
        ({"svc_outputs": "votes"}, "svc_outputs"),
        ({"loss": "square"}, "loss"),
    ],
)
def test_settings_are_checked(settings, argument):
    with pytest.raises(cr.errors.InvalidArgumentError, match=f"`{argument}`"):
        cr.from_sklearn(SVC().fit(X, Y), **settings)


@pytest.mark.parametrize("model", [SVC(), SVC(kernel="linear"), LogisticRegression(max_iter=500)])
def test_a_model_fitted_on_a_sparse_matrix_becomes_dense(model):
    model.fit(sparse.csr_matrix(X), Y)
    if hasattr(model, "sparsify"):
        model.sparsify()
    found = cr.from_sklearn(model).net.decision_function(torch.from_numpy(X))
    np.testing.assert_allclose(found.numpy(), model.decision_function(X), atol=1e-6)


@pytest.fixture(scope="module")
def table():
    return load_iris(as_frame=True).data


@pytest.fixture(scope="module")
def net(table):
    model = make_pipeline(StandardScaler(), SVC()).fit(table, Y)
    return cr.from_sklearn(model).net


def test_tables_keep_their_columns(net, table):
    assert net.feature_names == tuple(table.columns)
    np.testing.assert_array_equal(net.as_tensor(table).numpy(), table.to_numpy())
    np.testing.assert_array_equal(net.as_tensor(table.to_numpy().tolist()).numpy(), X)
    np.testing.assert_array_equal(net.as_tensor(torch.from_numpy(X)).numpy(), X)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda t: t[t.columns[::-1]], "another order"),
        (lambda t: t.rename(columns={t.columns[0]: "other"}), "unknown .'other'."),
        (lambda t: t.assign(**{t.columns[0]: "text"}).to_numpy(), "of type object"),
        (lambda t: t.assign(**{t.columns[0]: np.nan}), "NaN"),
        (lambda t: t.iloc[0].to_numpy(), "reshape"),
        (lambda t: t.to_numpy()[:, :2], "shape .150, 2."),
        (lambda t: sparse.csr_matrix(t.to_numpy()), "sparse"),
        (lambda t: t.to_numpy() + 1j, "Complex"),
    ],
)
def test_unusable_tables_are_refused(net, table, spoil, words):
    with pytest.raises(cr.errors.InvalidArgumentError, match=words):
        net.as_tensor(spoil(table))


def test_inputs_of_another_width_are_refused(net):
    with pytest.raises(cr.errors.InvalidArgumentError, match="4"):
        net(torch.zeros(2, 3, dtype=torch.float64))


def test_names_of_classes_are_kept():
    labels = np.array(["red", "green", "blue"])[Y]
    clf = cr.from_sklearn(LogisticRegression(max_iter=500).fit(X, labels))
    assert clf.classes == ("blue", "green", "red")


def test_columns_can_be_named_or_sliced(table):
    names = list(table.columns)
    parts = [
        ("by name", StandardScaler(), [names[2], names[0]]),
        ("by slice", "passthrough", slice(names[1], names[1])),
        ("none", StandardScaler(), []),
    ]
    model = make_pipeline(ColumnTransformer(parts), LogisticRegression(max_iter=500)).fit(table, Y)
    clf = cr.from_sklearn(model)
    found = clf.net.decision_function(clf.net.as_tensor(table))
    np.testing.assert_allclose(found.numpy(), model.decision_function(table), atol=1e-9)
    assert isinstance(table, pd.DataFrame)
