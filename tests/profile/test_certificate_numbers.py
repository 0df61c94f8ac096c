"""Every number of a certificate in plain Python, for losses that are written out by hand."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import credibly as cr

WEIGHTS = (2.0, 0.5, 3.0)
START = ((0.4, -1.0, 2.0), (1.0, 0.2, -0.3))
ANSWER = ((0.1, -0.6, 1.0), (0.7, 0.5, -0.1))
RADIUS = 0.05


def classifier():
    """One loss a feature, 1 + z^2, whose slope is 2 z."""
    return cr.Classifier(lambda x: x, loss=cr.losses.CustomLoss(lambda z: 1 + z.square()))


def objective(x, x0):
    risk = sum((a - b) ** 2 for a, b in zip(x, x0, strict=True))
    return risk + sum((1 + v * v) ** 2 / w for v, w in zip(x, WEIGHTS, strict=True))


def lengths(values):
    return math.sqrt(sum(v * v for v in values))


def gradient(x, x0, duals):
    """Pull of the risk and that of the fit."""
    risk = [2 * (a - b) for a, b in zip(x, x0, strict=True)]
    return risk, [dual * 2 * v for dual, v in zip(duals, x, strict=True)]


def own_duals(x):
    return [2 * (1 + v * v) / w for v, w in zip(x, WEIGHTS, strict=True)]


def certified(**settings):
    x0, x = (torch.tensor(v, dtype=torch.float64) for v in (START, ANSWER))
    weights = torch.tensor(WEIGHTS, dtype=torch.float64)
    return cr.certify(classifier(), x0, x, weights=weights, radius=RADIUS, **settings)


@pytest.mark.parametrize("factor", [None, 0.7, 1.3])
def test_residuals_are_their_formulas(factor):
    duals = [own_duals(x) for x in ANSWER]
    given = None if factor is None else factor * torch.tensor(duals, dtype=torch.float64)
    found = certified(multipliers=given, probes=0)
    for n, (x, x0) in enumerate(zip(ANSWER, START, strict=True)):
        losses = [1 + v * v for v in x]
        used = [(factor or 1.0) * dual for dual in duals[n]]
        risk, fit = gradient(x, x0, used)
        pulls = lengths(risk) + lengths(fit)
        residual = lengths([a + b for a, b in zip(risk, fit, strict=True)])
        # the credences that these multipliers belong to are -w lambda / 2
        excess = [loss - w * dual / 2 for loss, w, dual in zip(losses, WEIGHTS, used, strict=True)]
        expected = {
            "objective": objective(x, x0),
            "stationarity": residual,
            "relative_stationarity": residual / pulls,
            "fixed_point": max(abs(e) for e in excess),
            "feasibility": max(0.0, *excess),
            "slackness": max(abs(d * e) for d, e in zip(used, excess, strict=True)),
            "decrease": objective(x0, x0) - objective(x, x0),
        }
        for name, value in expected.items():
            assert float(getattr(found, name)[n]) == pytest.approx(value, rel=1e-12, abs=1e-12)
    assert bool(found.tradeoff.isnan().all() & found.hull.isnan().all())


def tried(x, x0, probes, seed):
    """The best of the points around x: along gradient and shift, then in random directions."""
    risk, fit = gradient(x, x0, own_duals(x))
    slope = [a + b for a, b in zip(risk, fit, strict=True)]
    shift = [a - b for a, b in zip(x, x0, strict=True)]
    factors = [f for f in (-1.0, 1.0, -0.25, 0.25) for _ in range(2)]
    ways = list(zip([slope, shift] * 4, factors, strict=True))
    generator = torch.Generator().manual_seed(seed)
    for number in range(8, probes):
        noise = torch.randn(len(x), generator=generator, dtype=torch.float64).tolist()
        ways.append((noise, 1.0 if number % 2 else 0.25))
    here, distance = objective(x, x0), lengths(shift)
    gains = [0.0]
    for way, factor in ways[:probes]:
        size = factor * RADIUS * distance / lengths(way)
        there = [a + size * b for a, b in zip(x, way, strict=True)]
        gains.append((here - objective(there, x0)) / distance**2)
    return max(gains)


@pytest.mark.parametrize("probes", [1, 2, 3, 8, 9, 24])
@pytest.mark.parametrize("seed", [0, 11])
def test_the_search_tries_the_points_it_says(probes, seed):
    found = certified(probes=probes, seed=seed).tradeoff
    pairs = enumerate(zip(ANSWER, START, strict=True))
    expected = [tried(x, x0, probes, seed + n) for n, (x, x0) in pairs]
    assert found.tolist() == pytest.approx(expected, rel=1e-9)
    assert min(expected) > 0


@pytest.mark.parametrize("probes", [8, 9, 10, 16])
def test_random_directions_are_tried_where_the_others_lead_up(probes):
    # stationary: the first feature at a minimum, the second at a maximum that nothing points out
    weights = (100.0, 1.0)
    x, x0 = (1.0, 0.0), (1.0 - (2 + math.cos(1)) * math.sin(1) / 100, 0.0)

    def value(v):
        risk = sum((a - b) ** 2 for a, b in zip(v, x0, strict=True))
        return risk + sum((2 + math.cos(a)) ** 2 / w for a, w in zip(v, weights, strict=True))

    clf = cr.Classifier(lambda z: z, loss=cr.losses.CustomLoss(lambda z: 2 + z.cos()))
    found = cr.certify(
        clf, *(torch.tensor([v], dtype=torch.float64) for v in (x0, x)), weights=list(weights),
        probes=probes, radius=RADIUS, seed=5,
    )  # fmt: skip
    generator, gains, distance = torch.Generator().manual_seed(5), [0.0], x[0] - x0[0]
    for number in range(8, probes):
        noise = torch.randn(2, generator=generator, dtype=torch.float64).tolist()
        size = RADIUS * distance * (1.0 if number % 2 else 0.25) / lengths(noise)
        there = [a + size * b for a, b in zip(x, noise, strict=True)]
        gains.append((value(x) - value(there)) / distance**2)
    assert float(found.tradeoff) == pytest.approx(max(gains), rel=1e-6, abs=1e-12)
    assert (probes > 8) == (max(gains) > 0)


def test_the_hull_is_that_of_gradients_sampled_by_hand():
    samples, seed = 12, 3
    found = certified(probes=0, gradient_samples=samples, seed=seed).hull
    for n, (x, x0) in enumerate(zip(ANSWER, START, strict=True)):
        generator = torch.Generator().manual_seed(seed + n)
        risk, fit = gradient(x, x0, own_duals(x))
        rows = [fit]
        for _ in range(samples):
            noise = torch.randn(3, generator=generator, dtype=torch.float64).tolist()
            size = RADIUS * lengths([v / 2 for v in risk]) / lengths(noise)
            near = [a + size * b for a, b in zip(x, noise, strict=True)]
            rows.append(gradient(near, x0, own_duals(near))[1])
        points = np.array(rows) + np.array(risk)  # the pull of the risk is taken at the answer
        best = minimize(
            lambda s, points=points: ((s @ points) ** 2).sum(), np.full(len(rows), 1 / len(rows)),
            bounds=[(0, 1)] * len(rows), method="SLSQP", options={"ftol": 1e-15},
            constraints={"type": "eq", "fun": lambda s: s.sum() - 1},
        )  # fmt: skip
        expected = math.sqrt(best.fun) / (lengths(risk) + lengths(fit))
        assert float(found[n]) == pytest.approx(expected, rel=1e-5)
        assert expected < 0.999 * lengths(points[0]) / (lengths(risk) + lengths(fit))


def test_an_input_that_has_nowhere_to_go_is_its_own_answer():
    x = torch.zeros(2, 3, dtype=torch.float64)  # the losses are smallest there
    found = cr.certify(classifier(), x, x, weights=list(WEIGHTS))
    assert found.tradeoff.tolist() == [0.0, 0.0]
    assert found.relative_stationarity.tolist() == [0.0, 0.0]
    assert bool(found.holds().all())


@pytest.mark.parametrize("tolerance", [1e-3, 0.2])
def test_the_verdict_allows_each_residual_its_tolerance_and_no_more(tolerance):
    zero = torch.zeros(1, dtype=torch.float64)
    good = {
        "objective": zero + 5.0, "stationarity": zero, "relative_stationarity": zero + tolerance,
        "fixed_point": zero + tolerance, "feasibility": zero + tolerance, "slackness": zero + 9.0,
        "decrease": zero - 5.0 * tolerance, "tradeoff": zero + 1.0, "hull": zero + 1.0,
    }  # fmt: skip
    assert bool(cr.Certificate(**good).holds(tolerance=tolerance))
    for name in ("relative_stationarity", "fixed_point", "feasibility"):
        worse = cr.Certificate(**{**good, name: good[name] * 1.001})
        assert not bool(worse.holds(tolerance=tolerance)), name
    lost = cr.Certificate(**{**good, "decrease": good["decrease"] * 1.001})
    assert not bool(lost.holds(tolerance=tolerance))
    kink = {**good, "relative_stationarity": zero + 1.0, "tradeoff": zero + 0.01}
    assert bool(cr.Certificate(**kink).holds(tolerance=tolerance, improvement=0.01))
    assert not bool(cr.Certificate(**kink).holds(tolerance=tolerance, improvement=0.0099))
    assert not bool(cr.Certificate(**{**kink, "tradeoff": zero + math.nan}).holds())
