import cvxpy as cp
import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn

import credibly as cr
from credibly.theory import Feasibility, solve_constrained
from credibly.theory.constrained_rounds import Rounds
from tests.reference import models, oracles


def by_cvxpy(matrix, offset, x0, credences):
    x = cp.Variable(len(x0))
    z = matrix.numpy() @ x + offset.numpy()
    limits = [cp.log_sum_exp(z) - z[k] <= -float(credences[k]) for k in range(len(credences))]
    problem = cp.Problem(cp.Minimize(cp.sum_squares(x - x0.numpy())), limits)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return problem.value, x.value, np.array([float(limit.dual_value) for limit in limits])


def reachable(clf, x0):
    """Credences somewhere between those at x0 and those at the trade-off: they can be met."""
    p = cr.credibility(clf, x0, gamma=10.0, solver=cr.solvers.LBFGS())
    return p.credibility - 0.05


def test_affine_models_agree_with_cvxpy_in_value_point_and_duals():
    matrix, offset = models.affine()
    clf, x0 = models.affine_classifier(), models.inputs(4, 6)
    c = reachable(clf, x0)
    found = solve_constrained(clf, x0, c)
    assert set(found.status) == {Feasibility.SOLVED}
    for n in range(4):
        value, x, duals = by_cvxpy(matrix, offset, x0[n], c[n])
        assert float(found.risk[n]) == pytest.approx(value, abs=1e-6)
        assert torch.allclose(found.x[n], torch.as_tensor(x), atol=1e-6)
        assert torch.allclose(found.multipliers[n], torch.as_tensor(duals), atol=1e-5)


EXACT = cr.solvers.LBFGS(tolerance=1e-11, steps=2000)


@pytest.mark.parametrize("affine", [True, False])
def test_theorem_2_the_profile_is_the_fixed_point(affine):
    clf = (
        models.affine_classifier(loss="logistic")
        if affine
        else cr.Classifier(models.smooth_network(), loss="logistic")
    )
    x0 = models.inputs(3, 6 if affine else 8)
    profile = cr.credibility(clf, x0, gamma=60.0, solver=EXACT)
    found = solve_constrained(clf, x0, profile.credibility)
    assert torch.allclose(found.x, profile.perturbed, atol=1e-5)
    # a loss near zero leaves its multiplier, small itself, loosely determined; how loosely depends
    # on the rounding of the machine
    assert torch.allclose(found.multipliers, profile.multipliers, atol=1e-3 if affine else 1e-4)
    assert torch.allclose(-30.0 * found.multipliers, profile.credibility, atol=3e-2)


def test_cross_entropy_leaves_no_room_at_the_profile_and_fixes_the_duals_up_to_the_softmax():
    # sum_k exp(-l_k) = 1 always: if no loss may grow, none can fall. The feasible outputs are a
    # single point, and since sum_k p_k grad l_k = 0, multiples of p can be added to the duals.
    clf = cr.Classifier(models.smooth_network())
    x0 = models.inputs(3)
    profile = cr.credibility(clf, x0, gamma=60.0, solver=EXACT)
    found = solve_constrained(clf, x0, profile.credibility, tolerance=1e-6)
    assert torch.allclose(found.x, profile.perturbed, atol=1e-4)
    p = profile.credibility.exp()
    gap = found.multipliers - profile.multipliers
    along = (gap * p).sum(1, keepdim=True) / p.square().sum(1, keepdim=True) * p
    assert torch.allclose(gap, along, atol=1e-3)
    assert float(gap.abs().max()) > 1e-2  # they do differ


def test_the_duals_are_the_derivative_of_the_risk():
    clf, x0 = models.affine_classifier(), models.inputs(1, 6)
    c = reachable(clf, x0)
    found = solve_constrained(clf, x0, c)
    for k in range(4):
        shift = torch.zeros_like(c)
        shift[0, k] = 1e-4
        up, down = (solve_constrained(clf, x0, c + s * shift).risk for s in (1, -1))
        slope = float((up - down) / 2e-4)
        assert slope == pytest.approx(float(found.multipliers[0, k]), abs=1e-4)


@pytest.mark.parametrize("affine", [True, False])
def test_minus_infinity_asks_nothing_of_a_class(affine):
    clf = models.affine_classifier() if affine else cr.Classifier(models.smooth_network())
    x0 = models.inputs(4, 6 if affine else 8)
    c = reachable(clf, x0)
    c[:, 0] = -1e6  # a bar that no loss comes near
    expected = solve_constrained(clf, x0, c)
    c[:, 0] = -torch.inf
    found = solve_constrained(clf, x0, c)
    assert torch.allclose(found.risk, expected.risk, rtol=1e-6)
    assert torch.equal(found.passes, expected.passes)
    assert torch.allclose(found.multipliers, expected.multipliers, atol=1e-6)


