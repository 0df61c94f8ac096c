import pytest
import torch

import credibly as cr
from credibly.model.bind import bind
from credibly.problem.fit_risk import FitRiskProblem
from tests.reference import models, oracles

WEIGHTS = torch.tensor([4.0, 6.0, 8.0, 3.0, 5.0], dtype=torch.float64)


@pytest.mark.parametrize("initial", ["losses", "ones"])
def test_every_iterate_is_that_of_the_plain_loop(initial):
    clf = cr.Classifier(models.smooth_network())
    x0 = models.inputs(3)
    solver = cr.solvers.ArrowHurwicz(primal_step=0.03, dual_step=0.2, initial=initial)
    problem = FitRiskProblem(bind(clf, x0), WEIGHTS)
    state = solver.begin(problem, problem.evaluate(x0))
    paths = [
        oracles.algorithm_1(
            lambda v: clf.losses(v.unsqueeze(0))[0],
            x0[n],
            WEIGHTS,
            primal_step=0.03,
            dual_step=0.2,
            steps=25,
            start=(
                2 * clf.losses(x0[n : n + 1])[0].detach() / WEIGHTS
                if initial == "losses"
                else torch.ones(5, dtype=torch.float64)
            ),
        )
        for n in range(3)
    ]
    for step in range(25):
        for n in range(3):
            x, multipliers = paths[n][step]
            assert torch.allclose(state.x[n], x, atol=1e-12)
            assert torch.allclose(state.multipliers[n], multipliers, atol=1e-12)
        state = solver.advance(problem, state)


def test_the_printed_box_is_the_text_with_weights_of_two():
    clf = cr.Classifier(models.smooth_network())
    x0 = models.inputs(2)
    box = cr.solvers.ArrowHurwicz.as_printed(primal_step=0.02, dual_step=0.5, steps=4000)
    printed = cr.credibility(clf, x0, gamma=2.0, solver=box)
    exact = cr.credibility(clf, x0, gamma=2.0, solver=cr.solvers.LBFGS())
    assert torch.allclose(printed.credibility, exact.credibility, atol=1e-5)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"gamma=2\.0"):
        cr.credibility(clf, x0, gamma=3.0, solver=box)


def test_unstable_dual_steps_are_refused_and_stable_ones_are_not():
    clf = cr.Classifier(models.smooth_network())
    x0 = models.inputs(1)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"dual_step.*0\.4"):
        cr.credibility(clf, x0, gamma=10.0, solver=cr.solvers.ArrowHurwicz(dual_step=0.4))
    fine = cr.solvers.ArrowHurwicz(dual_step=0.39, primal_step=0.01, steps=5000)
    assert cr.credibility(clf, x0, gamma=10.0, solver=fine).status[0].usable


@pytest.mark.parametrize(("dual_step", "settles"), [(0.39, True), (0.41, False)])
def test_the_refused_dual_steps_are_those_that_never_settle(dual_step, settles):
    clf, x0 = cr.Classifier(models.smooth_network()), models.inputs(2)
    problem = FitRiskProblem(bind(clf, x0), torch.full((5,), 10.0, dtype=torch.float64))
    frozen = {"primal_step": 1e-12, "initial": "ones"}  # x stays, only the multipliers move
    state = cr.solvers.ArrowHurwicz(dual_step=0.1, **frozen).begin(problem, problem.evaluate(x0))
    solver = cr.solvers.ArrowHurwicz(dual_step=dual_step, **frozen)  # `begin` alone checks the step
    for _ in range(1000):
        state = solver.advance(problem, state)
    gap = (state.multipliers - problem.multipliers(state.point.losses)).abs().max()
    assert bool(gap < 1e-6) == settles


def test_too_long_a_primal_step_diverges_but_keeps_the_best_point():
    clf = models.affine_classifier()
    wild = cr.solvers.ArrowHurwicz(primal_step=3.0, steps=2000, patience=None)
    profile = cr.credibility(clf, models.inputs(2, 6), gamma=5.0, solver=wild)
    assert set(profile.status) <= {cr.Status.NON_FINITE_MODEL, cr.Status.STEP_LIMIT}
    assert bool(profile.credibility.isfinite().all())
    assert bool((profile.certificate.decrease >= 0).all())


def test_it_stays_where_the_gradient_vanishes_be_it_a_maximum():
    # two classes and a logit that is even: at 0 nothing pulls, and F is largest there
    clf = cr.Classifier(lambda x: torch.cat([6 - 6 * x**2, torch.zeros_like(x)], 1))
    x0, weights = torch.zeros(1, 1, dtype=torch.float64), torch.full((2,), 2.0).double()
    problem = cr.solvers.FitRiskProblem(bind(clf, x0), weights)
    found = cr.credibility(clf, x0, weights=weights, solver=cr.solvers.ArrowHurwicz(steps=200))
    assert float(found.risk) == 0.0
    around = torch.tensor([[-0.3], [0.3]]).double()
    there = torch.cat([problem.objective(x.unsqueeze(0)) for x in around])
    assert bool((there < problem.objective(x0)).all())
