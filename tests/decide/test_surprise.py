"""Surprise: -log of the share of ordinary values that are as large."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import credibly as cr
from credibly.decide.surprise import Surprise, inputs_needed
from tests.reference import models

LOG2 = math.log(2)


def drawn(count, seed=0):
    return torch.randn(count, generator=models.generator(seed), dtype=torch.float64)


@pytest.mark.parametrize(("count", "halvings"), [(20, 1), (64, 2), (100, 2), (300, 4), (5000, 8)])
def test_knots_are_the_quantiles_that_halve_the_rest(count, halvings):
    values = drawn(count)
    found = Surprise.fit(values)
    levels = [1 - 0.5**k for k in range(halvings + 1)]
    np.testing.assert_allclose(found.knots, np.quantile(values.numpy(), levels))
    np.testing.assert_allclose(found.rises, [k * LOG2 for k in range(halvings + 1)])
    np.testing.assert_allclose(
        found(torch.tensor(found.knots, dtype=torch.float64)), found.rises, atol=1e-12
    )


def test_between_knots_it_is_linear_and_beyond_them_exponential():
    values = drawn(1000)
    found = Surprise.fit(values)
    inside = np.linspace(found.knots[0], found.knots[-1], 97)
    expected = np.interp(inside, found.knots, found.rises)
    np.testing.assert_allclose(found(torch.from_numpy(inside)), expected, atol=1e-12)
    last = found.knots[-1]
    beyond = values[values > last] - last
    ordered = beyond.sort().values
    middle, second = float(ordered[(len(beyond) - 1) // 2]), float(ordered[-2])
    scale = max(middle / LOG2, second / (math.log(len(beyond) / 2) + 1))
    far = torch.tensor([last + scale, last + 7 * scale], dtype=torch.float64)
    np.testing.assert_allclose(found(far) - found.rises[-1], [1, 7], rtol=1e-12)
    robust = Surprise.fit(values, robust=True)
    assert robust.slope == pytest.approx(LOG2 / middle)
    assert robust.slope >= found.slope
    assert float(found(torch.tensor([found.knots[0] - 100.0]))) == 0.0


def test_of_an_exponential_it_is_nearly_the_value_itself():
    values = -torch.log(torch.rand(100_000, generator=models.generator(1), dtype=torch.float64))
    found = Surprise.fit(values)
    x = torch.linspace(1.0, 30.0, 30, dtype=torch.float64)
    np.testing.assert_allclose(found(x)[:8], x[:8], rtol=0.02)
    assert bool((found(x) / x).log().abs().max() < math.log(1.6))  # a tail of 24 values


@given(
    st.lists(st.integers(-5, 5) | st.floats(-1e6, 1e6), min_size=2, max_size=80),
    st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=10),
)
def test_it_never_falls_also_with_ties(values, asked):
    found = Surprise.fit(torch.tensor(values, dtype=torch.float64))
    if max(values) == min(values):
        assert found is None
        return
    x = torch.tensor(sorted(asked + values), dtype=torch.float64)
    told = found(x)
    assert bool((told.diff() >= -1e-9 * told[1:].abs()).all())
    assert bool((told >= 0).all())
    assert bool(told.isfinite().all())


def test_values_that_few_exceed_keep_their_rise():
    """Of 9 in 10 that are equal, the first knots coincide; the one above them says how rare."""
    values = torch.cat([torch.zeros(900), torch.linspace(1, 2, 100)]).double()
    found = Surprise.fit(values)
    assert found.knots[0] == 0.0
    assert found.rises[1] == pytest.approx(4 * LOG2)  # first quantile above zero: 15/16
    assert float(found(torch.zeros(1))) == 0.0


@pytest.mark.parametrize("broken", [1e9, -1e9])
def test_broken_values_among_the_ordinary_hardly_change_it(broken):
    values = drawn(500)
    spoiled = torch.cat([values, torch.full((5,), broken)])
    x = torch.tensor([6.0], dtype=torch.float64)
    found, expected = (Surprise.fit(v, robust=True) for v in (spoiled, values))
    assert float(found(x)) > 0.5 * float(expected(x))


@pytest.mark.parametrize("values", [[], [1.0], [2.0] * 50, [math.nan] * 5, [math.nan, 3.0]])
def test_what_does_not_vary_has_no_surprise(values):
    assert Surprise.fit(torch.tensor(values, dtype=torch.float64)) is None


def test_nan_is_left_out_and_stays_nan():
    values = drawn(100)
    holes = torch.cat([values, torch.full((7,), torch.nan)])
    assert Surprise.fit(holes) == Surprise.fit(values)
    told = Surprise.fit(values)(torch.tensor([0.5, math.nan, 1.0]))
    assert told.isnan().tolist() == [False, True, False]
    alone = Surprise((1.0,), (0.0,), 2.0)
    told = alone(torch.tensor([math.nan, 0.0, 1.5], dtype=torch.float64))
    assert told[0].isnan()
    assert told[1:].tolist() == [0.0, 1.0]


def test_it_survives_json():
    found = Surprise.fit(drawn(300))
    assert Surprise.from_json(found.as_json()) == found


@pytest.mark.parametrize(
    "change",
    [
        {"knots": []},
        {"knots": [1.0, 1.0]},
        {"knots": [2.0, 1.0]},
        {"knots": [0.0, math.nan]},
        {"knots": [0.0, math.inf]},
        {"knots": [0.0]},
        {"rises": [0.0, math.nan]},
        {"rises": [1.0, 0.5]},
        {"rises": [-1.0, 0.5]},
        {"slope": 0.0},
        {"slope": -1.0},
        {"slope": math.nan},
        {"slope": math.inf},
    ],
)
def test_json_that_cannot_be_one_is_refused(change):
    good = {"knots": [0.0, 1.0], "rises": [0.0, 0.7], "slope": 1.0}
    Surprise.from_json(good)
    with pytest.raises(cr.errors.FileFormatError, match="knots"):
        Surprise.from_json(good | change)


@pytest.mark.parametrize(("rate", "needed"), [(0.01, 99), (0.05, 19), (0.1, 9), (0.3, 3), (0.5, 1)])
def test_so_many_inputs_allow_a_rate(rate, needed):
    assert inputs_needed(rate) == needed
    assert 1 / (needed + 1) <= rate + 1e-12
    assert needed == 1 or 1 / needed > rate