def test_credences_met_at_x0_cost_nothing():
    clf, x0 = cr.Classifier(models.smooth_network()), models.inputs(3)
    with torch.no_grad():
        c = -clf.losses(x0) - 0.1
    found = solve_constrained(clf, x0, c)
    assert found.risk.tolist() == [0.0] * 3
    assert torch.equal(found.x, x0)
    assert float(found.multipliers.max()) == 0.0
    assert set(found.status) == {Feasibility.SOLVED}


def test_what_cannot_be_met_is_infeasible_and_costs_nobody_else_anything():
    clf, x0 = models.affine_classifier(), models.inputs(4, 6)
    c = reachable(clf, x0)
    alone = solve_constrained(clf, x0[:1], c[:1])
    c[1, 0] = 0.5  # losses are never negative
    c[2] = -0.1  # four classes cannot all have a loss of a tenth
    x0 = x0.clone()
    x0[3, 0] = torch.nan
    found = solve_constrained(clf, x0, c)
    assert found.status[1] is found.status[2] is Feasibility.INFEASIBLE
    assert found.risk[1:3].tolist() == [float("inf")] * 2
    assert found.status[3] is Feasibility.UNSOLVED
    for name in ("x", "risk", "losses", "violation", "multipliers", "stationarity"):
        assert bool(getattr(found, name)[3].isnan().all()), name  # not those of a stand-in
    assert found.status[0] is Feasibility.SOLVED
    assert torch.allclose(found.x[0], alone.x[0], atol=1e-7)
    assert all(status.advice for status in Feasibility)


@pytest.mark.parametrize(("scale", "seed"), [([8.0, 84.0], 1), ([0.01, 100.0, 1.0, 10.0], 3)])
def test_credences_met_but_for_rounding_are_not_called_infeasible(scale, seed):
    # x+ meets them exactly, and next to nothing else does: the last digits are hard to get
    net = models.smooth_network(features=len(scale), classes=3, seed=seed)
    clf = cr.Classifier(net, space=cr.Space(scale=scale))
    x0 = models.inputs(4, len(scale), seed=seed)
    profile = cr.credibility(clf, x0, gamma=2.5, solver=EXACT)
    found = solve_constrained(clf, x0, profile.credibility)
    assert Feasibility.INFEASIBLE not in found.status
    assert float(found.violation.max()) < 1e-3
    near = (found.risk - profile.risk).abs() <= 0.1 * profile.risk
    assert int(near.sum()) >= 3  # the last digits differ by machine, and one may end further away


def test_a_model_without_finite_gradients_is_unsolved_and_not_infeasible():
    net, x0 = models.smooth_network(), models.inputs(3)
    broken = cr.Classifier(lambda x: net(x) + 0 * (x[:, :1] - x0[1, 0]).abs().sqrt())
    c = reachable(cr.Classifier(net), x0)
    found = solve_constrained(broken, x0, c)
    assert found.status == (Feasibility.SOLVED, Feasibility.UNSOLVED, Feasibility.SOLVED)
    assert torch.equal(found.x[1], x0[1])


def test_chunks_change_nothing():
    clf, x0 = models.affine_classifier(), models.inputs(5, 6)
    c = reachable(clf, x0)
    whole, parts = (solve_constrained(clf, x0, c, chunk_size=size) for size in (5, 2))
    assert torch.allclose(whole.x, parts.x, atol=1e-7)
    assert whole.status == parts.status


def test_credences_of_the_wrong_shape_are_refused():
    clf, x0 = models.affine_classifier(), models.inputs(2, 6)
    for wrong in (torch.zeros(2, 3), torch.zeros(4), torch.full((2, 4), torch.nan), "abc"):
        with pytest.raises(cr.errors.InvalidArgumentError, match="`credences`"):
            solve_constrained(clf, x0, wrong)


def test_the_classical_updates_follow_a_naive_loop_to_the_digit():
    clf, x0 = cr.Classifier(models.smooth_network()), models.inputs(3)
    c = reachable(clf, x0)
    method = cr.theory.ClassicalArrowHurwicz(
        primal_step=0.02, dual_step=0.05, steps=40, initial=0.5
    )
    found = solve_constrained(clf, x0, c, method=method)
    for n in range(3):
        path = oracles.classical_arrow_hurwicz(
            lambda x: clf.losses(x.unsqueeze(0)).squeeze(0), x0[n], c[n],
            primal_step=0.02, dual_step=0.05, steps=41, start=0.5,
        )  # fmt: skip
        x, multipliers = path[-1]
        assert torch.allclose(found.x[n], x, atol=1e-12)
        assert torch.allclose(found.multipliers[n], multipliers, atol=1e-12)
    assert found.passes.tolist() == [pytest.approx(41 + 1 / 3)] * 3


