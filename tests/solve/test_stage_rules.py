"""What Gauss-Newton and Algorithm 1 cost, how they damp, and what bounds leave of a step."""

from dataclasses import replace

import pytest
import torch
from scipy.optimize import minimize

import credibly as cr
from credibly.model.bind import bind
from credibly.problem.fit_risk import FitRiskProblem
from credibly.solve import gauss_newton
from credibly.solve.gauss_newton import _prox_linear
from tests.reference import models

WEIGHTS = torch.tensor([4.0, 6.0, 8.0, 3.0, 5.0], dtype=torch.float64)


def smooth(count=2, bounds=None):
    clf = cr.Classifier(models.smooth_network())
    return FitRiskProblem(bind(clf, models.inputs(count)), WEIGHTS, bounds)


def affine_on_a_bound():
    """An affine problem at a point of which some features are held by a bound."""
    x = models.inputs(2, 6)
    p = FitRiskProblem(bind(models.affine_classifier(), x - 0.05), WEIGHTS[:4])
    uphill = p.evaluate(x).gradient > 0
    some = torch.arange(6) < 3  # lie on a bound and would leave it
    low = torch.where(some & uphill, x, -9.0)
    high = torch.where(some & ~uphill, x, 9.0)
    p = replace(p, bounds=(low, high))
    point = p.evaluate(x)
    held = some.expand(2, 6)
    assert torch.equal(p.free(point), ~held)
    return p, point, held


def test_a_damped_linearised_problem_is_the_one_scipy_solves():
    g = torch.Generator().manual_seed(3)
    jacobian = torch.randn(2, 3, 4, generator=g, dtype=torch.float64)
    z, shift = (torch.randn(2, k, generator=g, dtype=torch.float64) for k in (3, 4))
    damping = torch.tensor([0.7, 3.0]).double()

    def fit(v):
        losses = v.logsumexp(1, keepdim=True) - v
        return (losses.square() / 0.5).sum(1)

    found = _prox_linear(fit, z, jacobian, shift, damping)
    for n in range(2):

        def damped(u, n=n):
            move = torch.as_tensor(u) - shift[n]
            near = torch.as_tensor(u).square().sum() + damping[n] * move.square().sum()
            return float(near + fit((z[n] + jacobian[n] @ move)[None])[0])

        best = minimize(damped, shift[n].numpy(), tol=1e-12)
        torch.testing.assert_close(found[n], torch.as_tensor(best.x), rtol=0, atol=1e-5)


def test_newton_steps_too_long_for_the_linearised_problem_are_halved():
    # the slope of a smoothed absolute value: undamped Newton steps leap from side to side
    def fit(v):
        return (1e4 * (1 + v.square()).sqrt()).sum(1)

    z, jacobian = torch.tensor([[4.0]]).double(), torch.ones(1, 1, 1).double()
    still = torch.zeros(1).double()
    u = float(_prox_linear(fit, z, jacobian, torch.zeros(1, 1).double(), still))
    slope = 1e4 * (4 + u) / (1 + (4 + u) ** 2) ** 0.5
    assert 2 * u + slope == pytest.approx(0.0, abs=1e-6)


def test_a_stored_jacobian_is_paid_for_where_it_is_made():
    p, solver = smooth(), cr.solvers.GaussNewton(jacobian="dense")
    jacobian = 1 / 3 + 5 * 2 / 3  # a forward, and a backward an output
    state = solver.begin(p, p.evaluate(p.x0))
    assert state.cost.tolist() == pytest.approx([jacobian] * 2)
    assert solver.advance(p, state).cost.tolist() == pytest.approx([1 + jacobian] * 2)
    refused = replace(state, point=replace(state.point, objective=torch.zeros(2).double()))
    assert solver.advance(p, refused).cost.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("jacobian", ["dense", "free"])
def test_damping_falls_when_a_step_is_taken_and_rises_when_not(jacobian):
    p, solver = smooth(), cr.solvers.GaussNewton(jacobian=jacobian)
    state = replace(
        solver.begin(p, p.evaluate(p.x0)), damping=torch.tensor([0.0, 2.0], dtype=torch.float64)
    )
    assert solver.advance(p, state).damping.tolist() == pytest.approx([0.0, 0.6])
    refused = replace(state, point=replace(state.point, objective=torch.zeros(2).double()))
    after = solver.advance(p, refused)
    assert after.damping.tolist() == pytest.approx([0.25, 8.0])
    assert torch.equal(after.point.x, p.x0)
    assert after.stuck.tolist() == [False, False]
    last = replace(refused, damping=torch.tensor([2.4e7, 2.6e7]).double())
    assert solver.advance(p, last).stuck.tolist() == [False, True]


