"""The method for given credences: what it costs, and which point of a search it keeps."""

from dataclasses import replace

import pytest
import torch

import credibly as cr
from credibly.model.variable import Inputs
from credibly.theory import Feasibility, solve_constrained
from credibly.theory.constrained_rounds import (
    _IDLE,
    AugmentedProblem,
    Iterate,
    Rounds,
    first_penalty,
    starting_point,
)
from tests.reference import models
from tests.reference.counting import counting


@pytest.mark.parametrize(
    ("net", "method"),
    [
        (models.smooth_network(), None),
        (models.relu_network(), cr.theory.AugmentedLagrangian(anneal_steps=30, rounds=3)),
    ],
)
def test_passes_are_counted_as_the_model_sees_them(net, method):
    x0, seen = models.inputs(4), {"forward": 0, "backward": 0}
    clf = counting(net, seen)
    c = cr.credibility(clf, x0, gamma=10.0, solver=cr.solvers.LBFGS()).credibility - 0.02

    def unseen(credences):
        """What the model saw and no sample was charged for, and the passes charged."""
        seen.update(forward=0, backward=0)
        # so small chunks are not filled up with copies
        found = solve_constrained(clf, x0, credences, method=method, chunk_size=3)
        return seen["forward"] / 3 + seen["backward"] * 2 / 3 - float(found.passes.sum()), found

    looks, _ = unseen(c - 100.0)  # nothing to solve: only the looks at the model before
    more, found = unseen(c)
    assert float(found.passes.min()) > 10, "a sample had nothing to solve"
    assert more == pytest.approx(looks, abs=1e-6)


def augmented(losses_asked, count=2):
    clf, x0 = models.affine_classifier(), models.inputs(count, 6)
    with torch.no_grad():
        losses = clf.losses(x0)
    problem = AugmentedProblem(
        Inputs(clf, x0), torch.ones(4).double(), None,
        credences=losses_asked - losses, duals=torch.zeros(count, 4).double(),
        penalty=torch.ones(count, 1).double(),
    )  # fmt: skip
    return problem, losses


def test_before_the_first_step_a_sample_is_solved_or_as_far_as_can_be():
    problem, losses = augmented(torch.tensor([[-0.5], [0.3]]).double())
    at = starting_point(problem, losses, torch.zeros(2).bool())
    assert at.stationarity.tolist() == [0.0, torch.inf]
    torch.testing.assert_close(at.violation(problem), torch.tensor([0.0, 0.3]).double())
    assert at.passes.tolist() == pytest.approx([1 / 3] * 2)


def test_the_residual_is_the_worst_of_violation_slack_and_stationarity():
    problem, losses = augmented(torch.tensor([[-0.5], [-0.5], [0.3]]).double(), 3)
    at = starting_point(problem, losses, torch.zeros(3).bool())
    at.stationarity[:] = torch.tensor([0.1, 0.7, 0.2])
    at.multipliers[0, 1] = 2.0  # a price for what is met with room to spare
    expected = torch.tensor([0.5, 0.7, 0.3]).double()
    torch.testing.assert_close(at.residual(problem), expected)


def test_going_back_restores_the_point_and_withdraws_what_was_said_of_it():
    problem, losses = augmented(torch.tensor([[0.3], [0.3]]).double())
    before = starting_point(problem, losses, torch.zeros(2).bool())
    before.stationarity[:] = 0.5
    at = before.copy()
    for values in (at.x, at.losses, at.multipliers, at.stationarity):
        values.add_(1.0)
    at.hopeless[:] = True
    at.passes += 5
    at.return_to(before, torch.tensor([True, False]))
    assert at.hopeless.tolist() == [False, True]
    for name in ("x", "losses", "multipliers", "stationarity"):
        assert torch.equal(getattr(at, name)[0], getattr(before, name)[0])
        assert not torch.equal(getattr(at, name)[1], getattr(before, name)[1])
    assert at.passes.tolist() == pytest.approx([16 / 3] * 2)  # what was spent stays spent


