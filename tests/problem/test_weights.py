import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import credibly as cr
from credibly.model.checks import check_model
from credibly.problem.weights import _directions, check_gamma, resolve_weights
from credibly.types import shortest_repr
from tests.reference import models
from tests.reference.counting import counting

CLF = models.affine_classifier()
X = models.inputs(9, 6)


def test_auto_gamma_is_the_median_of_the_mean_squared_gradient():
    energies = []
    for x in X:
        jacobian = torch.autograd.functional.jacobian(lambda v: CLF.losses(v.unsqueeze(0))[0], x)
        energies.append(float((jacobian**2).sum() / 4))
    median = sorted(energies)[4]
    assert f"{median:.6g}" != f"{median:.4g}"
    assert cr.auto_gamma(CLF, X) == float(f"{median:.4g}")
    assert cr.auto_gamma(CLF, X, kappa=3.0) == float(f"{3 * median:.4g}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gamma_that_is_printed_is_the_gamma(dtype):
    clf, x = cr.Classifier(models.smooth_network().to(dtype)), models.inputs(9).to(dtype)
    auto = cr.credibility(clf, x, gamma="auto")
    printed = re.search(r"gamma (\S+)$", auto.summary().splitlines()[0])[1]
    assert len(printed.strip("0.").replace(".", "")) <= 4
    assert cr.credibility(clf, x, gamma=float(printed)).settings == auto.settings


@given(number=st.floats(1e-30, 1e30))
def test_digits_that_are_printed_give_the_number_again(number):
    single = float(np.float32(number))
    if single != number:  # what single precision holds is typed again in it
        assert float(shortest_repr(number)) == number
    assert float(np.float32(shortest_repr(single))) == single
    assert len(shortest_repr(single)) <= len("1.23456789e-30")


def test_auto_gamma_of_many_inputs_looks_at_evenly_spaced_ones():
    many = torch.randn(500, 6, generator=models.generator(5), dtype=torch.float64)
    rows = torch.linspace(0, 499, 64, dtype=torch.float64).round().long()
    assert cr.auto_gamma(CLF, many) == pytest.approx(cr.auto_gamma(CLF, many[rows]), rel=1e-12)


def exact_gamma(clf, x):
    energies = []
    for v in x:
        jacobian = torch.autograd.functional.jacobian(lambda u: clf.losses(u.unsqueeze(0))[0], v)
        energies.append((jacobian**2).sum() / len(jacobian))
    return float(torch.stack(energies).quantile(0.5))


@pytest.mark.parametrize(("features", "classes"), [(1, 3), (1, 10), (2, 32), (13, 3), (64, 10)])
def test_small_inputs_get_a_direction_for_every_class(features, classes):
    """One random direction would give a third of it where A has a single dimension."""
    torch.manual_seed(features)
    net = torch.nn.Sequential(
        torch.nn.Linear(features, 30), torch.nn.Tanh(), torch.nn.Linear(30, classes)
    ).double()
    clf, x = cr.Classifier(net.eval()), models.inputs(64, features)
    assert cr.auto_gamma(clf, x) == float(f"{exact_gamma(clf, x):.4g}")


@pytest.mark.parametrize(("count", "classes"), [(20, 40), (64, 10), (64, 300)])
def test_a_few_directions_give_nearly_the_exact_median(count, classes):
    clf = models.affine_classifier(features=100, classes=classes, scale=0.5)
    x = models.inputs(count, 100)
    expected = exact_gamma(clf, x)
    assert cr.auto_gamma(clf, x) == pytest.approx(expected, rel=0.1)
    assert cr.auto_gamma(clf, x) == cr.auto_gamma(clf, x)
    assert cr.auto_gamma(clf, x, chunk_size=7) == pytest.approx(cr.auto_gamma(clf, x), rel=1e-3)


@pytest.mark.parametrize(("inputs", "classes", "each"), [(3000, 7, 2), (32, 9, 4), (5, 6, 6)])
def test_the_directions_are_orthogonal_and_right_on_the_mean(inputs, classes, each):
    directions, shares = _directions(inputs, classes, narrow=False)
    assert directions.shape == (inputs, each, classes)
    unit = torch.eye(each, dtype=torch.float64).expand(inputs, -1, -1)
    torch.testing.assert_close(directions @ directions.mT, unit, atol=1e-12, rtol=0)
    parts = directions.mT @ torch.diag(shares) @ directions
    torch.testing.assert_close(  # each is right about the trace of the unit matrix, which is K
        parts.diagonal(dim1=1, dim2=2).sum(1), torch.ones(inputs).double(), atol=1e-6, rtol=0
    )
    expected = torch.eye(classes, dtype=torch.float64) / classes
    torch.testing.assert_close(parts.mean(0), expected, atol=2.0 / inputs**0.5, rtol=0)


@pytest.mark.parametrize(("count", "most"), [(1, 8), (16, 128), (64, 128), (500, 128)])
def test_the_automatic_gamma_takes_few_backwards(count, most):
    seen = {"forward": 0, "backward": 0}
    net = models.affine_classifier(features=100, classes=12).net
    clf, x = counting(net, seen), models.inputs(count, 100)
    cr.auto_gamma(clf, x)
    check = {"forward": 0, "backward": 0}
    check_model(cr.bind(counting(net, check), x))
    assert seen["backward"] - check["backward"] <= most
    passes = seen["forward"] / 3 + seen["backward"] * 2 / 3
    assert passes <= (10 if count == 1 else 0.05 * 256 * 9)


@given(scale=st.floats(0.01, 100.0))
def test_rescaling_the_input_space_rescales_gamma_and_keeps_the_profile(scale):
    net = models.smooth_network()
    x0 = models.inputs(3)
    plain = cr.credibility(cr.Classifier(net), x0, gamma="auto", solver=cr.solvers.LBFGS())
    scaled_clf = cr.Classifier(lambda x: net(x / scale))
    assert plain.gamma is not None
    gamma = plain.gamma / scale**2
    scaled = cr.credibility(scaled_clf, x0 * scale, gamma=gamma, solver=cr.solvers.LBFGS())
    assert cr.auto_gamma(scaled_clf, x0 * scale) == pytest.approx(plain.gamma / scale**2, rel=2e-3)
    assert torch.allclose(scaled.credibility, plain.credibility, atol=1e-5)
    assert torch.allclose(scaled.perturbed / scale, plain.perturbed, atol=1e-5)


def test_auto_gamma_skips_samples_that_are_not_finite():
    broken = torch.cat([X, torch.full((3, 6), math.nan, dtype=torch.float64)])
    assert cr.auto_gamma(CLF, broken) == pytest.approx(cr.auto_gamma(CLF, X), rel=1e-12)


def test_auto_gamma_looks_at_the_model_as_every_door_does():
    with pytest.raises(cr.errors.ModelError, match=r"failed on a batch of shape \(2, 5\)"):
        cr.auto_gamma(CLF, models.inputs(4, 5))
    noisy = cr.Classifier(lambda x: CLF.net(x) + torch.rand_like(x[:, :1]) * x[:, :4])
    with pytest.raises(cr.errors.ModelError, match="the model is random"):
        cr.auto_gamma(noisy, X)
    coupled = cr.Classifier(lambda x: CLF.net(x - x.mean(0)))
    with pytest.raises(cr.errors.ModelError, match="samples are coupled"):
        cr.auto_gamma(coupled, X)


def test_auto_gamma_refuses_what_gives_no_number():
    with pytest.raises(cr.errors.InvalidArgumentError, match="none of them finite"):
        cr.auto_gamma(CLF, torch.full((2, 6), math.nan, dtype=torch.float64))
    weight = torch.ones(1, dtype=torch.float64, requires_grad=True)
    flat = cr.Classifier(lambda x: (0 * x[:, :3]) * weight + torch.tensor([1.0, 2, 3]).double())
    with pytest.raises(cr.errors.InvalidArgumentError, match="Pass gamma as a number"):
        cr.auto_gamma(flat, X)


def test_uniform_priors_give_gamma_and_rare_classes_get_more_weight():
    assert torch.allclose(cr.prior_weights([0.25] * 4, gamma=7.0), torch.full((4,), 7.0).double())
    weights = cr.prior_weights([0.7, 0.2, 0.1], gamma=10.0)
    assert weights[0] < weights[1] < weights[2]
    assert float(weights.mean()) == pytest.approx(10.0)
    expected = [10 * math.log(p) ** 2 for p in (0.7, 0.2, 0.1)]
    ratio = weights / torch.tensor(expected, dtype=torch.float64)
    assert torch.allclose(ratio, ratio[0].expand(3))


@pytest.mark.parametrize("priors", [[1.0], [0.5, 0.6], [0.0, 1.0], [-0.1, 1.1], [math.nan, 0.5]])
def test_impossible_priors_are_refused(priors):
    with pytest.raises(cr.errors.InvalidArgumentError, match="priors"):
        cr.prior_weights(priors, gamma=1.0)


@pytest.mark.parametrize("gamma", [0.0, -1.0, math.nan, math.inf, "large", True])
def test_impossible_gammas_are_refused_by_name(gamma):
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`gamma`.*positive finite number"):
        cr.credibility(CLF, X, gamma=gamma)


@pytest.mark.parametrize(
    "weights", [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 0.0], [1.0, 2.0, -3.0, 4.0], [math.nan] * 4]
)
def test_impossible_weights_are_refused_by_name(weights):
    with pytest.raises(cr.errors.InvalidArgumentError, match="`weights`"):
        cr.credibility(CLF, X, weights=weights)


