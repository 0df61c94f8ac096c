"""Steps of L-BFGS, its directions, and the stages of the default solver."""

from dataclasses import replace

import pytest
import torch

import credibly as cr
from credibly.model.bind import bind
from credibly.problem.fit_risk import FitRiskProblem
from credibly.solve.base import reach
from credibly.solve.lbfgs import Memory, _direction
from tests.reference import models


def problem(count=3, gamma=30.0, bounds=None):
    clf = cr.Classifier(models.smooth_network())
    weights = torch.full((5,), gamma, dtype=torch.float64)
    return FitRiskProblem(bind(clf, models.inputs(count)), weights, bounds)


@pytest.mark.parametrize(("share", "taken"), [(2e-4, True), (5e-5, False)])
def test_armijo_asks_for_a_ten_thousandth_of_what_the_slope_predicts(share, taken):
    p = problem(2)
    state = cr.solvers.LBFGS().begin(p, p.evaluate(p.x0))
    predicted = (state.point.gradient * state.direction).sum(1)
    gained = p.objective(p.x0 + state.direction) - share * predicted
    state = replace(state, point=replace(state.point, objective=gained))
    after = cr.solvers.LBFGS().advance(p, state)
    assert torch.equal(after.point.x, p.x0 + state.direction if taken else p.x0)


def test_directions_leave_alone_what_a_bound_holds():
    p = problem(2, gamma=2.0)
    point = p.evaluate(p.x0)
    held = torch.arange(8) < 3
    low = torch.where(held & (point.gradient > 0), p.x0, -9.0)
    high = torch.where(held & (point.gradient < 0), p.x0, 9.0)
    p = replace(p, bounds=(low, high))
    g = torch.Generator().manual_seed(2)
    step = torch.randn(2, 8, generator=g, dtype=torch.float64)
    curved = 2 * step + 0.1 * step.flip(1)
    memory = Memory.empty(p.x0, 3).remember(step, curved, torch.ones(2).bool())
    direction = _direction(p, point, memory)
    assert bool((direction[:, held] == 0).all())
    assert bool((direction[:, ~held] != 0).all())


def test_an_accepted_step_is_followed_by_a_whole_one():
    p = problem(2)
    state = cr.solvers.LBFGS().begin(p, p.evaluate(p.x0))
    state = replace(state, length=torch.full((2,), 0.3).double())
    after = cr.solvers.LBFGS().advance(p, state)
    torch.testing.assert_close(after.point.x, p.x0 + 0.3 * state.direction)
    assert after.length.tolist() == [1.0, 1.0]


def test_a_memory_that_points_uphill_is_not_followed():
    p = problem(2)
    point = p.evaluate(p.x0)
    step = torch.ones(2, 8).double()
    memory = Memory.empty(p.x0, 3).remember(step, -2 * step, torch.tensor([True, False]))
    assert (
        float((memory.apply(point.gradient, torch.ones(2).double()) * point.gradient)[0].sum()) < 0
    )
    direction = _direction(p, point, memory)
    expected = (
        -0.4 * reach(p, point)[:, None] * point.gradient / point.gradient.norm(dim=1)[:, None]
    )
    torch.testing.assert_close(direction, expected)


@pytest.mark.parametrize(
    ("effort", "steps"),
    [(1.0, [240, 16, 48, 100]), (2.0, [240, 32, 96, 200]), (0.01, [240, 1, 1, 8])],
)
def test_the_default_solvers_stages_grow_with_the_effort_and_share_the_tolerance(effort, steps):
    stages = cr.solvers.Hybrid(effort=effort, tolerance=1e-5).stages()
    assert [stage.steps for stage in stages] == steps
    assert [stage.tolerance for stage in stages] == [1e-5] * 4
    assert [stage.enough for stage in stages] == [None] * 4
    quasi_newton, descent = cr.solvers.LBFGS, cr.solvers.GradientDescent
    kinds = [quasi_newton, descent, descent, quasi_newton]
    assert [type(stage) for stage in stages] == kinds


def test_the_default_solver_is_content_with_less_only_where_no_tolerance_is_asked_for():
    first = cr.solvers.Hybrid().stages()[0].enough
    assert 0 < first < 0.1
    assert cr.solvers.Hybrid(effort=0.5).stages()[0].enough == first
    assert cr.solvers.Hybrid(effort=4).stages()[0].enough == first / 4
