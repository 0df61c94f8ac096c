import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import minimize

from credibly.attacks.ball import Ball
from credibly.attacks.noise import normal, sample_keys, uniform, with_stream

BOUNDS = (0.0, 1.0)


def points(seed, dtype=torch.float64, spread=2.0):
    g = torch.Generator().manual_seed(seed)
    x0 = torch.rand(5, 3, 2, generator=g, dtype=torch.float64)
    x0[0, 0] = 0.0  # on the edge of the bounds
    x0[1, 1] = 1.0
    away = x0 + spread * torch.randn(x0.shape, generator=g, dtype=torch.float64)
    return x0.to(dtype), away.to(dtype)


def inside(ball, x, bounds):
    shift = (x.double() - ball.x0.double()).flatten(1)
    length = shift.abs().amax(1) if ball.kind == "linf" else shift.norm(dim=1)
    assert bool((length <= ball.eps).all()), float(length.max() - ball.eps)
    if bounds is not None:
        assert float(x.min()) >= bounds[0]
        assert float(x.max()) <= bounds[1]


@given(
    seed=st.integers(0, 1000),
    eps=st.floats(1e-4, 3.0),
    kind=st.sampled_from(["linf", "l2"]),
    bounds=st.sampled_from([None, BOUNDS]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_projected_points_are_inside_to_the_last_bit(seed, eps, kind, bounds, dtype):
    x0, away = points(seed, dtype)
    ball = Ball.around(x0, eps, kind, bounds)
    inside(ball, ball.finished(away), bounds)
    inside(ball, ball.finished(ball.start(sample_keys(x0, seed))), bounds)


@given(seed=st.integers(0, 300), eps=st.floats(0.05, 1.0), kind=st.sampled_from(["linf", "l2"]))
def test_the_projection_is_the_nearest_allowed_point(seed, eps, kind):
    x0, away = (v[:1] for v in points(seed))
    found = Ball.around(x0, eps, kind, BOUNDS).project(away).flatten().numpy()
    centre, far = x0.flatten().numpy(), away.flatten().numpy()
    if kind == "linf":
        expected = np.clip(far, np.maximum(centre - eps, 0), np.minimum(centre + eps, 1))
    else:
        expected = minimize(
            lambda v: ((v - far) ** 2).sum(),
            centre,
            jac=lambda v: 2 * (v - far),
            bounds=[BOUNDS] * len(far),
            constraints={
                "type": "ineq",
                "fun": lambda v: eps**2 - ((v - centre) ** 2).sum(),
                "jac": lambda v: -2 * (v - centre),
            },
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        ).x
    assert np.linalg.norm(found - far) <= np.linalg.norm(expected - far) + 1e-6
    assert np.allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["linf", "l2"])
def test_points_that_are_allowed_stay(kind):
    x0, _ = points(3)
    ball = Ball.around(x0, 0.2, kind, BOUNDS)
    x = ball.start(sample_keys(x0, 0))
    assert torch.equal(ball.project(x), x) or torch.allclose(ball.project(x), x, atol=1e-15)


def test_a_step_has_the_length_it_is_told_and_leaves_flat_features_alone():
    x0 = torch.zeros(2, 4, dtype=torch.float64)
    gradient = torch.tensor([[3.0, 0.0, -4.0, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    box, round_ = (Ball.around(x0, 1.0, kind, None) for kind in ("linf", "l2"))
    assert box.step(x0, gradient, 0.2).tolist() == [[0.2, 0.0, -0.2, 0.0], [0.0] * 4]
    moved = round_.step(x0, gradient, 0.2)
    assert moved[0].tolist() == pytest.approx([0.12, 0.0, -0.16, 0.0])
    assert moved[1].tolist() == [0.0] * 4
    assert box.step(x0, gradient, 9.0)[0].tolist() == [1.0, 0.0, -1.0, 0.0]
    assert round_.step(x0, gradient, 9.0)[0].tolist() == pytest.approx([0.6, 0.0, -0.8, 0.0])


def test_random_numbers_belong_to_the_sample():
    x = torch.randn(6, 4, dtype=torch.float64)
    keys = sample_keys(x, seed=1)
    assert torch.equal(sample_keys(x[2:4], seed=1), keys[2:4])
    assert len(set(keys.tolist())) == 6
    assert torch.equal(uniform(keys, (3,))[1:], uniform(keys[1:], (3,)))
    assert not torch.equal(sample_keys(x, seed=2), keys)
    assert not torch.equal(with_stream(keys, 0), with_stream(keys, 1))


def test_random_numbers_are_distributed_as_said():
    keys = sample_keys(torch.randn(200, 4, dtype=torch.float64), seed=0)
    u, z = uniform(keys, (500,)), normal(keys, (500,))
    assert float(u.min()) >= 0
    assert float(u.max()) < 1
    shares = torch.histc(u, 20, 0, 1) / u.numel()
    assert torch.allclose(shares, torch.full_like(shares, 0.05), atol=2e-3)
    assert abs(float(z.mean())) < 0.01
    assert abs(float(z.std()) - 1) < 0.01
    assert abs(float((z**4).mean()) - 3) < 0.1
    neighbours = torch.corrcoef(torch.stack([u[:, :-1].flatten(), u[:, 1:].flatten()]))
    assert abs(float(neighbours[0, 1])) < 0.01


@pytest.mark.parametrize("kind", ["linf", "l2"])
def test_starts_fill_the_ball_evenly(kind):
    g = torch.Generator().manual_seed(0)
    x0 = torch.randn(3000, 3, generator=g, dtype=torch.float64)
    shift = Ball.around(x0, 0.4, kind, None).start(sample_keys(x0, 0)) - x0
    if kind == "linf":
        shares = [(column / 0.4 + 1) / 2 for column in shift.T]
    else:  # the share of the volume within each radius, and any coordinate of a direction in space
        length = shift.norm(dim=1)
        shares = [(length / 0.4) ** 3, *((column / length + 1) / 2 for column in shift.T)]
    for values in shares:
        assert stats.kstest(values.numpy(), "uniform").pvalue > 0.01
    assert float(torch.corrcoef(shift.T).fill_diagonal_(0).abs().max()) < 0.05


def test_edges_next_to_zero_are_exact_in_single_precision():
    x0 = torch.linspace(0.3999, 0.4001, 2001)[:, None]
    ball = Ball.around(x0, 0.4, "linf", None)
    inside(ball, ball.project(x0 - 1), None)
    inside(ball, ball.project(x0 + 1), None)
