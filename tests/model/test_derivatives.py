"""Every derivative against a naive twin: one sample and one class at a time, or differences."""

from contextlib import nullcontext
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from credibly.errors import ModelError
from credibly.model.classifier import Classifier
from credibly.model.derivatives import (
    HessianProducts,
    OutputLinearisation,
    loss_jacobian,
    losses_and_pull,
    losses_only,
    output_curvature,
    output_curvature_product,
    output_gradient,
    output_jacobian,
    squared_pulls,
)

CLASSES = 3


def _random(*shape, seed):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


X = _random(4, 2, 2, seed=1)
V = _random(4, 2, 2, seed=2)
U = _random(4, CLASSES, seed=3)
SIGNS = torch.tensor(list(product([-1.0, 1.0], repeat=CLASSES)), dtype=torch.float64)


def _fit(losses):
    return (losses.square() * torch.arange(1, losses.shape[1] + 1)).sum(dim=1)


class Smooth(nn.Module):
    """Two layers, one of them frozen, with flags that a careless caller would change."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 5).double().requires_grad_(False)
        self.second = nn.Linear(5, CLASSES).double()
        self.idle = nn.Linear(1, 1).eval()

    def forward(self, x):
        return self.second(torch.tanh(self.first(x.flatten(1))))


class Recurrent(nn.Module):
    """A recurrent model that notes whether cuDNN was allowed while it ran."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.lstm = nn.LSTM(2, 3, batch_first=True).double()
        self.cudnn = []

    def forward(self, x):
        self.cudnn.append(torch.backends.cudnn.enabled)
        return self.lstm(x)[0][:, -1]


def spread(directions, x):
    return [d.expand(len(x), -1) for d in directions]


CALLS = {
    "losses_only": lambda c, x, _v, _u, _s: losses_only(c, x),
    "losses_and_pull": lambda c, x, _v, u, _s: losses_and_pull(c, x, lambda _: u).pull,
    "output_gradient": lambda c, x, _v, _u, _s: output_gradient(c, x, lambda z: z.square().sum(1)),
    "output_jacobian": lambda c, x, _v, _u, _s: output_jacobian(c, x)[1],
    "loss_jacobian": lambda c, x, _v, _u, _s: loss_jacobian(c, x)[1],
    "squared_pulls": lambda c, x, _v, _u, s: torch.stack(squared_pulls(c, x, spread(s, x))),
    "J v": lambda c, x, v, _u, _s: OutputLinearisation(c, x).forward(v),
    "J^T u": lambda c, x, _v, u, _s: OutputLinearisation(c, x).transposed(u),
    "HessianProducts": lambda c, x, v, _u, _s: HessianProducts(c, x, _fit)(v),
    "output_curvature": lambda _c, _x, _v, u, _s: output_curvature(_fit, u)[1],
    "output_curvature_product": lambda _c, _x, _v, u, _s: output_curvature_product(_fit, u, u),
}
every_call = pytest.mark.parametrize("name", CALLS)
every_derivative = pytest.mark.parametrize("name", list(CALLS)[1:-2])  # those through the model


def _naive_jacobian(values_of, x):
    """(n, K, D), by one backward for each sample and class, each sample in a batch of its own."""
    rows = []
    for sample in x:
        leaf = sample.clone().unsqueeze(0).requires_grad_()
        values = values_of(leaf)[0]
        grads = [torch.autograd.grad(value, leaf, retain_graph=True)[0] for value in values]
        rows.append(torch.stack([grad.flatten() for grad in grads]))
    return torch.stack(rows)


def _close(found, expected, tolerance=1e-11):
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.fixture(params=["cross_entropy", "logistic"])
def classifier(request):
    return Classifier(Smooth(), loss=request.param)


@pytest.fixture
def jacobian(classifier):
    """The Jacobian of the losses (n, K, D)."""
    return _naive_jacobian(classifier.losses, X)


def test_losses_alone_are_those_of_each_sample_alone(classifier):
    expected = torch.cat([classifier.losses(x.unsqueeze(0)) for x in X])
    _close(losses_only(classifier, X), expected.detach())


def test_the_gradient_of_a_function_of_the_outputs_is_that_of_each_sample(classifier):
    slopes = _naive_jacobian(classifier.logits, X)
    expected = (U.unsqueeze(2) * slopes).sum(1).reshape(X.shape)
    _close(output_gradient(classifier, X, lambda z: (z * U).sum(1)), expected)


