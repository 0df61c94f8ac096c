"""How far inputs are from the ordinary ones, against plain loops and against leaving one out."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import credibly as cr
from credibly.decide.typicality import (
    COLUMNS,
    Correlations,
    InputMetric,
    Neighbours,
    TypicalInputs,
    input_columns,
    names_of_columns,
)
from tests.reference import models


def both(x):
    """Inputs, and what ranges and statistics look at."""
    return x, input_columns(x)


def fitted(x):
    return TypicalInputs.fit(*both(x), None)


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=models.generator(seed), dtype=torch.float64)


def third_nearest(point, others):
    gaps = sorted(math.dist(point.tolist(), other.tolist()) for other in others)
    return math.log(max(gaps[min(3, len(gaps)) - 1], 1e-12))


def without(values, row):
    return torch.cat([values[:row], values[row + 1 :]])


@pytest.mark.parametrize(("count", "offset"), [(4, 0.0), (40, 0.0), (700, 1e3)])
def test_neighbours_are_those_of_a_loop(count, offset):
    points, new = (offset + 0.01 * drawn(n, 5, seed=s) for n, s in ((count, 0), (9, 1)))
    found = Neighbours(points.float()).of_new(new.float())
    expected = [third_nearest(p, points.float()) for p in new.float()]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_an_ordinary_input_is_measured_as_if_it_were_not_among_them():
    points = drawn(60, 4)
    points[7] = points[8]  # the same input twice
    points[20:24] = points[24]  # and one five times
    found = Neighbours(points).of_own()
    for row in range(len(points)):
        assert found[row] == pytest.approx(third_nearest(points[row], without(points, row)))
    assert found[20:25].tolist() == pytest.approx([math.log(1e-12)] * 5)


def test_many_inputs_are_measured_as_few_are():
    points, new = drawn(50, 3), drawn(1200, 3, seed=1)
    whole = Neighbours(points).of_new(new)
    parts = torch.cat([Neighbours(points).of_new(part) for part in new.split(7)])
    torch.testing.assert_close(whole, parts, atol=1e-12, rtol=0)


@given(st.integers(4, 12), st.integers(0, 10_000), st.booleans())
def test_one_more_input_never_makes_ordinary_ones_stranger(count, seed, discrete):
    """Else the p-values of new inputs could be too small."""
    values = 2 * drawn(count + 1, 3, seed=seed)
    values = values.round() if discrete else values
    ordinary, new = values[:count], values[count:]
    alone, among = Neighbours(ordinary).of_own(), Neighbours(values).of_own()
    assert bool((alone >= among[:count] - 1e-9).all())
    # the new one is measured as if it were one of them
    assert float(Neighbours(ordinary).of_new(new)) == pytest.approx(float(among[-1]), abs=1e-6)


def test_columns_of_tables_signals_and_images():
    table, signal, image = drawn(6, 5), drawn(6, 2, 9), drawn(6, 3, 8, 7)
    found = input_columns(table)
    assert torch.equal(found[:, :5], table)
    assert torch.allclose(found[:, 5], table.mean(1))
    assert torch.allclose(found[:, 6], table.std(1, correction=0))
    assert torch.equal(found[:, 7:], torch.stack([table.amin(1), table.amax(1)], 1))
    assert input_columns(signal).shape == (6, 5)
    down = (image[:, :, 1:] - image[:, :, :-1]).abs().mean((1, 2, 3))
    right = (image[..., 1:] - image[..., :-1]).abs().mean((1, 2, 3))
    torch.testing.assert_close(input_columns(image)[:, 4:], torch.stack([down, right], 1))
    for x in (table, signal, image, drawn(6, 3, 1, 1), drawn(2, 1)):
        assert len(names_of_columns(x, None)) == input_columns(x).shape[1]
    assert names_of_columns(table, ("a", "b", "c", "d", "e"))[:2] == ("a", "b")
    assert names_of_columns(table, None)[4] == "column 4"


def test_columns_of_a_table_are_measured_in_their_deviations_up_to_four():
    x = torch.tensor([1.0, 1000.0, 0.0]) * drawn(200, 3)
    x[:, 2] = 7.0  # a constant
    metric = InputMetric.fit(x)
    centre = np.sort(x.numpy(), axis=0)[99]  # torch takes the lower of two middles
    expected = (x[:5] - torch.from_numpy(centre)) / x.std(0)
    found = metric(x[:5])
    torch.testing.assert_close(found[:, :2], expected[:, :2].clamp(-4, 4), atol=1e-9, rtol=0)
    assert bool((found[:, 2] == 0).all())
    far = x[:1] + torch.tensor([1e9, -1e9, 0.0])
    assert metric(far)[0].tolist() == [4.0, -4.0, 0.0]
    assert float(metric(x[:1] + torch.tensor([0.0, 0.0, 7.0]))[0, 2]) == pytest.approx(1.0)


def test_images_are_measured_as_they_are():
    x = drawn(20, 1, 6, 6) * 100 + 50
    assert torch.equal(InputMetric.fit(x)(x), x.flatten(1))
    found = fitted(x)
    assert found.of_new(*both(x[:2])).keys() == found.of_own(*both(x)).keys() == set(found.names)
    assert found.names == ("inputs", "range", "statistics")
    table = fitted(drawn(20, 4))
    assert table.of_new(*both(drawn(2, 4))).keys() == table.of_own(*both(drawn(20, 4))).keys()
    assert table.names == ("inputs", "range", "correlations")


def test_columns_that_contradict_each_other_are_far():
    """Mahalanobis' distance of bent deviations, by a plain solve; each without its tenth."""
    x = drawn(200, 3)
    x[:, 1] = x[:, 0] + 0.1 * x[:, 1]
    new = torch.tensor([[1.5, 1.5, 0.0], [1.5, -1.5, 0.0]], dtype=torch.float64)

    def by_hand(known, asked):
        bent, far = (2 * np.arcsinh(v.numpy() / 2) for v in (known, asked))
        ridge = (0.01 + 0.1 * 3 / len(known)) * np.eye(3)
        spread, gap = np.cov(bent.T) + ridge, far - bent.mean(0)
        return 0.5 * np.log((gap * np.linalg.solve(spread, gap.T).T).sum(1))

    found = Correlations.fit(x).of_new(new)
    np.testing.assert_allclose(found, by_hand(x, new), atol=1e-9)
    assert float(found[1] - found[0]) > 1
    own = Correlations.of_own(x)
    for tenth in range(10):
        here = torch.arange(200) % 10 == tenth
        np.testing.assert_allclose(own[here], by_hand(x[~here], x[here]), atol=1e-9)


