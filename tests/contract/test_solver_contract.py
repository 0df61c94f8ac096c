"""Every solver goes through here: to join, add a row to SOLVERS."""

import math
from dataclasses import replace

import pytest
import torch

import credibly as cr
from tests.reference import models, oracles
from tests.reference.counting import counting

SOLVERS = {
    "hybrid": cr.solvers.Hybrid(),
    "lbfgs": cr.solvers.LBFGS(),
    "lbfgs, one pair": cr.solvers.LBFGS(memory=1, steps=2000, patience=200),
    "gauss-newton, dense": cr.solvers.GaussNewton(jacobian="dense"),
    "gauss-newton, free": cr.solvers.GaussNewton(jacobian="free", steps=200),
    "descent": cr.solvers.GradientDescent(step=0.05, steps=8000, patience=None),
    "descent with momentum": cr.solvers.GradientDescent(
        step=0.02, momentum=0.8, steps=8000, patience=None
    ),
    "descent, adam": cr.solvers.GradientDescent(
        scaling="adam", schedule="cosine", step=0.5, momentum=0.9, forgetting=0.999,
        steps=3000, patience=None,
    ),
    "arrow-hurwicz": cr.solvers.ArrowHurwicz(primal_step=0.05, steps=8000, patience=None),
}  # fmt: skip
EXACT = [name for name in SOLVERS if name != "descent, adam"]
GAMMA = 30.0


@pytest.fixture(params=SOLVERS, ids=list(SOLVERS))
def solver(request):
    return SOLVERS[request.param]


@pytest.fixture
def short_solver(solver):
    """For what must hold after any number of steps: the slow solvers need not arrive."""
    return replace(solver, steps=600) if getattr(solver, "steps", 0) > 600 else solver


def test_affine_models_agree_with_scipy_and_cvxpy(solver):
    matrix, offset = models.affine()
    x0 = models.inputs(5, 6)
    weights = torch.tensor([10.0, 30.0, 20.0, 50.0], dtype=torch.float64)
    profile = cr.credibility(models.affine_classifier(), x0, weights=weights, solver=solver)
    accuracy = 1e-6 if solver in [SOLVERS[name] for name in EXACT] else 1e-4
    for n in range(len(x0)):
        x, losses = oracles.by_scipy(matrix, offset, x0[n], weights)
        again, credibility, duals = oracles.by_cvxpy(matrix, offset, x0[n], weights)
        assert torch.allclose(profile.perturbed[n], torch.as_tensor(x), atol=accuracy)
        assert torch.allclose(profile.credibility[n], -torch.as_tensor(losses), atol=accuracy)
        assert torch.allclose(profile.perturbed[n], torch.as_tensor(again), atol=accuracy)
        assert torch.allclose(profile.credibility[n], torch.as_tensor(credibility), atol=accuracy)
        assert torch.allclose(profile.multipliers[n], torch.as_tensor(duals), atol=accuracy)


def test_affine_losses_give_the_ridge_closed_form(solver):
    g = models.generator(3)
    slopes = torch.randn(3, 5, generator=g, dtype=torch.float64)
    offsets = torch.full((3,), 9.0, dtype=torch.float64)  # far from zero: losses stay positive
    weights = torch.tensor([4.0, 6.0, 9.0], dtype=torch.float64)
    x0 = torch.randn(4, 5, generator=g, dtype=torch.float64)
    clf = cr.Classifier(lambda x: x @ slopes.T + offsets, loss=cr.losses.CustomLoss(lambda z: z))
    profile = cr.credibility(clf, x0, weights=weights, solver=solver)
    accuracy = 1e-6 if solver in [SOLVERS[name] for name in EXACT] else 1e-4
    for n in range(4):
        x, losses, dual = oracles.ridge(slopes, offsets, x0[n], weights)
        assert bool((losses > 0).all())
        assert torch.allclose(profile.perturbed[n], x, atol=accuracy)
        assert torch.allclose(profile.credibility[n], -losses, atol=accuracy)
        assert torch.allclose(profile.multipliers[n], dual, atol=accuracy)


@pytest.mark.parametrize("name", EXACT)
def test_smooth_networks_are_solved_to_stationarity(name):
    clf = cr.Classifier(models.smooth_network())
    profile = cr.credibility(clf, models.inputs(), gamma=GAMMA, solver=SOLVERS[name])
    assert float(profile.certificate.relative_stationarity.max()) <= 1e-6
    assert set(profile.status) == {cr.Status.CONVERGED}


@pytest.mark.parametrize("name", EXACT)
def test_solvers_agree_with_one_another_on_smooth_networks(name):
    clf = cr.Classifier(models.smooth_network(seed=4))
    x0 = models.inputs(6, seed=5)
    one = cr.credibility(clf, x0, gamma=200.0, solver=SOLVERS[name])
    other = cr.credibility(clf, x0, gamma=200.0, solver=cr.solvers.LBFGS(tolerance=1e-10))
    assert torch.allclose(one.perturbed, other.perturbed, atol=1e-5)
    assert torch.allclose(one.credibility, other.credibility, atol=1e-5)