def test_the_pull_is_the_weighted_sum_of_the_gradients_of_the_losses(classifier, jacobian):
    found = losses_and_pull(classifier, X, lambda _: U)
    _close(found.losses, losses_only(classifier, X))
    expected = torch.stack([sum(U[i, k] * jacobian[i, k] for k in range(3)) for i in range(4)])
    _close(found.pull, expected.reshape(X.shape))


def test_the_pull_holds_multipliers_fixed_though_they_depend_on_the_losses(classifier, jacobian):
    found = losses_and_pull(classifier, X, lambda losses: 3 * losses)
    fixed = 3 * losses_only(classifier, X)
    _close(found.pull, torch.einsum("nk,nkd->nd", fixed, jacobian).reshape(X.shape))


def test_the_jacobian_of_the_outputs_is_that_of_each_sample_and_output(classifier):
    outputs, found = output_jacobian(classifier, X)
    _close(outputs, classifier.logits(X).detach())
    _close(found, _naive_jacobian(classifier.logits, X))


def test_the_jacobian_of_the_losses_is_that_of_each_sample_and_class(classifier, jacobian):
    losses, found = loss_jacobian(classifier, X)
    _close(losses, losses_only(classifier, X))
    _close(found, jacobian)


def test_the_jacobian_of_the_losses_agrees_with_finite_differences(classifier):
    _, found = loss_jacobian(classifier, X)
    for d in range(4):
        step = torch.zeros(4, dtype=torch.float64)
        step[d] = 1e-6
        ends = [losses_only(classifier, X + sign * step.reshape(2, 2)) for sign in (-1, 1)]
        _close(found[:, :, d], (ends[1] - ends[0]) / 2e-6, 1e-8)


def test_a_binary_head_has_one_output_and_two_losses():
    weights = _random(4, seed=4)
    classifier = Classifier(lambda x: (x.flatten(1) * weights).sum(dim=1).sin())
    assert output_jacobian(classifier, X)[1].shape == (4, 1, 4)
    _close(loss_jacobian(classifier, X)[1], _naive_jacobian(classifier.losses, X))


def test_a_class_that_does_not_look_at_the_input_has_a_gradient_of_zero():
    weights = _random(4, 2, seed=4)
    classifier = Classifier(lambda x: torch.cat([0 * X[:, 0, :1], x.flatten(1) @ weights], dim=1))
    _, found = output_jacobian(classifier, X)
    assert torch.equal(found[:, 0], torch.zeros(4, 4, dtype=torch.float64))
    _close(found[:, 1:], weights.T.expand(4, 2, 4))


def test_the_linearised_network_multiplies_by_the_jacobian_and_its_transpose(classifier):
    jacobian = _naive_jacobian(classifier.logits, X)
    linear = OutputLinearisation(classifier, X)
    _close(linear.outputs, classifier.logits(X).detach())
    for scale in (1.0, -2.0):  # it is used many times at one point
        _close(
            linear.forward(scale * V), scale * torch.einsum("nkd,nd->nk", jacobian, V.flatten(1))
        )
        expected = scale * torch.einsum("nkd,nk->nd", jacobian, U)
        _close(linear.transposed(scale * U), expected.reshape(X.shape))


def test_the_hessian_times_a_vector_agrees_with_differences_of_the_gradient(classifier):
    def slope(x):
        leaf = x.clone().requires_grad_()
        return torch.autograd.grad(_fit(classifier.losses(leaf)).sum(), leaf)[0]

    expected = torch.cat(
        [
            (slope(x + 1e-5 * v) - slope(x - 1e-5 * v)) / 2e-5
            for x, v in zip(X.split(1), V.split(1), strict=True)
        ]
    )
    assert float(expected.abs().max()) > 0.1
    products = HessianProducts(classifier, X, _fit)
    _close(products(V), expected, 1e-7)
    _close(products(2 * V), 2 * expected, 1e-7)  # the graph is still there


@pytest.mark.parametrize("trainable", [True, False])
def test_a_piecewise_linear_objective_has_no_curvature(trainable):
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, CLASSES)).double().requires_grad_(trainable)
    classifier = Classifier(net, loss="one_versus_rest_hinge")
    found = HessianProducts(classifier, X, lambda losses: losses.sum(dim=1))(V)
    assert torch.equal(found, torch.zeros_like(V))


