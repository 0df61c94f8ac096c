"""A twin gives the same numbers and slopes as scikit-learn, for every class and option."""

import warnings
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import datasets
from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import VotingClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process import kernels as gp
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    LogisticRegression,
    LogisticRegressionCV,
    Perceptron,
    RidgeClassifier,
    RidgeClassifierCV,
    SGDClassifier,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC, NuSVC

import credibly as cr
from credibly.adapters.sklearn.kernel_machines import coupled, pairwise, quadratic_form
from credibly.model.losses import Hinge, Logistic, OneVersusRestHinge
from tests.reference.models import known_settings

TOLERANCE = 1e-6


@cache
def data(name):
    """Standardised features and labels; a few hundred rows of real data."""
    if name == "two":
        X, y = datasets.make_classification(160, 5, n_informative=4, n_redundant=0, random_state=1)
        return StandardScaler().fit_transform(X), np.array(["no", "yes"])[y]
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return StandardScaler().fit_transform(X[:300]), y[:300]


def fitted(model, name):
    with warnings.catch_warnings():  # convergence and deprecations are not tested here
        warnings.simplefilter("ignore")
        return model.fit(*data(name))


def unseen(name, count=40):
    """Points on, between and far away from those of the fit."""
    X = data(name)[0][:count]
    return X + np.random.default_rng(0).normal(size=X.shape) * np.linspace(0, 3, len(X))[:, None]


def assert_twins(model, name, *, svc_outputs="soft_minimum"):
    X = unseen(name)
    clf = cr.from_sklearn(model, svc_outputs=svc_outputs)
    x = torch.from_numpy(X)
    if hasattr(model, "decision_function"):
        np.testing.assert_allclose(
            clf.net.decision_function(x).numpy(), model.decision_function(X), atol=TOLERANCE
        )
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(
            clf.net.predict_proba(x).numpy(), model.predict_proba(X), atol=TOLERANCE
        )
    assert clf.classes == tuple(str(c) for c in model.classes_)
    return clf


def assert_slopes(clf, function, X, *, step=1e-6, tolerance=1e-5):
    """The twin's derivative is that of the model itself, by central differences."""
    x = torch.from_numpy(X).requires_grad_()
    rng = np.random.default_rng(3)
    along = rng.normal(size=X.shape)
    rows = clf(x)
    rows = rows[:, None] if rows.dim() == 1 else rows
    weights = torch.from_numpy(rng.normal(size=rows.shape))
    (rows * weights).sum().backward()
    found = (x.grad.numpy() * along).sum(1)
    ahead, behind = (np.reshape(function(X + s * along), rows.shape) for s in (step, -step))
    expected = ((ahead - behind) / (2 * step) * weights.numpy()).sum(1)
    np.testing.assert_allclose(found, expected, atol=tolerance * (1 + np.abs(expected).max()))


LINEAR = [
    LogisticRegression(),
    LogisticRegression(C=0.1, fit_intercept=False),
    LogisticRegressionCV(
        Cs=2,
        cv=2,
        l1_ratios=(0.0,),
        **known_settings(LogisticRegressionCV, use_legacy_attributes=False),
    ),
    SGDClassifier(loss="log_loss", random_state=0),
    SGDClassifier(loss="hinge", random_state=0),
    SGDClassifier(loss="squared_error", eta0=1e-4, random_state=0),
    Perceptron(random_state=0),
    RidgeClassifier(),
    RidgeClassifierCV(),
    LinearSVC(),
    LinearSVC(fit_intercept=False),
    LinearSVC(multi_class="crammer_singer", random_state=0),
    LinearDiscriminantAnalysis(),
    LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
    QuadraticDiscriminantAnalysis(reg_param=0.1),
    GaussianNB(),
    OneVsRestClassifier(LogisticRegression()),
    OneVsRestClassifier(LinearSVC()),
    OneVsRestClassifier(SVC()),
    OneVsRestClassifier(MLPClassifier(4, max_iter=5, random_state=0)),
]


@pytest.mark.parametrize("name", ["two", "iris"])
@pytest.mark.parametrize("model", LINEAR, ids=str)
def test_linear_models_and_their_compounds(model, name):
    model = fitted(model, name)
    clf = assert_twins(model, name)
    if hasattr(model, "decision_function"):
        assert_slopes(clf.net.decision_function, model.decision_function, unseen(name, 8))
    agrees = np.array(clf.classes)[_predicted(clf, unseen(name))] == model.predict(
        unseen(name)
    ).astype(str)
    assert agrees.all()