def test_losses_and_violation_of_the_classical_updates_are_those_of_the_answer():
    clf, x0 = cr.Classifier(models.smooth_network()), models.inputs(6)
    c = reachable(clf, x0)
    method = cr.theory.ClassicalArrowHurwicz(primal_step=0.1, dual_step=0.5, steps=23)
    found = solve_constrained(clf, x0, c, method=method)
    losses = clf.losses(found.x).detach()
    torch.testing.assert_close(found.losses, losses)
    torch.testing.assert_close(found.violation, (losses + c).amax(1).clamp(min=0))


def test_the_classical_updates_reach_the_answer_of_cvxpy():
    matrix, offset = models.affine()
    clf, x0 = models.affine_classifier(), models.inputs(2, 6)
    c = reachable(clf, x0)
    method = cr.theory.ClassicalArrowHurwicz(primal_step=0.01, dual_step=0.02, steps=8000)
    found = solve_constrained(clf, x0, c, method=method, tolerance=1e-6)
    fast = solve_constrained(clf, x0, c, tolerance=1e-6)
    for n in range(2):
        value, _, duals = by_cvxpy(matrix, offset, x0[n], c[n])
        assert float(found.risk[n]) == pytest.approx(value, abs=1e-5)
        assert torch.allclose(found.multipliers[n], torch.as_tensor(duals), atol=1e-4)
    assert float(fast.passes.max()) < float(found.passes.min())


def test_classical_updates_that_blow_up_are_unsolved_and_not_an_exception():
    clf, x0 = models.affine_classifier(), models.inputs(2, 6)
    method = cr.theory.ClassicalArrowHurwicz(primal_step=50.0, dual_step=50.0, steps=300)
    found = solve_constrained(clf, x0, reachable(clf, x0), method=method)
    assert set(found.status) == {Feasibility.UNSOLVED}


def test_a_rough_network_is_met_within_the_tolerance_and_nearer_than_without_the_anneal():
    clf, x0 = cr.Classifier(models.relu_network(width=64)), models.inputs(40)
    profile = cr.credibility(clf, x0, gamma=20.0)
    c = profile.credibility - 0.1
    annealed = solve_constrained(clf, x0, c, tolerance=1e-4)
    plain = solve_constrained(
        clf, x0, c, tolerance=1e-4, method=cr.theory.AugmentedLagrangian(anneal_steps=1)
    )
    assert set(annealed.status) == {Feasibility.SOLVED}
    assert float(annealed.violation.max()) <= 1e-4
    assert float(annealed.risk.sum()) < float(plain.risk.sum())
    assert float((annealed.risk / profile.risk).max()) < 1.5  # x+ meets them, too


def test_no_answer_is_further_away_than_a_point_on_the_way_that_met_the_credences(monkeypatch):
    clf, x0 = cr.Classifier(models.relu_network(width=64)), models.inputs(40)
    c = cr.credibility(clf, x0, gamma=20.0).credibility - 0.1
    least = torch.full((40,), torch.inf, dtype=torch.float64)
    note = Rounds._note

    def watched(search, rows, part, point):
        note(search, rows, part, point)
        met = part.excess(point.losses).amax(1) <= 1e-4
        risk = (point.x - x0[rows]).square().sum(1)
        least[rows[met]] = torch.minimum(least[rows[met]], risk[met])

    def thrown_back(search, going, *rest, **settings):
        """A round that loses at the end all that was reached."""
        settle(search, going, *rest, **settings)
        if settings["rough"] and bool(going.any()):
            rows = going.nonzero().squeeze(1)
            search._note(rows, part := search.problem.select(rows), part.evaluate(x0[rows]))

    settle = Rounds.settle
    monkeypatch.setattr(Rounds, "_note", watched)
    for way in (settle, thrown_back):
        monkeypatch.setattr(Rounds, "settle", way)
        least.fill_(torch.inf)
        found = solve_constrained(clf, x0, c, tolerance=1e-4)
        assert int(least.isfinite().sum()) == 40
        assert set(found.status) == {Feasibility.SOLVED}
        assert bool((found.risk <= 1.002 * least).all())


