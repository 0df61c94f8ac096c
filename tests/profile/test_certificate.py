import numpy as np
import pytest
import torch

import credibly as cr
from credibly.profile.certificate import _minimum_on_simplex
from tests.reference import models

GAMMA = 30.0


@pytest.fixture(scope="module")
def solved():
    clf = cr.Classifier(models.smooth_network())
    return clf, cr.credibility(clf, models.inputs(), gamma=GAMMA)


def test_a_solved_profile_is_certified(solved):
    clf, profile = solved
    certificate = cr.certify(clf, profile.x0, profile.perturbed, gamma=GAMMA)
    assert bool(certificate.holds(tolerance=1e-6).all())
    assert float(certificate.fixed_point.max()) < 1e-12
    assert float(certificate.tradeoff.max()) <= 1e-12


def test_the_profile_carries_the_same_numbers_as_certify(solved):
    clf, profile = solved
    certificate = cr.certify(clf, profile.x0, profile.perturbed, gamma=GAMMA)
    for name in ("objective", "stationarity", "relative_stationarity", "decrease"):
        own = getattr(profile.certificate, name)
        assert torch.allclose(own, getattr(certificate, name), atol=1e-9)


@pytest.mark.parametrize("nudge", [0.05, -0.05])
def test_a_nudged_answer_fails(solved, nudge):
    clf, profile = solved
    moved = profile.perturbed + nudge * (profile.perturbed - profile.x0)
    assert not bool(cr.certify(clf, profile.x0, moved, gamma=GAMMA).holds().any())


def test_a_nudged_answer_fails_on_a_kinked_network_too():
    clf = cr.Classifier(models.relu_network())
    x0 = models.inputs(8)
    good = cr.credibility(clf, x0, gamma=GAMMA)
    kept = cr.certify(clf, x0, good.perturbed, gamma=GAMMA, radius=0.005)
    assert float(kept.holds().double().mean()) >= 0.9
    moved = good.perturbed + 0.1 * (good.perturbed - x0)
    assert not bool(cr.certify(clf, x0, moved, gamma=GAMMA, radius=0.005).holds().any())


def test_nudged_multipliers_fail(solved):
    clf, profile = solved
    right = cr.certify(
        clf, profile.x0, profile.perturbed, gamma=GAMMA, multipliers=profile.multipliers
    )
    assert bool(right.holds().all())
    assert float(right.slackness.max()) < 1e-9
    wrong = cr.certify(
        clf, profile.x0, profile.perturbed, gamma=GAMMA, multipliers=profile.multipliers * 1.1
    )
    assert not bool(wrong.holds().any())
    low = cr.certify(
        clf, profile.x0, profile.perturbed, gamma=GAMMA, multipliers=profile.multipliers * 0.9
    )
    assert float(low.feasibility.min()) > 0  # smaller multipliers promise smaller losses


def test_the_untouched_input_is_not_a_profile(solved):
    clf, profile = solved
    certificate = cr.certify(clf, profile.x0, profile.x0, gamma=GAMMA)
    assert float(certificate.decrease.abs().max()) < 1e-12
    assert torch.allclose(certificate.relative_stationarity, torch.ones(6).double())
    assert float(certificate.tradeoff.min()) > 1e-3
    assert not bool(certificate.holds().any())


def test_answers_outside_the_bounds_are_not_feasible(solved):
    clf, profile = solved
    x0 = profile.x0.clamp(-0.5, 0.5)
    free = cr.credibility(clf, x0, gamma=2.0).perturbed
    outside = (free.abs() > 0.5).any(1)
    assert bool(outside.any())
    certificate = cr.certify(clf, x0, free, gamma=2.0, bounds=(-0.5, 0.5))
    assert not bool(certificate.holds()[outside].any())
    assert bool((certificate.feasibility[outside] > 0).all())


def test_chunks_do_not_change_what_is_tried():
    clf = cr.Classifier(models.relu_network())
    x0 = models.inputs(7)
    x = x0 + 0.1
    whole = cr.certify(clf, x0, x, gamma=GAMMA, gradient_samples=4)
    parts = cr.certify(clf, x0, x, gamma=GAMMA, gradient_samples=4, chunk_size=2)
    assert torch.allclose(whole.tradeoff, parts.tradeoff, atol=1e-10)
    assert torch.allclose(whole.hull, parts.hull, atol=1e-8)


@pytest.mark.parametrize(
    "settings",
    [
        {"chunk_size": 0},
        {"probes": -3},
        {"gradient_samples": 1.5},
        {"bounds": (5, 1)},
        {"radius": 0.0},
        {"radius": -0.1},
        {"radius": float("nan")},
    ],
)
def test_impossible_settings_are_refused(solved, settings):
    clf, profile = solved
    with pytest.raises(cr.errors.InvalidArgumentError, match=f"`{next(iter(settings))}`"):
        cr.certify(clf, profile.x0, profile.perturbed, gamma=GAMMA, **settings)