def _predicted(clf, X):
    """The class of the largest output; hinge losses can tie at zero."""
    outputs = clf.logits(torch.from_numpy(X))
    return (clf.loss.two_classes(outputs) if outputs.shape[1] == 1 else outputs).argmax(1).numpy()


@pytest.mark.parametrize(
    ("model", "loss"),
    [
        (LogisticRegression(), "CrossEntropy()"),
        (SGDClassifier(loss="log_loss"), repr(Logistic())),
        (LinearSVC(), repr(OneVersusRestHinge())),
        (LinearSVC(multi_class="crammer_singer"), repr(Hinge())),
        (OneVsRestClassifier(LogisticRegression()), repr(Logistic())),
        (OneVsRestClassifier(LinearSVC()), repr(OneVersusRestHinge())),
        (SVC(), repr(OneVersusRestHinge())),
    ],
)
def test_the_loss_fits_the_model_and_can_be_replaced(model, loss):
    model = fitted(model, "iris")
    assert repr(cr.from_sklearn(model).loss) == loss
    assert repr(cr.from_sklearn(model, loss="hinge").loss) == repr(Hinge())


KERNELS = [
    {"kernel": "rbf"},
    {"kernel": "rbf", "gamma": "auto"},
    {"kernel": "rbf", "gamma": 0.3, "C": 10.0},
    {"kernel": "poly"},
    {"kernel": "poly", "degree": 2, "coef0": 1.5},
    {"kernel": "linear"},
    {"kernel": "sigmoid", "gamma": 0.1, "coef0": -0.5},
]


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
@pytest.mark.parametrize("name", ["two", "iris", "wine", "digits", "breast_cancer"])
@pytest.mark.parametrize("settings", KERNELS, ids=str)
def test_support_vector_machines(settings, name, shape):
    model = fitted(SVC(decision_function_shape=shape, **settings), name)
    clf = assert_twins(model, name)
    model.decision_function_shape = "ovo"
    pairs = clf.net.head.one_versus_one(torch.from_numpy(unseen(name)))
    expected = model.decision_function(unseen(name))
    np.testing.assert_allclose(pairs.numpy().reshape(expected.shape), expected, atol=TOLERANCE)
    # smooth everywhere: one-versus-one decisions against finite differences of libsvm's
    slopes = clf.net.head.one_versus_one
    assert_slopes(slopes, model.decision_function, unseen(name, 6))