def test_the_decrease_holds_strictly_for_the_returned_numbers(short_solver):
    clf = cr.Classifier(models.relu_network().float())
    x0 = models.inputs(12, seed=2).float()
    for gamma in (1.0, 50.0, 1e4, 1e9):
        p = cr.credibility(clf, x0, gamma=gamma, solver=short_solver)
        before = (p.credence.double() ** 2 / gamma).sum(1)
        after = (p.credibility.double() ** 2 / gamma).sum(1)
        assert bool((p.risk.double() <= before - after).all())


def test_one_bad_row_costs_nobody_else_anything(solver):
    clf = cr.Classifier(models.smooth_network())
    good = models.inputs(4)
    bad = good.clone()
    bad[1, 3], bad[2, 0] = math.nan, math.inf
    clean = cr.credibility(clf, good, gamma=GAMMA, solver=solver)
    mixed = cr.credibility(clf, bad, gamma=GAMMA, solver=solver)
    assert mixed.status[1] == mixed.status[2] == cr.Status.NON_FINITE_INPUT
    assert bool(mixed.credibility[1:3].isnan().all())
    for n in (0, 3):
        assert torch.allclose(mixed.perturbed[n], clean.perturbed[n], atol=1e-7)
        assert mixed.status[n] == clean.status[n]


def test_chunks_and_batch_mates_do_not_change_results(solver):
    clf = cr.Classifier(models.smooth_network(seed=2))
    x0 = models.inputs(7, seed=3)
    whole = cr.credibility(clf, x0, gamma=GAMMA, solver=solver)
    for size in (1, 2, 5):
        parts = cr.credibility(clf, x0, gamma=GAMMA, solver=solver, chunk_size=size)
        assert torch.allclose(whole.perturbed, parts.perturbed, atol=1e-7)
        assert int((whole.steps - parts.steps).abs().max()) <= 1  # at the edge of the tolerance


def test_the_same_call_gives_the_same_bits(short_solver):
    clf = cr.Classifier(models.relu_network(seed=1))
    x0 = models.inputs(5, seed=8)
    first = cr.credibility(clf, x0, gamma=GAMMA, solver=short_solver)
    second = cr.credibility(clf, x0, gamma=GAMMA, solver=short_solver)
    assert torch.equal(first.perturbed, second.perturbed)
    assert torch.equal(first.passes, second.passes)


def test_bounds_are_kept_and_reached_points_are_minima_within_them(solver):
    clf = cr.Classifier(models.smooth_network(seed=6))
    x0 = models.inputs(5, seed=7).clamp(-0.5, 0.5)
    inside = cr.credibility(clf, x0, gamma=2.0, solver=solver, bounds=(-0.5, 0.5))
    assert float(inside.perturbed.min()) >= -0.5
    assert float(inside.perturbed.max()) <= 0.5
    free = cr.credibility(clf, x0, gamma=2.0, solver=solver)
    assert float(free.perturbed.abs().max()) > 0.5  # or the bounds were never felt
    check = cr.certify(clf, x0, inside.perturbed, gamma=2.0, bounds=(-0.5, 0.5))
    assert float(check.tradeoff.max()) <= 1e-3


def test_passes_are_counted_as_the_model_sees_them(solver):
    seen = {"forward": 0, "backward": 0}
    clf = counting(models.smooth_network(), seen)
    # batches of up to three are not filled up with copies, whose passes are not counted
    profile = cr.credibility(clf, models.inputs(4), gamma=GAMMA, solver=solver, chunk_size=3)
    actual = seen["forward"] / 3 + seen["backward"] * 2 / 3
    # the look at the model before the solve costs a few rows that are nobody's
    slack = 8 + 0.02 * actual
    if solver == SOLVERS["gauss-newton, free"]:
        # products J v run through the graph of the backward, which no hook on the output sees
        assert float(profile.passes.sum()) >= actual - slack
    else:
        assert abs(float(profile.passes.sum()) - actual) <= slack


def test_a_flat_model_has_no_gradient_and_says_so(solver):
    weight = torch.ones(6, 3, dtype=torch.float64, requires_grad=True)
    clf = cr.Classifier(lambda x: (0.0 * x) @ weight + torch.tensor([1.0, 2.0, 3.0]).double())
    profile = cr.credibility(clf, models.inputs(2, 6), gamma=GAMMA, solver=solver)
    assert set(profile.status) == {cr.Status.NO_GRADIENT}
    assert torch.equal(profile.perturbed, profile.x0)
    assert torch.equal(profile.credibility, profile.credence)


def test_a_model_that_breaks_away_from_x0_never_spoils_the_answer(solver):
    matrix, offset = models.affine()

    x0 = models.inputs(3, 6)

    def walled(x):
        nearest = torch.cdist(x.detach(), x0).argmin(1)
        far = (x - x0[nearest]).norm(dim=1, keepdim=True) > 0.2
        return torch.where(far, math.nan, x @ matrix.T + offset)

    profile = cr.credibility(cr.Classifier(walled), x0, gamma=10.0, solver=solver)
    assert bool(profile.credibility.isfinite().all())
    assert float(profile.risk.sqrt().max()) <= 0.2 + 1e-9
    assert bool((profile.certificate.decrease >= 0).all())