def test_gradients_sampled_around_a_kink_hold_zero_in_their_hull():
    # F = |x - x0|^2 + (1 + |x_1|)^2 / w has its minimum on the kink x_1 = 0
    clf = cr.Classifier(lambda x: x, loss=cr.losses.CustomLoss(lambda z: 1 + z.abs(), kinked=True))
    x0 = torch.tensor([[0.3, 5.0]], dtype=torch.float64)
    w = torch.tensor([1.0, 1e6], dtype=torch.float64)
    best = torch.tensor([[0.0, 5.0]], dtype=torch.float64)
    on_kink = cr.certify(clf, x0, best, weights=w, gradient_samples=30, radius=1e-3)
    beside = cr.certify(clf, x0, best + 0.1, weights=w, gradient_samples=30, radius=1e-3)
    assert float(on_kink.hull) < 1e-4
    assert float(beside.hull) > 0.1


def test_the_shortest_vector_of_a_hull_is_found():
    points = torch.tensor([[[2.0, 1.0], [2.0, -3.0], [5.0, 0.0]]], dtype=torch.float64)
    shares = _minimum_on_simplex(points @ points.mT)
    assert torch.allclose(shares.sum(1), torch.ones(1).double())
    assert torch.allclose((shares @ points[0])[0], torch.tensor([2.0, 0.0]).double(), atol=1e-6)


def test_shapes_and_signs_are_checked(solved):
    clf, profile = solved
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`x`.*each sample, \(6, 8\)"):
        cr.certify(clf, profile.x0, profile.perturbed[:2], gamma=GAMMA)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`multipliers`"):
        cr.certify(
            clf, profile.x0, profile.perturbed, gamma=GAMMA, multipliers=-profile.multipliers
        )
    with pytest.raises(cr.errors.InvalidArgumentError, match="`multipliers`"):
        cr.certify(
            clf, profile.x0, profile.perturbed, gamma=GAMMA, multipliers=profile.multipliers[:, :2]
        )


def test_credences_a_user_brings_are_held_to_what_they_claim(solved):
    clf, profile = solved
    earned = cr.certify(
        clf, profile.x0, profile.perturbed, gamma=GAMMA, credences=profile.credibility
    )
    own = cr.certify(clf, profile.x0, profile.perturbed, gamma=GAMMA)
    assert torch.allclose(earned.objective, own.objective, atol=1e-12)
    assert bool(earned.holds(tolerance=1e-6).all())
    boast, modest = (
        cr.certify(
            clf, profile.x0, profile.perturbed, gamma=GAMMA, credences=profile.credibility * factor
        )
        for factor in (0.9, 1.1)
    )
    losses = -profile.credibility
    assert torch.allclose(boast.feasibility, 0.1 * losses.amax(1))
    assert float(modest.feasibility.max()) == 0.0
    assert float(modest.slackness.min()) > 0.0  # the multipliers of c leave the constraints slack
    assert not bool(boast.holds().any() | modest.holds().any())


def test_credences_and_multipliers_that_do_not_belong_together_miss_the_fixed_point(solved):
    clf, profile = solved
    certificate = cr.certify(
        clf, profile.x0, profile.perturbed, gamma=GAMMA, credences=profile.credibility,
        multipliers=2 * profile.multipliers,
    )  # fmt: skip
    expected = (-profile.credibility).amax(1)
    assert torch.allclose(certificate.fixed_point, expected, atol=1e-9)


def test_the_answer_of_the_constrained_problem_is_certified_with_its_multipliers():
    clf, x0 = cr.Classifier(models.smooth_network(), loss="logistic"), models.inputs(3)
    exact = cr.credibility(
        clf, x0, gamma=60.0, solver=cr.solvers.LBFGS(tolerance=1e-11, steps=2000)
    )
    found = cr.theory.solve_constrained(clf, x0, exact.credibility)
    certificate = cr.certify(
        clf, x0, found.x, gamma=60.0, credences=exact.credibility, multipliers=found.multipliers
    )
    assert bool(certificate.holds(tolerance=1e-3).all())


@pytest.mark.parametrize("wrong", [torch.full((6, 5), 0.1), torch.zeros(6, 4), torch.zeros(6)])
def test_credences_of_the_wrong_sign_or_shape_are_refused(solved, wrong):
    clf, profile = solved
    with pytest.raises(cr.errors.InvalidArgumentError, match="`credences`"):
        cr.certify(clf, profile.x0, profile.perturbed, gamma=GAMMA, credences=wrong)


@pytest.mark.parametrize("seed", [2**63, -(2**64), 1.5, "a", None, True])
def test_a_seed_that_torch_cannot_take_is_refused(seed):
    clf, x = cr.Classifier(models.smooth_network()), models.inputs(2)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`seed`.*a whole number from"):
        cr.certify(clf, x, x, gamma=30.0, seed=seed)


def test_the_largest_seeds_and_those_of_numpy_are_taken():
    clf, x = cr.Classifier(models.smooth_network()), models.inputs(3)
    answer = cr.credibility(clf, x, gamma=30.0, solver=cr.solvers.LBFGS(steps=2)).perturbed
    for seed in (2**63 - 1, -(2**63), np.uint8(255)):
        made = cr.certify(clf, x, answer, gamma=30.0, seed=seed, chunk_size=1)
        again = cr.certify(clf, x, answer, gamma=30.0, seed=int(seed))
        assert torch.allclose(
            made.tradeoff, again.tradeoff, rtol=1e-9
        )  # other chunks round otherwise
