"""Algorithm 1 as the figure `readings` runs it, against a loop, and whether it diverged."""

import math

import pytest
import torch

import credibly as cr
from experiments.paper.readings import diverged, run_algorithm_1


def linear(classes=3, features=4):
    g = torch.Generator().manual_seed(0)
    weight = torch.randn(features, classes, generator=g, dtype=torch.float64)
    return weight, cr.Classifier(lambda x: x.flatten(1) @ weight, dtype=torch.float64)


@pytest.mark.parametrize("start", ["ones", "losses"])
def test_algorithm_1_is_that_of_the_paper(start):
    weight, clf = linear()
    x0 = torch.randn(5, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    gamma, eta = 20.0, 0.01
    solver = cr.solvers.ArrowHurwicz(primal_step=eta, initial=start)
    found = run_algorithm_1(clf, x0, gamma, solver, (3, 8))

    def losses(x):
        return -(x @ weight).log_softmax(1)

    def value(x):
        return (x - x0).square().sum(1) + losses(x).square().sum(1) / gamma

    x = x0.clone()
    lam = torch.ones(5, 3).double() if start == "ones" else 2 * losses(x) / gamma
    values = [value(x)]
    for step in range(1, 9):
        p = (x @ weight).softmax(1)
        pull = (lam.sum(1, keepdim=True) * p - lam) @ weight.T
        new = x - eta * (2 * (x - x0) + pull)
        lam = (lam + (losses(x) - gamma * lam / 2) / gamma).clamp(min=0)
        x = new
        values.append(value(x))
        if step in (3, 8):
            assert torch.allclose(found[f"last c {step}"], -losses(x), atol=1e-10)
            assert torch.allclose(found[f"last F {step}"], values[-1], atol=1e-10)
            assert torch.allclose(found[f"best F {step}"], torch.stack(values).amin(0), atol=1e-10)


def test_what_ends_above_its_start_or_nowhere_diverged():
    start = torch.tensor([[-3.0, -4.0]]).repeat(5, 1)  # F = 25 / 5
    objective = torch.tensor([4.0, 5.0, 5.1, math.inf, math.nan]).double()
    assert diverged(objective, start, 5.0).tolist() == [False, False, True, True, True]


@pytest.mark.parametrize("step", [0.01, 1e3])
def test_a_step_that_is_too_long_is_seen_to_diverge(step):
    weight, clf = linear()
    x0 = torch.randn(5, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    solver = cr.solvers.ArrowHurwicz(primal_step=step, initial="ones")
    found = run_algorithm_1(clf, x0, 20.0, solver, (200,))
    start = (x0 @ weight).log_softmax(1)
    for which, expected in (("last", step > 1), ("best", False)):
        assert bool(diverged(found[f"{which} F 200"], start, 20.0).all()) == expected
