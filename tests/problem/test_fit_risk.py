import torch

import credibly as cr
from credibly.model.bind import bind
from tests.reference import models, oracles


def problem(bounds=None):
    clf = cr.Classifier(models.smooth_network())
    weights = torch.tensor([3.0, 5.0, 7.0, 11.0, 13.0], dtype=torch.float64)
    return cr.solvers.FitRiskProblem(bind(clf, models.inputs(3)), weights, bounds)


def naive_objective(p, x, n):
    losses = p.variable.clf.losses(x.unsqueeze(0))[0].detach()
    risk = sum(float(v) ** 2 for v in (x - p.x0[n]).flatten())
    return risk + sum(
        float(value) ** 2 / float(w) for value, w in zip(losses, p.weights, strict=True)
    )


def test_objective_is_risk_plus_weighted_squared_losses():
    p = problem()
    x = p.x0 + 0.3
    point = p.evaluate(x)
    for n in range(3):
        expected = naive_objective(p, x[n], n)
        assert abs(float(point.objective[n]) - expected) < 1e-10
        assert abs(float(p.objective(x)[n]) - expected) < 1e-10


def test_gradient_agrees_with_finite_differences():
    p = problem()
    x = p.x0 - 0.2
    point = p.evaluate(x)
    for n in range(3):
        expected = oracles.finite_difference(lambda v, n=n: naive_objective(p, v, n), x[n])
        assert torch.allclose(point.gradient[n], expected, atol=1e-6)


def test_given_multipliers_replace_those_of_the_losses():
    p = problem()
    x, duals = p.x0 + 0.1, torch.rand(3, 5, dtype=torch.float64)
    point = p.evaluate(x, duals)

    def lagrangian(v, n):
        losses = p.variable.clf.losses(v.unsqueeze(0))[0].detach()
        return float(((v - p.x0[n]) ** 2).sum() + (duals[n] * losses).sum())

    for n in range(3):
        expected = oracles.finite_difference(lambda v, n=n: lagrangian(v, n), x[n])
        assert torch.allclose(point.gradient[n], expected, atol=1e-6)


def test_relative_stationarity_is_one_at_x0_and_zero_at_a_minimum():
    p = problem()
    assert torch.allclose(p.relative_stationarity(p.evaluate(p.x0)), torch.ones(3).double())
    answer = cr.credibility(
        p.variable.clf, p.x0, weights=p.weights, solver=cr.solvers.LBFGS()
    ).perturbed
    assert float(p.relative_stationarity(p.evaluate(answer)).max()) < 1e-7


def test_the_free_gradient_leaves_out_what_pushes_against_a_bound():
    p = problem(bounds=(-1.0, 1.0))
    x = p.x0.clamp(-1, 1)
    x[0, 0], x[0, 1] = 1.0, -1.0
    point = p.evaluate(x)
    free = p.free_gradient(point)
    for n in range(3):
        for i in range(8):
            g, at_top, at_bottom = point.gradient[n, i], x[n, i] >= 1, x[n, i] <= -1
            stuck = (at_top and g < 0) or (at_bottom and g > 0)
            assert free[n, i] == (0.0 if stuck else g)


def test_relative_stationarity_weighs_what_is_free_against_both_pulls():
    p = problem(bounds=(-1.0, 1.0))
    x = (p.x0 + 0.3).clamp(-1, 1)
    point = p.evaluate(x)
    found = p.relative_stationarity(point)
    felt = 0
    for n in range(3):
        risk = 2 * (x[n] - p.x0[n])
        fit = point.gradient[n] - risk
        free = [
            float(g)
            for g, v in zip(point.gradient[n], x[n], strict=True)
            if not ((v >= 1 and g < 0) or (v <= -1 and g > 0))
        ]
        felt += 8 - len(free)
        size = sum(g**2 for g in free) ** 0.5
        assert abs(float(found[n]) - size / float(risk.norm() + fit.norm())) < 1e-12
    assert felt > 0, "no bound is felt: nothing to see"


def test_bounds_of_each_sample_stay_with_it():
    rows = torch.arange(3).double()[:, None].expand(3, 8)
    p = problem(bounds=(-rows, rows))
    far = torch.full((3, 8), 9.0).double()
    assert p.project(far)[:, 0].tolist() == [0.0, 1.0, 2.0]
    chosen = p.select(torch.tensor([2, 0]))
    assert chosen.project(far[:2])[:, 0].tolist() == [2.0, 0.0]
    assert chosen.project(-far[:2])[:, 0].tolist() == [-2.0, 0.0]