def test_the_first_penalty_is_ten_times_the_curvature_that_a_unit_of_loss_is_worth():
    problem, _ = augmented(torch.tensor([[0.3], [-0.5]]).double())
    x = problem.x0[:1].clone().requires_grad_()
    excess = (problem.variable.clf.losses(x) + problem.credences[:1]).clamp(min=0)
    (slope,) = torch.autograd.grad(0.5 * excess.square().sum(), x)
    expected = 20 * float(excess.detach().square().sum() / slope.square().sum())
    assert float(first_penalty(problem)[0, 0]) == pytest.approx(expected)
    assert float(first_penalty(problem)[1, 0]) == 1.0  # nothing pulls


def at_point(problem, losses, x=0.0, stationarity=0.5):
    at = starting_point(problem, losses, torch.zeros(len(losses)).bool())
    at.x += x
    at.stationarity[:] = stationarity
    return at


def test_a_round_that_changes_nothing_ends_a_search_only_where_it_is_rough_and_feasible():
    problem, losses = augmented(torch.full((2, 1), -0.5).double())
    at = at_point(problem, losses, x=1.0)
    search, risk = Rounds(problem, at, 1e-7), problem.risk(at.x)
    half = torch.full((2,), 0.5).double()
    assert search._stands_still(risk, half).tolist() == [True, True]
    assert search._stands_still(1.01 * risk, half).tolist() == [False, False]
    assert search._stands_still(risk, 3 * half).tolist() == [False, False]  # it nears the goal
    at.stationarity[:] = 1e-5
    assert search._stands_still(risk, half * 1e-5).tolist() == [False, False]  # smooth
    at.stationarity[:] = 0.5
    at.losses += 1.0
    assert search._stands_still(risk, half).tolist() == [False, False]  # not feasible


def test_a_nearer_point_that_met_the_credences_takes_the_place_of_a_worse_end():
    problem, losses = augmented(torch.full((4, 1), -0.5).double(), 4)
    at = at_point(problem, losses)
    search, rows = Rounds(problem, at, 1e-7), torch.arange(4)
    near, far = (problem.evaluate(problem.x0 + step) for step in (0.01, 0.011))
    for point in (near, far):
        search._note(rows, problem, point)
    assert at.violation(problem).tolist() == [0.0] * 4  # both meet them
    at.stationarity[:] = torch.tensor([0.5, 0.0, 0.5, 0.5])  # the second is exact
    at.losses[2] += 1.0  # does not meet them in the end
    at.x[3] = near.x[3] + 1e-6  # hardly further
    at.hopeless[:] = True
    search.return_to_nearest(torch.ones(4).bool())
    assert torch.equal(at.x[[0, 2]], near.x[[0, 2]])
    assert torch.equal(at.losses[[0, 2]], near.losses[[0, 2]])
    assert torch.equal(at.x[1], far.x[1])
    assert not torch.equal(at.x[3], near.x[3])
    assert at.hopeless.tolist() == [False, True, False, True]


def test_what_was_never_met_stays_where_the_search_ended():
    problem, losses = augmented(torch.full((2, 1), 0.3).double())
    at = at_point(problem, losses)
    search = Rounds(problem, at, 1e-7)
    search._note(torch.arange(2), problem, problem.evaluate(problem.x0 + 1e-3))
    assert search.was_met().tolist() == [False, False]
    before = at.x.clone()
    search.return_to_nearest(torch.ones(2).bool())
    assert torch.equal(at.x, before)


def test_a_restart_takes_back_point_penalty_and_duals():
    problem, losses = augmented(torch.full((2, 1), 0.3).double())
    at = at_point(problem, losses)
    search, before, penalty = Rounds(problem, at, 1e-7), at.copy(), problem.penalty
    search.problem = replace(problem, penalty=5 * penalty)
    search._note(torch.arange(2), search.problem, problem.evaluate(problem.x0 + 0.1))
    search.restart(torch.tensor([True, False]), before, penalty)
    assert search.problem.penalty.tolist() == [[1.0], [5.0]]
    assert torch.equal(at.x[0], problem.x0[0])
    assert not torch.equal(at.x[1], problem.x0[1])
    assert torch.equal(search.problem.duals, at.multipliers)
    assert search.problem.duals[0].tolist() == [0.0] * 4
    assert float(search.problem.duals[1].max()) > 0


