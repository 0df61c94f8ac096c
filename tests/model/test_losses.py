"""Losses against formulas written with loops, and the properties the method relies on."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from credibly.errors import InvalidArgumentError
from credibly.model.losses import (
    NAMED,
    CrossEntropy,
    CustomLoss,
    Hinge,
    Logistic,
    Loss,
    OneVersusRestHinge,
    resolve_loss,
)

repeatable = settings(derandomize=True, database=None, deadline=None, max_examples=60)
outputs = st.lists(st.floats(-50, 50), min_size=2, max_size=6)


def _cross_entropy(z, k):
    return logsumexp(z) - z[k]


def _logistic(z, k):
    return np.logaddexp(0, -z[k])


def _hinge(z, k):
    rival = max(z[j] for j in range(len(z)) if j != k)
    return max(0.0, 1 + rival - z[k])


def _one_versus_rest_hinge(z, k):
    return max(0.0, 1 - z[k])


FORMULAS = {
    "cross_entropy": _cross_entropy,
    "logistic": _logistic,
    "hinge": _hinge,
    "one_versus_rest_hinge": _one_versus_rest_hinge,
}
BINARY = {
    "cross_entropy": lambda margin: np.logaddexp(0, -margin),
    "logistic": lambda margin: np.logaddexp(0, -margin),
    "hinge": lambda margin: np.maximum(0, 1 - margin),
    "one_versus_rest_hinge": lambda margin: np.maximum(0, 1 - margin),
}
EXTREMES = [
    [0.0, 0.0, 0.0, 0.0],
    [1e4, 1e4, 1e4, 1e4],
    [-1e4, -1e4, -1e4, -1e4],
    [1e4, -1e4, 1e4, 0.0],
    [-1e4, 1e4, -1e4, 1.0],
    [1e4, 0.0, 0.0, 1.0],
]

every_loss = pytest.mark.parametrize("name", sorted(FORMULAS))


def _by_loops(name, z):
    return np.array([[FORMULAS[name](row, k) for k in range(len(row))] for row in z])


def _slopes_of_the_square(loss, at, along, k, step=1e-6):
    """Slopes of l_k^2 a little before and a little after a point, on a line through it."""
    at, along = torch.tensor([at]).double(), torch.tensor([along]).double()
    here, before, after = (float(loss(at + t * along)[0, k]) ** 2 for t in (0.0, -step, step))
    return (here - before) / step, (after - here) / step


def test_every_named_loss_has_a_formula_here():
    assert sorted(NAMED) == sorted(FORMULAS) == sorted(BINARY)


@every_loss
def test_losses_agree_with_the_formula(name):
    z = np.random.default_rng(0).normal(scale=4, size=(40, 5))
    found = resolve_loss(name)(torch.from_numpy(z))
    np.testing.assert_allclose(found.numpy(), _by_loops(name, z), rtol=1e-12, atol=1e-14)


@every_loss
def test_losses_of_far_away_outputs_are_exact_in_double_precision(name):
    z = np.linspace(-40, 40, 401).reshape(-1, 1) * np.array([[1.0, -1.0, 0.3]])
    found = resolve_loss(name)(torch.from_numpy(z))
    np.testing.assert_allclose(found.numpy(), _by_loops(name, z), rtol=1e-12, atol=1e-14)


@every_loss
@repeatable
@given(z=outputs)
def test_losses_are_never_negative(name, z):
    for precision in (torch.float32, torch.float64):
        assert bool((resolve_loss(name)(torch.tensor([z], dtype=precision)) >= 0).all())


@every_loss
@repeatable
@given(data=st.data())
def test_permuting_the_classes_permutes_the_losses(name, data):
    z = torch.tensor([data.draw(outputs)], dtype=torch.float64)
    order = data.draw(st.permutations(range(z.shape[1])))
    loss = resolve_loss(name)
    torch.testing.assert_close(loss(z[:, order]), loss(z)[:, order], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["cross_entropy", "hinge"])
@repeatable
@given(z=outputs, shift=st.floats(-1000, 1000))
def test_a_constant_added_to_all_outputs_changes_nothing(name, z, shift):
    z, loss = torch.tensor([z], dtype=torch.float64), resolve_loss(name)
    torch.testing.assert_close(loss(z + shift), loss(z), rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ["logistic", "one_versus_rest_hinge"])
def test_a_loss_of_one_against_the_rest_looks_at_its_own_output_only(name):
    z = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 4)))
    moved = z.clone()
    moved[:, 0] += 0.5
    before, after = resolve_loss(name)(z), resolve_loss(name)(moved)
    assert torch.equal(before[:, 1:], after[:, 1:])
    assert bool((before[:, 0] != after[:, 0]).all())


@every_loss
def test_gradients_agree_with_finite_differences_away_from_kinks(name):
    rng = np.random.default_rng(2)
    z = np.stack([rng.permutation([-2.3, -0.9, 0.35, 1.1, 2.6]) for _ in range(6)])
    weights, step = rng.normal(size=z.shape), 1e-6
    leaf = torch.from_numpy(z).requires_grad_()
    (resolve_loss(name)(leaf) * torch.from_numpy(weights)).sum().backward()
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            ends = np.stack([z[i], z[i]])
            ends[0, j] -= step
            ends[1, j] += step
            low, high = _by_loops(name, ends) @ weights[i]
            assert float(leaf.grad[i, j]) == pytest.approx((high - low) / (2 * step), abs=1e-7)


@every_loss
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_ties_and_huge_outputs_stay_finite_and_not_negative(name, precision):
    z = torch.tensor(EXTREMES, dtype=precision, requires_grad=True)
    losses = resolve_loss(name)(z)
    losses.sum().backward()
    assert bool(torch.isfinite(losses).all())
    assert bool((losses >= 0).all())
    assert bool(torch.isfinite(z.grad).all())


@every_loss
def test_ties_and_huge_outputs_have_the_right_losses(name):
    found = resolve_loss(name)(torch.tensor(EXTREMES, dtype=torch.float64))
    expected = _by_loops(name, np.array(EXTREMES))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)


@every_loss
def test_a_single_logit_gives_the_two_losses_of_a_binary_classifier(name):
    logit = np.random.default_rng(3).normal(scale=3, size=20)
    loss = resolve_loss(name)
    found = loss(loss.two_classes(torch.from_numpy(logit).unsqueeze(1)))
    expected = np.stack([BINARY[name](-logit), BINARY[name](logit)], axis=1)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["cross_entropy", "hinge"])
def test_a_single_logit_stands_for_the_difference_of_two(name):
    pair = torch.from_numpy(np.random.default_rng(4).normal(scale=3, size=(20, 2)))
    loss = resolve_loss(name)
    single = loss(loss.two_classes(pair[:, 1:] - pair[:, :1]))
    torch.testing.assert_close(single, loss(pair), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["logistic", "one_versus_rest_hinge"])
def test_a_single_logit_stands_for_two_opposite_ones(name):
    logit = torch.from_numpy(np.random.default_rng(5).normal(scale=3, size=(20, 1)))
    loss = resolve_loss(name)
    by_hand = loss(torch.cat([-logit, logit], dim=1))
    torch.testing.assert_close(loss(loss.two_classes(logit)), by_hand, rtol=0, atol=0)


@every_loss
def test_the_positive_logit_speaks_for_class_one(name):
    loss = resolve_loss(name)
    losses = loss(loss.two_classes(torch.tensor([[2.5], [-2.5]], dtype=torch.float64)))
    assert losses.argmin(dim=1).tolist() == [1, 0]


@pytest.mark.parametrize("name", sorted(name for name, loss in NAMED.items() if not loss.kinked))
@pytest.mark.parametrize(
    ("at", "along", "k"),
    [
        ([0.0, 0.0, -1.0], [1.0, 0.0, 0.0], 2),  # two rivals of class 2 tie
        ([1.0, 0.0, 0.0], [1.0, 0.0, 0.0], 0),  # the margin of class 0 is just met
        ([0.0, 1.0, -2.0], [1.0, 0.5, 0.25], 1),
    ],
)
def test_a_loss_not_called_kinked_has_a_smooth_square(name, at, along, k):
    before, after = _slopes_of_the_square(resolve_loss(name), at, along, k)
    assert after == pytest.approx(before, abs=1e-4)


def test_the_loss_called_kinked_has_a_kink_where_two_rivals_tie():
    assert [name for name, loss in NAMED.items() if loss.kinked] == ["hinge"]
    before, after = _slopes_of_the_square(Hinge(), [0.0, 0.0, -1.0], [1.0, 0.0, 0.0], 2)
    assert before == pytest.approx(0, abs=1e-4)
    assert after == pytest.approx(4, abs=1e-4)


def test_a_loss_of_ones_own_is_called_as_it_is():
    loss = CustomLoss(lambda z: (z - 1).square(), kinked=True)
    z = torch.tensor([[0.0, 3.0]], dtype=torch.float64)
    assert loss(z).tolist() == [[1.0, 4.0]]
    assert loss.kinked
    assert not CustomLoss(torch.square).kinked


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cross_entropy", CrossEntropy),
        ("logistic", Logistic),
        ("hinge", Hinge),
        ("one_versus_rest_hinge", OneVersusRestHinge),
    ],
)
def test_resolve_loss_knows_the_names(name, kind):
    assert type(resolve_loss(name)) is kind


@pytest.mark.parametrize("loss", [CrossEntropy(), Hinge(), CustomLoss(torch.square)])
def test_resolve_loss_hands_a_loss_back(loss):
    assert isinstance(loss, Loss)
    assert resolve_loss(loss) is loss


@pytest.mark.parametrize("wrong", ["crossentropy", "", None, 3, ["hinge"], CrossEntropy], ids=repr)
def test_resolve_loss_says_what_it_takes_and_what_came(wrong):
    with pytest.raises(InvalidArgumentError) as caught:
        resolve_loss(wrong)
    message = str(caught.value)
    assert caught.value.argument == "loss"
    assert message.startswith("`loss`: ")
    assert f"got {wrong!r}" in message
    assert all(name in message for name in NAMED)


def test_resolve_loss_tells_how_to_bring_a_plain_function():
    with pytest.raises(InvalidArgumentError, match=r"credibly\.losses\.CustomLoss\(function\)"):
        resolve_loss(torch.square)