def test_exactly_one_of_gamma_and_weights_is_needed():
    for settings in ({}, {"gamma": 1.0, "weights": [1.0] * 4}):
        with pytest.raises(
            cr.errors.InvalidArgumentError, match="exactly one of gamma and weights"
        ):
            cr.credibility(CLF, X, **settings)


def test_weights_come_in_the_precision_of_the_inputs():
    w = resolve_weights(cr.bind(models.affine_classifier(), X), gamma=5.0, weights=None)
    assert w.dtype == torch.float64
    assert w.tolist() == [5.0] * 4


@pytest.mark.parametrize("tiny", [1e-40, 2e-39, 1e-38])
def test_a_gamma_that_makes_the_objective_infinite_is_the_reason_named(tiny):
    net = models.smooth_network(classes=3).float()
    clf, x = cr.Classifier(net), models.inputs(4).float()
    with pytest.raises(
        cr.errors.InvalidArgumentError, match=r"`gamma`.*too small.*infinite.*float64"
    ):
        cr.credibility(clf, x, gamma=tiny)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`weights`.*too small"):
        cr.credibility(clf, x, weights=[1.0, 1.0, tiny])
    wide = cr.Classifier(net.double())
    found = cr.credibility(wide, models.inputs(4), gamma=tiny, solver=cr.solvers.LBFGS(steps=2))
    assert cr.Status.NON_FINITE_MODEL not in found.status