def test_kinks_are_in_the_way_where_neither_the_gradient_nor_the_violation_is_small():
    problem, losses = augmented(torch.full((3, 1), 0.3).double(), 3)
    at = at_point(problem, losses, stationarity=torch.tensor([0.5, 0.01, 0.5]).double())
    search = Rounds(problem, at, 1e-7)
    violation = torch.tensor([0.1, 0.1, 1e-4]).double()  # of 0.3 at first
    assert search._among_kinks(violation).tolist() == [True, False, False]


def test_a_penalty_is_worth_growing_where_the_violation_is_the_larger_error():
    problem, losses = augmented(torch.full((3, 1), 0.3).double(), 3)
    at = at_point(problem, losses, stationarity=torch.tensor([0.1, 0.5, 0.1]).double())
    search = Rounds(problem, at, 1e-6)
    violation = torch.tensor([0.3, 0.3, 1e-7]).double()
    assert search._worth_growing(violation, rough=False).tolist() == [True, False, False]
    assert search._worth_growing(violation, rough=True).tolist() == [True, True, False]


def test_a_classical_search_keeps_the_bounds_of_a_space():
    net, x0 = models.smooth_network(), models.inputs(3).clamp(-0.5, 0.5)
    clf = cr.Classifier(net, space=cr.Space(bounds=(-0.5, 0.5)))
    c = cr.credibility(cr.Classifier(net), x0, gamma=5.0, solver=cr.solvers.LBFGS()).credibility
    method = cr.theory.ClassicalArrowHurwicz(primal_step=0.02, dual_step=0.05, steps=60)
    found = solve_constrained(clf, x0, c, method=method)
    free = solve_constrained(cr.Classifier(net), x0, c, method=method)
    assert float(free.x.abs().max()) > 0.5  # or the bounds were never felt
    assert float(found.x.abs().max()) <= 0.5
    assert Feasibility.INFEASIBLE not in found.status


def test_an_iterate_copied_is_one_of_its_own():
    problem, losses = augmented(torch.full((2, 1), 0.3).double())
    at = starting_point(problem, losses, torch.zeros(2).bool())
    other: Iterate = at.copy()
    other.x += 1
    assert torch.equal(at.x, problem.x0)


@pytest.mark.parametrize(("rough", "rounds"), [(False, _IDLE), (True, 9)])
def test_rounds_that_bring_nothing_end_soon_where_no_kinks_were_expected(
    monkeypatch, rough, rounds
):
    problem, losses = augmented(torch.full((2, 1), 0.3).double())
    at, seen = at_point(problem, losses), []
    monkeypatch.setattr(Rounds, "round", lambda _, rows, steps: seen.append((len(rows), steps)))
    Rounds(problem, at, 1e-7).settle(torch.tensor([True, False]), 9, 5, rough=rough)
    assert seen == [(1, 5)] * rounds


@pytest.mark.parametrize("rough", [False, True])
def test_the_best_of_all_rounds_is_kept_where_the_model_is_smooth(monkeypatch, rough):
    problem, losses = augmented(torch.full((1, 1), 0.3).double(), 1)
    at, steps = at_point(problem, losses), iter([0.2, 0.01, 0.4, 0.3])

    def moved(search, *_):
        search.at.x += 1
        search.at.stationarity[:] = size = next(steps)
        search.at.losses[:] = losses - 0.3 + size  # so far from feasible, too

    monkeypatch.setattr(Rounds, "round", moved)
    Rounds(problem, at, 1e-7).settle(torch.tensor([True]), 4, 5, rough=rough)
    assert float((at.x - problem.x0)[0, 0]) == pytest.approx(4.0 if rough else 2.0)