def test_the_curvature_in_the_outputs_agrees_with_finite_differences():
    def fit(z):
        return _fit(torch.nn.functional.softplus(z)) + z[:, 0] * z[:, 1]

    def slope(z):
        columns = [
            (fit(z + 1e-4 * unit) - fit(z - 1e-4 * unit)) / 2e-4
            for unit in torch.eye(CLASSES, dtype=torch.float64)
        ]
        return torch.stack(columns, dim=1)

    gradient, hessian = output_curvature(fit, U)
    _close(gradient, slope(U), 1e-7)
    product = torch.einsum("nkj,nj->nk", hessian, U.flip(0))
    _close(output_curvature_product(fit, U, U.flip(0)), product)
    for k, unit in enumerate(torch.eye(CLASSES, dtype=torch.float64)):
        _close(hessian[:, k], (slope(U + 1e-4 * unit) - slope(U - 1e-4 * unit)) / 2e-4, 1e-5)


def test_a_linear_function_of_the_outputs_has_no_curvature():
    def fit(z):
        return 2 * z[:, 0] - z[:, 2]

    gradient, hessian = output_curvature(fit, U)
    _close(gradient, torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64).expand(4, 3))
    assert torch.equal(hessian, torch.zeros(4, CLASSES, CLASSES, dtype=torch.float64))
    assert torch.equal(output_curvature_product(fit, U, U), torch.zeros_like(U))


def test_the_squared_pulls_of_all_signs_have_the_trace_as_their_mean(classifier, jacobian):
    exact = torch.stack([torch.trace(a @ a.T) for a in jacobian])
    _close(torch.stack(squared_pulls(classifier, X, spread(SIGNS, X))).mean(0), exact)


def test_each_input_has_its_own_direction(classifier, jacobian):
    directions = torch.randn(2, len(X), CLASSES, dtype=torch.float64)
    found = squared_pulls(classifier, X, directions.unbind(0))
    for number, own in enumerate(directions):
        expected = [(a.T @ d).square().sum() for a, d in zip(jacobian, own, strict=True)]
        _close(found[number], torch.stack(expected))


@every_call
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_without_gradients_change_nothing(classifier, name, mode):
    expected = CALLS[name](classifier, X, V, U, SIGNS)
    with mode():
        found = CALLS[name](classifier, X.clone(), V, U, SIGNS)
    _close(found, expected)


@every_call
def test_tensors_made_in_inference_mode_are_welcome_everywhere(classifier, name):
    expected = CALLS[name](classifier, X, V, U, SIGNS)
    with torch.inference_mode():
        arguments = [tensor.clone() for tensor in (X, V, U, SIGNS)]
        assert all(tensor.is_inference() for tensor in arguments)
    for mode in (torch.inference_mode, nullcontext):
        with mode():
            _close(CALLS[name](classifier, *arguments), expected)


@every_call
@pytest.mark.parametrize("mode", [nullcontext, torch.no_grad, torch.inference_mode])
def test_the_model_and_the_input_are_left_exactly_as_found(name, mode):
    net, x = Smooth(), X.clone().requires_grad_()
    x.grad = V.clone()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    generator = torch.get_rng_state()
    with mode():
        flags = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        assert not CALLS[name](Classifier(net), x, V, U, SIGNS).requires_grad
        assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == flags
    assert torch.equal(torch.get_rng_state(), generator)
    assert [module.training for module in net.modules()] == [True, True, True, False]
    assert [layer.weight.requires_grad for layer in net.children()] == [False, True, True]
    assert all(parameter.grad is None for parameter in net.parameters())
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert x.requires_grad
    assert torch.equal(x.grad, V)
    assert torch.equal(x, X)


@every_derivative
@pytest.mark.parametrize("trainable", [True, False])
def test_a_model_that_cuts_the_gradient_is_refused(name, trainable):
    classifier = Classifier(Smooth().requires_grad_(trainable), preprocess=torch.detach)
    with pytest.raises(ModelError, match=r"no gradient reaches the input.*detach\(\)"):
        CALLS[name](classifier, X, V, U, SIGNS)
    assert torch.is_grad_enabled()


@every_derivative
def test_recurrent_models_are_differentiated_without_cudnn(name, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "enabled", True)
    net = Recurrent()
    CALLS[name](Classifier(net), X, V, U, SIGNS)
    assert set(net.cudnn) == {False}
    assert torch.backends.cudnn.enabled
    with pytest.raises(RuntimeError):
        CALLS[name](Classifier(net), X[:, :, :1], V, U, SIGNS)
    assert torch.backends.cudnn.enabled


def test_the_jacobian_of_a_recurrent_model_is_that_of_each_sample():
    classifier = Classifier(Recurrent().eval())
    _close(loss_jacobian(classifier, X)[1], _naive_jacobian(classifier.losses, X))