@given(
    kernel=st.sampled_from(["rbf", "poly", "sigmoid", "linear"]),
    classes=st.integers(2, 4),
    cost=st.floats(0.01, 100),
    gamma=st.one_of(st.sampled_from(["scale", "auto"]), st.floats(0.01, 3)),
    degree=st.integers(0, 4),
    coef0=st.floats(-1, 2),
    shape=st.sampled_from(["ovr", "ovo"]),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_support_vector_machines_of_random_settings(
    *, kernel, classes, cost, gamma, degree, coef0, shape, scale
):
    X, y = datasets.make_classification(
        60, 5, n_informative=4, n_redundant=0, n_classes=classes, n_clusters_per_class=1,
        random_state=classes,
    )  # fmt: skip
    gamma = gamma if isinstance(gamma, str) else gamma / scale**2
    model = SVC(
        C=cost, kernel=kernel, gamma=gamma, degree=degree, coef0=coef0,
        decision_function_shape=shape, max_iter=2000,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(scale * X, y)
    points = scale * (X[:15] + np.random.default_rng(0).normal(size=(15, 5)))
    model.decision_function_shape = "ovo"
    expected = model.decision_function(points)
    clf = cr.from_sklearn(model)
    found = clf.net.head.one_versus_one(torch.from_numpy(points)).numpy()
    atol = TOLERANCE * max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(found.reshape(expected.shape), expected, atol=atol)
    clear = np.abs(expected.reshape(15, -1)).min(1) > atol  # where no vote depends on rounding
    model.decision_function_shape = shape
    voted = model.decision_function(points)
    own = cr.from_sklearn(model).net.decision_function(torch.from_numpy(points)).numpy()
    np.testing.assert_allclose(own[clear], voted[clear], atol=atol)


@pytest.mark.parametrize("name", ["two", "wine"])
def test_nu_support_vector_machines(name):
    assert_twins(fitted(NuSVC(nu=0.2, gamma=0.1), name), name)


@pytest.mark.parametrize("name", ["iris", "digits"])
def test_the_outputs_of_several_classes_are_means_or_soft_minima(name):
    model = fitted(SVC(decision_function_shape="ovo"), name)
    X, classes = unseen(name), len(model.classes_)
    against = {k: [] for k in range(classes)}
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    for (i, j), decision in zip(pairs, model.decision_function(X).T, strict=True):
        against[i].append(decision)
        against[j].append(-decision)
    each = np.stack([np.stack(against[k], 1) for k in range(classes)], 1)
    found = cr.from_sklearn(model, svc_outputs="mean").logits(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(found, each.mean(2), atol=1e-9)
    found = cr.from_sklearn(model).logits(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(found, -np.log(np.exp(-10 * each).mean(2)) / 10, atol=1e-9)


def test_the_soft_minimum_follows_the_vote_better_than_the_mean():
    X, y = datasets.load_digits(return_X_y=True)
    model = SVC().fit(X[:600], y[:600])
    voted, x = model.predict(X[600:]), torch.from_numpy(X[600:])
    share = {
        outputs: (
            cr.from_sklearn(model, svc_outputs=outputs).logits(x).argmax(1).numpy() == voted
        ).mean()
        for outputs in ("soft_minimum", "mean")
    }
    assert share["soft_minimum"] > 0.995
    assert share["mean"] < share["soft_minimum"]


@pytest.mark.parametrize("name", ["two", "iris", "digits"])
@pytest.mark.parametrize("kind", [SVC, lambda **rest: NuSVC(nu=0.1, **rest)])
def test_probabilities_of_support_vector_machines_follow_libsvm(kind, name):
    model = fitted(kind(probability=True, random_state=0), name)
    clf = assert_twins(model, name, svc_outputs="probabilities")
    x = torch.from_numpy(unseen(name))
    smooth = clf.losses(x).neg().exp()
    torch.testing.assert_close(smooth.sum(1), torch.ones(len(x), dtype=torch.float64))
    # libsvm stops early, at an error of 0.005 / K in the optimality conditions
    assert float((smooth - clf.net.predict_proba(x)).abs().max()) < 0.02


def test_the_smooth_coupling_solves_the_problem_that_libsvm_iterates_on():
    logits = torch.randn(50, 6, dtype=torch.float64)
    r = pairwise(logits, 4)
    p, q = coupled(r), quadratic_form(r)
    assert bool((p > 0).all())
    best = torch.einsum("ni,nij,nj->n", p, q, p)
    for _ in range(50):  # no other distribution is better
        other = torch.distributions.Dirichlet(torch.ones(4, dtype=torch.float64)).sample((50,))
        assert bool((torch.einsum("ni,nij,nj->n", other, q, other) >= best - 1e-12).all())


GAUSSIAN = [
    1.5 * gp.RBF(1.3),
    gp.RBF([1.0, 2.0, 3.0, 0.5, 1.5]) + gp.ConstantKernel(0.3),
    gp.Matern(2.0, nu=0.5),
    gp.Matern(2.0, nu=1.5),
    gp.Matern(2.0, nu=2.5) * gp.DotProduct(0.5),
    gp.Matern(2.0, nu=np.inf),
    gp.RationalQuadratic(1.5, alpha=0.7),
    gp.DotProduct(1.0) ** 2 + gp.WhiteKernel(0.2),
    gp.RBF(2.0) ** 1.5,
]


@pytest.mark.parametrize("kernel", GAUSSIAN, ids=str)
def test_gaussian_processes_of_two_classes(kernel):
    model = fitted(GaussianProcessClassifier(kernel, optimizer=None), "two")
    clf = assert_twins(model, "two")
    assert_slopes(clf.net.predict_proba, model.predict_proba, unseen("two", 12)[2:], step=1e-4)
    logit = clf.logits(torch.from_numpy(unseen("two"))).squeeze(1)
    p = model.predict_proba(unseen("two"))[:, 1]
    np.testing.assert_allclose(logit.numpy(), np.log(p / (1 - p)), atol=1e-4)


def test_gaussian_processes_of_several_classes():
    kernel = 2.0 * gp.RBF(1.5)
    model = fitted(GaussianProcessClassifier(kernel, max_iter_predict=20, optimizer=None), "iris")
    clf = assert_twins(model, "iris")
    assert (_predicted(clf, unseen("iris")) == model.predict(unseen("iris"))).all()


@pytest.mark.parametrize("activation", ["identity", "logistic", "tanh", "relu"])
@pytest.mark.parametrize("name", ["two", "iris"])
def test_networks(activation, name):
    layers = (7, 5)
    model = fitted(MLPClassifier(layers, activation=activation, max_iter=20, random_state=0), name)
    clf = assert_twins(model, name)
    assert_slopes(clf.net.predict_proba, model.predict_proba, unseen(name, 8))


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel": "rbf"},
        {"kernel": "rbf", "gamma": 0.2},
        {"kernel": "laplacian", "gamma": 0.1},
        {"kernel": "polynomial", "degree": 2, "coef0": 0.5},
        {"kernel": "poly"},
        {"kernel": "sigmoid", "gamma": 0.01},
        {"kernel": "linear"},
        {"kernel": "cosine"},
    ],
    ids=str,
)
@pytest.mark.parametrize("targets", ["one-hot", "signs"])
def test_kernel_ridge(settings, targets):
    X, y = data("iris")
    T = np.eye(3)[y] if targets == "one-hot" else np.where(y == 1, 1.0, -1.0)
    model = KernelRidge(alpha=0.1, **settings).fit(X, T)
    clf = cr.from_sklearn(model)
    x = torch.from_numpy(unseen("iris"))
    found = clf.net.decision_function(x).numpy()
    np.testing.assert_allclose(found, model.predict(unseen("iris")), atol=TOLERANCE)
    assert clf.classes == (("0", "1", "2") if targets == "one-hot" else ("0", "1"))
    assert_slopes(clf.net.decision_function, model.predict, unseen("iris", 8)[1:])


@pytest.mark.parametrize("name", ["two", "iris"])
@pytest.mark.parametrize("ensemble", [True, False])
def test_calibrated_and_voting_models(name, ensemble):
    inner = LinearSVC() if name == "iris" else SVC()
    model = fitted(CalibratedClassifierCV(inner, ensemble=ensemble, cv=3), name)
    clf = assert_twins(model, name)
    assert_slopes(clf.net.predict_proba, model.predict_proba, unseen(name, 8))
    parts = [("a", LogisticRegression()), ("b", GaussianNB()), ("c", "drop")]
    assert_twins(fitted(VotingClassifier(parts, voting="soft", weights=[2, 1, 5]), name), name)


def test_features_far_from_the_origin_keep_their_digits():
    X, y = data("two")
    model = SVC().fit(X + 1e5, y)
    x = torch.from_numpy(unseen("two") + 1e5)
    expected = model.decision_function(x.numpy())
    found = cr.from_sklearn(model).net.decision_function(x).numpy()
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


def test_scores_of_any_size_have_probabilities():
    X, y = data("iris")
    model = SGDClassifier(loss="log_loss", random_state=0).fit(X, y)
    clf = cr.from_sklearn(model)
    x = torch.from_numpy(40.0 * unseen("iris"))
    assert float(clf.logits(x).abs().max()) > 710  # exp overflows
    found = clf.net.predict_proba(x)
    torch.testing.assert_close(found.sum(1), torch.ones(len(x), dtype=torch.float64))


def test_single_precision_is_offered():
    model = fitted(SVC(), "iris")
    clf = cr.from_sklearn(model, dtype=torch.float32)
    assert clf.dtype == torch.float32
    x = torch.from_numpy(unseen("iris"))
    torch.testing.assert_close(
        clf.logits(x.float()).double(), cr.from_sklearn(model).logits(x), atol=1e-4, rtol=1e-4
    )


def test_a_deprecated_model_that_is_still_there():
    linear_model = pytest.importorskip("sklearn.linear_model")
    if not hasattr(linear_model, "PassiveAggressiveClassifier"):
        pytest.skip("gone")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = linear_model.PassiveAggressiveClassifier(random_state=0)
        assert_twins(fitted(model, "iris"), "iris")


def test_a_twin_has_no_parameters_and_copies_the_numbers_of_the_model():
    model = fitted(LogisticRegression(), "iris")
    clf = cr.from_sklearn(model)
    assert list(clf.net.parameters()) == []
    before = clf.logits(torch.zeros(1, 4, dtype=torch.float64))
    model.coef_ *= 2
    model.intercept_ += 1
    assert torch.equal(clf.logits(torch.zeros(1, 4, dtype=torch.float64)), before)