def test_a_sample_that_meets_kinks_late_is_annealed_only_if_short_rounds_do_not_help(monkeypatch):
    clf, x0 = cr.Classifier(models.relu_network(width=64)), models.inputs(40)
    c = cr.credibility(clf, x0, gamma=20.0).credibility - 0.1
    smooth, rough, settle, anneal = [], [], Rounds.settle, Rounds.anneal

    def settled(search, going, *rest, **settings):
        (rough if settings["rough"] else smooth).append(going.clone())
        settle(search, going, *rest, **settings)

    def annealed(search, going, steps):
        late = rough[0]
        helped = late & search.was_met()
        assert not bool((late & ~smooth[0]).any())
        assert int(helped.sum()) > 0
        assert not bool((going & helped).any())
        assert bool((going | smooth[0]).all())  # who was rough from the start is annealed
        anneal(search, going, steps)

    monkeypatch.setattr(Rounds, "settle", settled)
    monkeypatch.setattr(Rounds, "anneal", annealed)
    solve_constrained(clf, x0, c, tolerance=1e-4)
    assert len(rough) == 2


def test_far_credences_of_a_smooth_network_are_met_at_a_minimum():
    # far from x0 a dozen steps are not enough to tell slow from rough
    torch.manual_seed(2)
    net = nn.Sequential(
        nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 9)
    ).double().eval()  # fmt: skip
    for weight in net.parameters():
        weight.data *= 2
    clf, x0 = cr.Classifier(net), models.inputs(16, 20)
    known = x0 + 2 * models.inputs(16, 20, seed=3)
    found = solve_constrained(clf, x0, -clf.losses(known).detach() - 0.05)
    assert set(found.status) == {Feasibility.SOLVED}
    assert int((found.stationarity > 1e-3).sum()) <= 3
    assert bool((found.risk < (known - x0).square().sum(1)).all())


@pytest.mark.parametrize("wrong", [cr.solvers.LBFGS(), "classical", cr.theory.AugmentedLagrangian])
def test_a_method_for_another_problem_is_refused(wrong):
    clf, x0 = models.affine_classifier(), models.inputs(2, 6)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`method`"):
        solve_constrained(clf, x0, reachable(clf, x0), method=wrong)


@pytest.mark.parametrize("settings", [{"rounds": 0}, {"anneal_steps": 1.5}, {"rough_steps": -1}])
def test_settings_of_the_augmented_lagrangian_are_checked(settings):
    with pytest.raises(cr.errors.InvalidArgumentError, match=next(iter(settings))):
        cr.theory.AugmentedLagrangian(**settings)


@pytest.mark.parametrize("settings", [{"steps": 0}, {"primal_step": 0.0}, {"dual_step": -1.0}])
def test_settings_of_the_classical_method_are_checked(settings):
    with pytest.raises(cr.errors.InvalidArgumentError, match=next(iter(settings))):
        cr.theory.ClassicalArrowHurwicz(**settings)


def test_a_smooth_model_that_is_slow_at_first_is_not_taken_for_a_rough_one():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double().eval()
    clf, x0 = cr.Classifier(net), torch.randn(4, 4).double()
    asked, least = [0, 3], torch.tensor([0.1, 0.3], dtype=torch.float64)
    x0 = x0[asked]
    fit = -clf.losses(x0).detach()
    credences = torch.full_like(fit, -1e3)
    worst = fit.argmin(1)
    credences[[0, 1], worst] = fit.amin(1) + least
    found = solve_constrained(clf, x0, credences, tolerance=1e-5)
    assert found.stationarity.max() < 1e-4
    for n, k in enumerate(worst.tolist()):
        start = x0[n].numpy()
        limit = {
            "type": "ineq",
            "fun": lambda v, n=n, k=k: float(
                -clf.losses(torch.tensor(v)[None]).detach()[0, k] - credences[n, k]
            ),
        }
        by_scipy = minimize(
            lambda v, start=start: ((v - start) ** 2).sum(), start, method="SLSQP",
            constraints=[limit], options={"maxiter": 300, "ftol": 1e-12},
        )  # fmt: skip
        assert by_scipy.success
        assert float(found.risk[n]) == pytest.approx(by_scipy.fun, rel=2e-4)


def test_a_violation_however_small_is_mended():
    clf, x0 = cr.Classifier(models.smooth_network()), models.inputs(2)
    with torch.no_grad():
        losses = clf.losses(x0)
    c = torch.full_like(losses, -torch.inf)
    c[:, 0] = 1e-4 - losses[:, 0]
    found = solve_constrained(clf, x0, c)
    assert set(found.status) == {Feasibility.SOLVED}
    torch.testing.assert_close(found.losses[:, 0], -c[:, 0], rtol=0, atol=1e-7)
    for n in range(2):  # to first order the way is the violation over the slope
        point = x0[n : n + 1].clone().requires_grad_()
        (slope,) = torch.autograd.grad(clf.losses(point)[0, 0], point)
        assert float(found.risk[n].sqrt()) == pytest.approx(1e-4 / float(slope.norm()), rel=1e-2)
