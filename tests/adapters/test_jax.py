"""Functions of JAX against the same network in torch."""

import pytest
import torch

import credibly as cr
from tests.reference import models
from tests.reference.soundness import check_profile

jax = pytest.importorskip("jax")


@pytest.fixture(autouse=True)
def _double():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def pair():
    """One network twice: in torch, and in JAX with the same numbers."""
    net = models.smooth_network()
    weights = [parameter.detach().numpy() for parameter in net.parameters()]

    def function(x):
        a, b, c, d, e, f = weights
        x = jax.nn.softplus(x @ a.T + b)
        x = jax.nn.gelu(x @ c.T + d, approximate=False)
        return x @ e.T + f

    return cr.Classifier(net), cr.from_jax(function)


def test_values_and_profiles_are_those_of_torch():
    here, there = pair()
    x = models.inputs(6)
    assert torch.allclose(here.logits(x), there.logits(x), atol=1e-12)
    exact = cr.solvers.LBFGS(tolerance=1e-10, steps=1000)
    ours, theirs = (cr.credibility(c, x, gamma=50.0, solver=exact) for c in (here, there))
    assert torch.allclose(ours.credibility, theirs.credibility, atol=1e-6)
    assert torch.allclose(ours.perturbed, theirs.perturbed, atol=1e-6)
    assert cr.auto_gamma(here, x) == pytest.approx(cr.auto_gamma(there, x), rel=1e-9)
    check_profile(there, x)


def test_derivatives_of_all_orders():
    here, there = pair()
    x = models.inputs(3)
    v = models.inputs(3, seed=7)
    found = []
    for clf in (here, there):
        at = x.clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(clf.losses(at).square().sum(), at, create_graph=True)
        (bend,) = torch.autograd.grad((slope * v).sum(), at, create_graph=True)
        (third,) = torch.autograd.grad((bend * v).sum(), at)
        found.append((slope, bend, third))
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-9)


def test_gradients_through_a_profile():
    here, there = pair()
    x, slopes = models.inputs(3), []
    for clf in (here, there):
        profile = cr.credibility(
            clf, x, gamma=50.0, solver=cr.solvers.LBFGS(tolerance=1e-10, steps=1000)
        )
        tracked = x.clone().requires_grad_(True)
        cr.attached_credibility(clf, profile, x0=tracked, accuracy=1e-10)[:, 1].sum().backward()
        slopes.append(tracked.grad)
    assert torch.allclose(*slopes, atol=1e-6)


def test_gauss_newton_without_a_jacobian():
    here, there = pair()
    x = models.inputs(3)
    free = cr.solvers.GaussNewton(jacobian="free", steps=10)
    ours, theirs = (cr.credibility(c, x, gamma=50.0, solver=free) for c in (here, there))
    assert torch.allclose(ours.credibility, theirs.credibility, atol=1e-6)


def test_batches_of_any_size_compile_for_few_shapes():
    shapes = []

    def function(x):
        shapes.append(x.shape[0])  # runs only when JAX compiles
        return x[:, :3] * 2.0

    clf = cr.from_jax(function)
    for count in range(1, 14):
        x = models.inputs(count)
        assert torch.equal(clf.logits(x), 2 * x[:, :3])
    assert shapes == [1, 2, 4, 8, 16]


def test_single_precision_and_names():
    clf = cr.from_jax(lambda x: x[:, :2] * 3.0, classes=["no", "yes"])
    profile = cr.credibility(clf, models.inputs(4).float(), gamma=10.0)
    assert profile.credibility.dtype == torch.float32
    assert clf.class_name(1) == "yes"


def test_double_precision_that_jax_would_round_is_refused():
    jax.config.update("jax_enable_x64", False)
    with pytest.raises(cr.errors.ModelError, match="jax_enable_x64"):
        cr.credibility(cr.from_jax(lambda x: x), models.inputs(2), gamma=1.0)


def test_what_cannot_be_used_is_refused_in_words():
    with pytest.raises(cr.errors.InvalidArgumentError, match="Close over the parameters"):
        cr.from_jax({"weights": 1})
    with pytest.raises(cr.errors.ModelError, match="the model failed"):
        cr.credibility(
            cr.from_jax(lambda x: x @ jax.numpy.ones((99, 2))), models.inputs(2), gamma=1.0
        )
