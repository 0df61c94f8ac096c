import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from credibly import Space
from credibly.errors import InvalidArgumentError
from credibly.model.coordinates import Coordinates
from tests.reference import models


def coordinates(x, **settings):
    return Coordinates.of(Space(**settings), [("", x)])


def random_space(seed, features):
    """Scales, ties, locks and bounds at random, with at least one feature that moves."""
    g = np.random.default_rng(seed)
    scale = torch.tensor(np.exp(g.normal(size=features)))
    tied = torch.tensor(g.integers(-1, 3, size=features))
    locked = torch.tensor(g.random(features) < 0.3)
    locked[g.integers(features)] = False
    return scale, tied, locked


@given(st.integers(0, 10_000), st.integers(1, 9))
def test_squared_distance_is_the_sum_of_squared_scaled_moves(seed, features):
    scale, tied, locked = random_space(seed, features)
    x = models.inputs(4, features, seed)
    found = coordinates(x, scale=scale, tied=tied, locked=locked)
    u = found.start + models.inputs(4, found.start.shape[1], seed + 1)
    moved = found.decode(u)
    steps = (moved - x) / scale
    assert torch.allclose((u - found.start).square().sum(1), steps.square().sum(1), rtol=1e-12)
    assert torch.allclose(found.encode(moved), u, atol=1e-12)
    assert torch.equal(moved[:, locked], x[:, locked])
    for group in set(tied.tolist()) - {-1}:
        together = steps[:, (tied == group) & ~locked]
        assert torch.allclose(together, together[:, :1].expand_as(together), atol=1e-12)


@given(st.integers(0, 10_000), st.integers(1, 9), st.sampled_from([torch.float32, torch.float64]))
def test_limits_are_inside_the_bounds_to_the_last_bit_and_no_further_than_rounding(
    seed, features, dtype
):
    scale, tied, locked = random_space(seed, features)
    x = models.inputs(5, features, seed).to(dtype)
    low = x.amin(0).double() - torch.tensor(np.random.default_rng(seed).random(features))
    high = x.amax(0).double() + 0.3
    found = coordinates(x, scale=scale, tied=tied, locked=locked, bounds=(low, high))
    least, most = found.limits(None)
    slack = 64 * torch.finfo(dtype).eps * (1 + x.abs() + high.abs()) / scale.to(dtype)
    for limit, distance in (
        (least, found.decode(least) - low.to(dtype)),
        (most, high.to(dtype) - found.decode(most)),
    ):
        gap = distance[:, ~locked]
        assert bool((gap >= 0).all())
        # at least one feature of every coordinate has reached its bound
        relative = gap / scale.to(dtype)[~locked] - slack[:, ~locked]
        for slot in range(limit.shape[1]):
            of_slot = found.slot[~locked] == slot
            assert bool((relative[:, of_slot] <= 0).any(1).all())


def test_bounds_of_the_caller_and_of_the_space_hold_together():
    x = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    found = coordinates(x, scale=[1.0, 2.0], bounds=([-torch.inf, 0.4], [0.6, torch.inf]))
    least, most = found.limits((0.0, 1.0))
    assert torch.allclose(found.decode(least), torch.tensor([[0.0, 0.4]]).double(), atol=1e-15)
    assert torch.allclose(found.decode(most), torch.tensor([[0.6, 1.0]]).double(), atol=1e-15)
    least, most = found.limits(None)
    assert least[0, 0] == -torch.inf
    assert most[0, 1] == torch.inf
    assert coordinates(x).limits(None) is None


def test_nothing_but_the_plain_case_goes_without_indexing():
    x = models.inputs(2, 3)
    assert coordinates(x, scale=[1.0, 2.0, 3.0]).plain
    assert not coordinates(x, locked=[2]).plain
    assert not coordinates(x, tied=[0, 1, 0]).plain
    assert coordinates(x, tied=[2, 1, 0]).plain  # groups of one


def test_ties_reach_across_leaves():
    a, b = models.inputs(3, 2), models.inputs(3, 1, seed=5)
    space = Space(vary=["a", "b"], tied={"a": [0, -1], "b": [0]}, scale={"b": 5.0})
    found = Coordinates.of(space, [("a", a), ("b", b)])
    assert found.slot.tolist() == [0, 1, 0]
    moved = found.decode(found.start + torch.tensor([2.0**0.5, 0.0]).double())
    expected = torch.cat([a, b], 1) + torch.tensor([1.0, 0.0, 5.0]).double()
    assert torch.allclose(moved, expected, atol=1e-12)


def test_nan_stays_with_its_sample():
    x = models.inputs(3, 3)
    x[1, 0] = torch.nan
    found = coordinates(x, tied=[0, 0, -1], bounds=(-9.0, 9.0))
    assert torch.isfinite(found.start).all(1).tolist() == [True, False, True]
    assert torch.isfinite(found.limits(None)[0]).all(1).tolist() == [True, False, True]


def test_locked_nan_does_not_reach_the_coordinates():
    x = models.inputs(2, 3)
    x[1, 0] = torch.nan
    assert bool(torch.isfinite(coordinates(x, locked=[0]).start).all())


def test_around_other_values_they_decode_to_themselves():
    x, other = models.inputs(3, 4), models.inputs(3, 4, seed=8)
    found = coordinates(x, locked=[0], tied=[-1, 0, 0, -1]).based_at(other)
    assert torch.equal(found.decode(found.start), other)


@pytest.mark.parametrize(
    ("settings", "dtype", "argument", "match"),
    [
        ({"locked": [0, 1]}, torch.float64, "locked", "all of them locked.*Unlock"),
        ({"bounds": (5.0, 9.0)}, torch.float64, "bounds", "2 samples outside.*Widen"),
        ({"scale": 1e-44}, torch.float32, "scale", "float32 can hold.*float64"),
        ({"scale": 1e300}, torch.float32, "scale", "float32 can hold.*float64"),
    ],
)
def test_what_cannot_be_solved_in_is_refused(settings, dtype, argument, match):
    with pytest.raises(InvalidArgumentError, match=match) as caught:
        coordinates(models.inputs(2, 2).to(dtype), **settings)
    assert caught.value.argument == argument


def test_locked_features_may_lie_outside_of_bounds():
    x = torch.tensor([[50.0, 0.5]], dtype=torch.float64)
    least, most = coordinates(x, locked=[0], bounds=(0.0, 1.0)).limits(None)
    assert torch.allclose(torch.cat([least, most]).flatten(), torch.tensor([0.0, 1.0]).double())
