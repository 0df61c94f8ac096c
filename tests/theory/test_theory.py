"""Statements of the paper that no single function owns, and the page that lists them all."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import credibly as cr
from credibly.model.bind import bind
from tests.reference import models

ROOT = Path(__file__).parents[2]
EXACT = cr.solvers.LBFGS(tolerance=1e-11, steps=2000)
GAMMA = 60.0


@pytest.fixture(scope="module")
def convex():
    clf = models.affine_classifier(loss="logistic")
    x0 = models.inputs(3, 6)
    return clf, cr.credibility(clf, x0, gamma=GAMMA, solver=EXACT)


def test_equation_4_the_compromise_in_terms_of_credences_alone(convex):
    clf, profile = convex
    noise = torch.randn(8, *profile.credibility.shape, generator=models.generator(5)).double()
    for step in noise:
        other = (profile.credibility + 0.1 * step).clamp(max=-1e-3)
        found = cr.theory.solve_constrained(clf, profile.x0, other)
        left = profile.risk - found.risk
        right = (other.square() - profile.credibility.square()).sum(1) / GAMMA
        reached = torch.tensor([s is cr.theory.Feasibility.SOLVED for s in found.status])
        assert bool(reached.any())
        assert bool((left <= right + 1e-5)[reached].all())


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_other_credences_are_no_fixed_point(convex, factor):
    clf, profile = convex
    other = factor * profile.credibility
    found = cr.theory.solve_constrained(clf, profile.x0, other)
    gap = (other + 0.5 * GAMMA * found.multipliers).abs().amax(1)
    assert float(gap.min()) > 0.02


def test_the_lemma_a_joint_minimiser_in_x_and_c_is_a_profile():
    clf, x0 = cr.Classifier(models.smooth_network(4, 3), loss="logistic"), models.inputs(2, 4)
    profile = cr.credibility(clf, x0, gamma=GAMMA, solver=EXACT)
    for n in range(2):
        x, c = by_slsqp(clf, x0[n])
        assert np.allclose(x, profile.perturbed[n].numpy(), atol=1e-4)
        assert np.allclose(c, profile.credibility[n].numpy(), atol=1e-4)


def by_slsqp(clf, x0):
    """Problem (P-A) over (x, c) with its constraints, by SciPy."""
    start = x0.numpy()
    size = len(start)

    def losses(v):
        with torch.no_grad():
            return clf.losses(torch.as_tensor(v[:size]).unsqueeze(0)).squeeze(0).numpy()

    first = np.concatenate([start, -losses(start)])
    found = minimize(
        lambda v: ((v[:size] - start) ** 2).sum() + (v[size:] ** 2).sum() / GAMMA,
        first,
        method="SLSQP",
        constraints=[{"type": "ineq", "fun": lambda v: -v[size:] - losses(v)}],
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    return found.x[:size], found.x[size:]


def test_proposition_2_in_the_convex_case_every_start_leads_to_the_same_profile(convex):
    clf, profile = convex
    far = profile.x0 + 5 * torch.randn(profile.x0.shape, generator=models.generator(7)).double()
    problem = cr.solvers.FitRiskProblem(bind(clf, profile.x0), torch.full((4,), GAMMA).double())
    from credibly.solve.loop import solve

    found = solve(problem, EXACT, chunk_size=8, start=far)
    assert torch.allclose(found.x, profile.perturbed, atol=1e-7)


def test_everything_the_page_names_exists():
    text = (ROOT / "docs" / "explanation" / "theory.md").read_text("utf-8")
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(tests) > 20
    for path, name in tests:
        assert f"def {name}(" in (ROOT / path).read_text("utf-8"), f"{path}::{name}"
    for name in re.findall(r"`cr\.(\w+)", text):
        assert name in cr.__all__, name