@pytest.mark.parametrize("solver", [cr.solvers.LBFGS(), cr.solvers.GaussNewton(jacobian="dense")])
def test_a_trial_without_a_finite_gradient_is_refused(solver):
    net, x0 = models.smooth_network(), models.inputs(2)

    def broken(x):  # no gradient beyond a distance of 1e-3, though the value is the same
        room = 1e-3 - (x - x0).norm(dim=1, keepdim=True)
        return net(x) + 0 * (room * (room > 0)).sqrt()

    p = FitRiskProblem(bind(cr.Classifier(broken), x0), WEIGHTS)
    after = solver.advance(p, solver.begin(p, p.evaluate(x0)))
    assert bool((after.visited.objective < p.objective(x0)).all())
    assert not bool(after.visited.gradient.isfinite().any())
    assert torch.equal(after.point.x, x0)


def test_a_step_on_a_bound_solves_for_the_free_features_and_leaves_the_others():
    p, point, held = affine_on_a_bound()
    solver = cr.solvers.GaussNewton(jacobian="dense")
    proposal, _ = solver._propose(p, solver.begin(p, point))
    assert torch.equal(proposal[held], point.x[held])
    there = p.evaluate(proposal).gradient  # the model is affine, so the step is exact
    assert float(there[~held].abs().max()) < 1e-8


def test_a_matrix_free_step_is_newtons_for_the_free_features_with_damping(monkeypatch):
    pushed = []

    class Counted(gauss_newton.OutputLinearisation):
        def forward(self, v):
            pushed.append(v)
            return super().forward(v)

    monkeypatch.setattr(gauss_newton, "OutputLinearisation", Counted)
    p, point, held = affine_on_a_bound()
    solver = cr.solvers.GaussNewton(jacobian="free")
    damping = torch.tensor([0.5, 20.0]).double()
    state = replace(solver.begin(p, point), damping=damping)
    proposal, spent = solver._propose(p, state)
    for n in range(2):
        own = p.select(slice(n, n + 1))
        hessian = torch.autograd.functional.hessian(
            lambda v, own=own: (
                (v - own.x0[0]).square().sum() + own.misfit(own.variable.losses(v.unsqueeze(0)))[0]
            ),
            point.x[n],
        )
        free = ~held[n]
        matrix = (hessian + 2 * damping[n] * torch.eye(6))[free][:, free]
        move, slope = (proposal - point.x)[n], point.gradient[n][free]
        assert bool((move[held[n]] == 0).all())
        left = matrix @ move[free] + slope
        assert float(left.norm()) <= 0.0101 * float(slope.norm())
    assert len(pushed) > 1
    assert spent == pytest.approx(1 + 2 * len(pushed))  # to linearise; three backwards a product
    assert solver.advance(p, state).cost.tolist() == pytest.approx([1 + spent] * 2)


def test_algorithm_1_takes_its_dual_step_from_the_largest_weight():
    p = smooth()
    by_itself, told = (
        cr.solvers.ArrowHurwicz(initial="ones"),
        cr.solvers.ArrowHurwicz(initial="ones", dual_step=1 / 8),
    )
    point = p.evaluate(p.x0)
    found, expected = (s.advance(p, s.begin(p, point)) for s in (by_itself, told))
    assert torch.equal(found.multipliers, expected.multipliers)


def test_algorithm_1_is_done_when_multipliers_and_inputs_are():
    p, solver = smooth(), cr.solvers.ArrowHurwicz()
    best = cr.credibility(
        p.variable.clf, p.x0, weights=WEIGHTS, solver=cr.solvers.LBFGS(tolerance=1e-11)
    )
    state = solver.begin(p, p.evaluate(best.perturbed))
    assert float(solver.residual(p, state).max()) < 1e-9
    fit = 2 * state.point.losses / WEIGHTS
    off = replace(state, multipliers=fit + 0.01)
    expected = 0.01 / fit.amax(1)
    torch.testing.assert_close(solver.residual(p, off), expected)
