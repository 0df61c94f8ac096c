"""Every kind of twin gives profiles, with the default settings and without a warning."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import VotingClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler
from sklearn.svm import SVC, LinearSVC

import credibly as cr
from credibly.model.derivatives import HessianProducts

X, Y = load_iris(return_X_y=True)
X = StandardScaler().fit_transform(X)
MODELS = [
    (LogisticRegression(), {}),
    (SGDClassifier(loss="log_loss", random_state=0), {}),
    (RidgeClassifier(), {}),
    (LinearSVC(), {}),
    (LinearSVC(multi_class="crammer_singer", random_state=0), {}),
    (LinearDiscriminantAnalysis(), {}),
    (QuadraticDiscriminantAnalysis(), {}),
    (GaussianNB(), {}),
    (SVC(), {}),
    (SVC(), {"svc_outputs": "mean"}),
    (SVC(probability=True, random_state=0), {"svc_outputs": "probabilities"}),
    (GaussianProcessClassifier(optimizer=None), {}),
    (MLPClassifier(8, activation="tanh", random_state=0), {}),
    (OneVsRestClassifier(SVC()), {}),
    (CalibratedClassifierCV(LinearSVC(), cv=2), {}),
    (VotingClassifier([("a", LogisticRegression()), ("b", GaussianNB())], voting="soft"), {}),
    (make_pipeline(SplineTransformer(), LogisticRegression()), {}),
]


@pytest.mark.parametrize(("model", "settings"), MODELS, ids=lambda value: str(value)[:50])
def test_profiles_of_every_kind(model, settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the fit; the profile below must not warn
        model.fit(X, Y)
    clf = cr.from_sklearn(model, **settings)
    profile = cr.credibility(clf, X[::15], gamma="auto")
    assert bool(profile.usable.all()), profile.summary()
    assert bool((profile.certificate.decrease > 0).all())
    # where nothing has a corner the gradient vanishes
    corners = clf.loss.kinked or settings.get("svc_outputs") == "probabilities"
    if not corners and not hasattr(model, "steps"):
        assert float(profile.certificate.relative_stationarity.max()) < 1e-3
    assert profile.settings.classes == ("0", "1", "2")


def test_a_kernel_ridge_of_signs_gives_profiles_of_two_classes():
    model = KernelRidge(kernel="rbf", alpha=0.1).fit(X, np.where(Y == 1, 1.0, -1.0))
    profile = cr.credibility(cr.from_sklearn(model), X[::15], gamma="auto")
    assert profile.credibility.shape == (10, 2)
    assert bool(profile.usable.all())


def test_a_twin_made_in_inference_mode_has_gradients():
    with torch.inference_mode():
        clf = cr.from_sklearn(SVC().fit(X, Y))
    assert bool(cr.credibility(clf, X[:3], gamma=1.0).usable.all())


def test_the_support_vectors_are_summed_in_an_order_that_cancels():
    features, labels = make_classification(400, 10, flip_y=0.2, random_state=0)
    weights = cr.from_sklearn(SVC().fit(features, labels)).net.head.pair_weights[:, 0]
    by_class = weights.sort().values.cumsum(0).abs().max()
    assert float(weights.cumsum(0).abs().max()) < 0.1 * float(by_class)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly", "sigmoid", "cosine"])
def test_second_derivatives_exist_for_every_kernel(kernel):
    x = torch.from_numpy(X[::30] + 0.05)
    along = torch.randn(x.shape, dtype=torch.float64)
    clf = cr.from_sklearn(KernelRidge(alpha=2.0, kernel=kernel, gamma=0.02).fit(X, np.eye(3)[Y]))
    found = HessianProducts(clf, x, lambda losses: losses.square().sum(1))(along)
    ahead, behind = (_slope(clf, x + step * along) for step in (1e-5, -1e-5))
    torch.testing.assert_close(found, (ahead - behind) / 2e-5, atol=1e-5, rtol=1e-4)


def _slope(clf, x):
    x = x.clone().requires_grad_()
    clf.losses(x).square().sum().backward()
    return x.grad


def test_importing_the_twins_loads_no_scikit_learn():
    code = "import sys, credibly.adapters.sklearn; print('sklearn' in sys.modules)"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_columns_of_a_twin_can_be_locked():
    model = LogisticRegression(max_iter=500).fit(X, Y)
    clf = cr.from_sklearn(model, space=cr.Space.standardised(X, locked=[0, 2]))
    profile = cr.credibility(clf, X[:4], gamma="auto")
    moved = (profile.perturbed - profile.x0).abs()
    assert torch.equal(moved[:, [0, 2]], torch.zeros(4, 2, dtype=torch.float64))
    assert bool((moved[:, 1] > 0).all())