def test_a_gamma_with_an_infinite_reciprocal_is_refused_before_there_are_inputs():
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`gamma`.*too small"):
        check_gamma(1e-40, torch.float32)
    check_gamma(1e-40, torch.float64)


def test_a_sample_with_infinite_losses_is_no_reason_to_blame_gamma():
    clf = cr.Classifier(lambda x: x / (x > 0), dtype=torch.float64)
    found = cr.credibility(clf, torch.tensor([[0.0, 0.0], [1.0, 2.0]]).double(), gamma=1.0)
    assert found.status[0] == cr.Status.NON_FINITE_MODEL
    assert found.status[1] == cr.Status.CONVERGED


def test_auto_gamma_skips_samples_whose_gradients_are_not_finite():
    # finite losses everywhere, and no gradient where the first feature is 7
    broken = cr.Classifier(lambda x: CLF.net(x) + 0 * (x[:, :1] - 7.0).abs().sqrt())
    x = torch.cat([X, X[:1]])
    x[-1, 0] = 7.0
    assert cr.auto_gamma(broken, x) == pytest.approx(cr.auto_gamma(CLF, X), rel=1e-12)


def test_a_sample_whose_losses_overflow_alone_is_not_blamed_on_gamma():
    clf = cr.Classifier(lambda x: x * 1e25)
    x = torch.tensor([[1.0, -1.0, 2.0], [1e-25, 0.0, 2e-25]])
    (alone,) = cr.credibility(clf, x[:1], gamma=84.0).status
    assert alone is cr.credibility(clf, x, gamma=84.0).status[0] is cr.Status.NON_FINITE_MODEL
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`gamma`.*too small"):
        cr.credibility(clf, x[1:], gamma=1e-42)