@pytest.mark.parametrize("shape", [(COLUMNS + 5,), (3, 30, 30)])
def test_of_many_values_some_are_compared_always_the_same(shape):
    x = drawn(12, *shape)
    metric, again = InputMetric.fit(x), InputMetric.fit(x)
    assert metric(x).shape == (12, COLUMNS)
    assert torch.equal(metric.places, again.places)
    assert len(set(metric.places.tolist())) == COLUMNS
    assert torch.equal(metric(x), x.flatten(1)[:, metric.places])
    found = fitted(x)
    assert "statistics" in found.names
    assert found.of_new(*both(x[:3]))["statistics"].shape == (3,)


def test_inputs_of_another_shape_are_refused_with_the_remedy():
    found = fitted(drawn(12, 1, 4, 4))
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"\(1, 4, 4\).*\(1, 5, 4\).*Resize"):
        found.of_new(*both(drawn(2, 1, 5, 4)))


def test_single_inputs_and_constants_have_finite_signals():
    same = torch.ones(50, 3, dtype=torch.float64)
    found = fitted(same)
    for signals in (
        found.of_own(*both(same)),
        found.of_new(*both(same[:1])),
        found.of_new(*both(5 + same[:2])),
    ):
        assert all(bool(values.isfinite().all()) for values in signals.values())
    assert float(found.of_new(*both(same[:1]))["range"]) == 0.0
    assert float(found.of_new(*both(5 + same[:1]))["range"]) > 1
