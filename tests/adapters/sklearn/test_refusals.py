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
from sklearn.neighbors import KNeighborsClassifier
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

X, Y = load_iris(return_X_y=True)
TWO = Y < 2
MANY = np.column_stack([Y == 0, Y != 1, Y == 2]).astype(int)


@pytest.mark.parametrize(
    "model",
    [
        DecisionTreeClassifier(),
        RandomForestClassifier(3),
        GradientBoostingClassifier(n_estimators=2),
        HistGradientBoostingClassifier(max_iter=2),
        KNeighborsClassifier(),
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
            make_pipeline(KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"), SVC()),
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


@pytest.mark.parametrize(
    "imputer",
    [SimpleImputer(strategy="most_frequent"), SimpleImputer(strategy="constant", fill_value="?")],
    ids=str,
)
def test_an_imputer_of_words_is_refused_with_the_way_round(imputer):
    table = pd.DataFrame({"size": X[:, 0], "region": np.where(X[:, 1] > 3, "north", None)})
    codes = make_pipeline(imputer, OneHotEncoder(handle_unknown="ignore"))
    columns = ColumnTransformer([("n", StandardScaler(), ["size"]), ("c", codes, ["region"])])
    model = make_pipeline(columns, LogisticRegression()).fit(table, Y)
    with pytest.raises(cr.errors.ModelError) as caught:
        cr.from_sklearn(model)
    assert "'c' > 'simpleimputer' of the pipeline: SimpleImputer" in caught.value.problem
    assert "Space(columns=names, locked=" in caught.value.remedy


@pytest.mark.parametrize("encoder", [OneHotEncoder(), OrdinalEncoder()], ids=str)
def test_an_encoder_is_refused_with_the_way_round(encoder):
    table = pd.DataFrame({"region": np.where(X[:, 1] > 3, "north", "south")})
    with pytest.raises(cr.errors.ModelError, match="category has no gradient") as caught:
        cr.from_sklearn(make_pipeline(encoder, LogisticRegression()).fit(table, Y))
    assert "Space(columns=names, locked=" in caught.value.remedy


def test_a_precomputed_kernel_is_refused():
    model = SVC(kernel="precomputed").fit(X @ X.T, Y)
    with pytest.raises(
        cr.errors.ModelError, match=r"kernel='precomputed'.*on the features themselves"
    ):
        cr.from_sklearn(model)


@pytest.mark.parametrize(
    "model",
    [
        OneVsRestClassifier(LogisticRegression(max_iter=500)),
        RidgeClassifier(),
        MLPClassifier(3, max_iter=500, tol=1.0),
    ],
    ids=str,
)
def test_several_labels_a_sample_are_refused(model):
    with pytest.raises(cr.errors.ModelError, match="several labels a sample"):
        cr.from_sklearn(model.fit(X, MANY))


@pytest.mark.parametrize("model", [SVC(), LogisticRegression(), KernelRidge(), StandardScaler()])
def test_unfitted_models_are_refused(model):
    with pytest.raises(cr.errors.ModelError, match=r"not fitted|no twin"):
        cr.from_sklearn(model)


def test_a_search_without_a_model_is_refused():
    search = GridSearchCV(SVC(), {"C": [1.0, 2.0]}, cv=2, refit=False).fit(X, Y)
    with pytest.raises(cr.errors.ModelError, match="refit=True"):
        cr.from_sklearn(search)


def test_an_unfitted_step_is_named():
    pipeline = make_pipeline(StandardScaler(), LogisticRegression().fit(X[:, :2], TWO))
    with pytest.raises(
        cr.errors.ModelError, match=r"step 'standardscaler' of the pipeline.*not fitted"
    ):
        cr.from_sklearn(pipeline)


@pytest.mark.parametrize("thing", [None, 3, "SVC", torch.nn.Linear(2, 2)])
def test_things_that_are_no_estimators(thing):
    with pytest.raises(cr.errors.ModelError, match=r"estimator|scikit-learn"):
        cr.from_sklearn(thing)


def test_a_class_is_not_a_model():
    with pytest.raises(cr.errors.ModelError, match="SVC: it is a class"):
        cr.from_sklearn(SVC)


def test_a_subclass_may_compute_anything():
    class Mine(LogisticRegression):
        pass

    with pytest.raises(cr.errors.ModelError, match="subclass of LogisticRegression"):
        cr.from_sklearn(Mine().fit(X[TWO], Y[TWO]))


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
        (lambda t: t.assign(**{t.columns[0]: "text"}).to_numpy(), "values of type object"),
        (lambda t: t.assign(**{t.columns[0]: np.nan}), "NaN"),
        (lambda t: t.iloc[0].to_numpy(), "reshape"),
        (lambda t: t.to_numpy()[:, :2], "X has 2 features"),
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
