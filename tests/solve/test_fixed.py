"""The descent of fixed length: against a plain loop, its price, and what decisions make of it."""

import math
from collections import Counter

import pytest
import torch

import credibly as cr
from credibly.model.bind import bind
from credibly.problem.fit_risk import FitRiskProblem
from credibly.solve.base import likely_distance
from credibly.solve.fixed import FixedDescent
from tests.reference import models
from tests.reference.counting import counting

GAMMA = 30.0


def problem_of(count=5):
    clf = cr.Classifier(models.smooth_network())
    return FitRiskProblem(bind(clf, models.inputs(count)), torch.full((5,), GAMMA).double())


def by_hand(problem, radius, steps, length, momentum):
    """The same for one sample at a time, from the formula."""
    answers = []
    for n in range(len(problem)):
        one = problem.select(slice(n, n + 1))
        x, direction, best = one.x0, torch.zeros_like(one.x0), (math.inf, one.x0)
        for step in range(steps + 1):
            point = one.evaluate(x)
            if float(point.objective) < best[0]:
                best = (float(point.objective), x)
            direction = momentum * direction + point.gradient / point.gradient.norm()
            size = length * radius * (1 - step / steps)
            x = x - size * direction / direction.norm()
        answers.append(best[1])
    return torch.cat(answers)


@pytest.mark.parametrize(("steps", "momentum"), [(1, 0.5), (4, 0.0), (8, 0.5)])
def test_it_is_the_formula(steps, momentum):
    problem = problem_of()
    descent = FixedDescent(radius=0.4, steps=steps, length=0.8, momentum=momentum)
    _, best = descent.run(problem)
    expected = by_hand(problem, 0.4, steps, 0.8, momentum)
    torch.testing.assert_close(best.x, expected, atol=1e-10, rtol=0)


def test_a_decision_takes_nine_passes_and_says_so():
    seen = Counter()
    clf, x = counting(models.smooth_network(), seen), models.inputs(8)
    descent = cr.solvers.FixedDescent(radius=0.4)
    cr.credibility(clf, x[:4], gamma=GAMMA, solver=descent)
    four = seen["backward"]  # with the check of the model before
    seen.clear()
    profile = cr.credibility(clf, x, gamma=GAMMA, solver=descent)
    assert profile.passes.tolist() == [9.0] * 8
    assert seen["backward"] - four == 4 * 9  # four samples more, nine passes each


def test_its_numbers_are_those_of_the_point_it_returns():
    profile = cr.credibility(
        cr.Classifier(models.smooth_network()), models.inputs(16), gamma=GAMMA, effort="decide"
    )
    clf = cr.Classifier(models.smooth_network())
    torch.testing.assert_close(-profile.credibility, clf.losses(profile.perturbed))
    torch.testing.assert_close(-profile.credence, clf.losses(profile.x0))
    moved = (profile.perturbed - profile.x0).square().sum(1)
    torch.testing.assert_close(profile.risk, moved)
    before, after = ((c.square() / GAMMA).sum(1) for c in (profile.credence, profile.credibility))
    torch.testing.assert_close(profile.certificate.decrease, before - after - moved)
    assert bool((profile.certificate.decrease >= 0).all())


def test_it_comes_near_the_solution_and_ranks_alike():
    clf = cr.Classifier(models.relu_network())
    x = models.inputs(60)
    quick = cr.credibility(clf, x, gamma=GAMMA, effort="decide")
    full = cr.credibility(clf, x, gamma=GAMMA)
    ratio = quick.certificate.objective / full.certificate.objective
    assert float(ratio.median()) < 1.25
    for name in ("shift", "gain"):
        one, other = (cr.scores.SCORES[name](p) for p in (quick, full))
        ranks = torch.stack([one.argsort().argsort(), other.argsort().argsort()]).double()
        assert float(torch.corrcoef(ranks)[0, 1]) > 0.9, name


def test_one_bad_row_does_not_affect_the_others():
    clf, x = cr.Classifier(models.smooth_network()), models.inputs(4)
    bad = x.clone()
    bad[1, 0] = math.nan
    descent = cr.solvers.FixedDescent(radius=0.4)
    clean, mixed = (cr.credibility(clf, v, gamma=GAMMA, solver=descent) for v in (x, bad))
    assert mixed.status[1] is cr.Status.NON_FINITE_INPUT
    assert bool(mixed.credibility[1].isnan().all())
    rows = torch.tensor([0, 2, 3])
    torch.testing.assert_close(mixed.perturbed[rows], clean.perturbed[rows])


def test_chunks_and_bounds_are_kept():
    clf, x = cr.Classifier(models.smooth_network()), models.inputs(7).clamp(-1, 1)
    descent = cr.solvers.FixedDescent(radius=0.5)
    settings = {"gamma": GAMMA, "solver": descent, "bounds": (-1.0, 1.0)}
    whole, parts = (cr.credibility(clf, x, chunk_size=size, **settings) for size in (7, 2))
    torch.testing.assert_close(whole.perturbed, parts.perturbed)
    assert float(whole.perturbed.abs().max()) <= 1.0


def test_without_a_radius_each_sample_has_its_own_by_the_pass_at_x0():
    problem = problem_of()
    found = likely_distance(problem, problem.evaluate(problem.x0))
    for n in range(len(problem)):
        x = problem.x0[n : n + 1].clone().requires_grad_(True)
        losses = problem.variable.clf.losses(x)
        objective = losses.square().sum() / GAMMA
        (gradient,) = torch.autograd.grad(objective, x)
        before = float(objective.detach())
        q = float(gradient.square().sum()) / 4 / before
        expected = math.sqrt(before * q) / (1 + 2 * q**0.75)
        assert float(found[n]) == pytest.approx(expected, rel=1e-12)
        one = problem.select(slice(n, n + 1))
        _, own = FixedDescent(steps=4).run(one)
        _, given = FixedDescent(steps=4, radius=expected).run(one)
        torch.testing.assert_close(own.x, given.x, atol=1e-10, rtol=0)


@pytest.mark.parametrize("gamma", [3.0, 30.0, 300.0])
def test_the_likely_distance_is_about_that_of_the_solution(gamma):
    for net in (models.smooth_network(), models.relu_network()):
        clf, x = cr.Classifier(net), models.inputs(60)
        problem = FitRiskProblem(bind(clf, x), torch.full((clf.losses(x).shape[1],), gamma).to(x))
        found = likely_distance(problem, problem.evaluate(x))
        ratio = cr.credibility(clf, x, gamma=gamma).risk.sqrt() / found
        assert 0.5 < float(ratio.median()) < 2.0
        assert float(ratio.min()) > 0.25
        assert float(ratio.max()) < 4.0


def test_a_row_on_which_the_model_is_not_finite_never_moves():
    """The table look-up fails on NaN, and would take the other rows with it."""
    table = torch.linspace(0, 1, 11, dtype=torch.float64)

    def net(x):
        z = x @ torch.tensor([[2.0, -2.0], [1.0, 0.0]], dtype=torch.float64)
        place = (x[:, :1].clamp(0, 1) * 10).round().long()
        return z + table[place] + x[:, 1:].log()

    x = torch.rand(6, 2, generator=models.generator(0), dtype=torch.float64) + 0.1
    x[2, 1] = 0.0
    found = cr.credibility(cr.Classifier(net), x, gamma=5.0, effort="decide")
    assert found.status[2] is cr.Status.NON_FINITE_MODEL
    assert [s is cr.Status.STEP_LIMIT for s in found.status] == [n != 2 for n in range(6)]


def test_samples_with_nothing_to_gain_stay_where_they_are():
    """Losses that are zero at x0, and a model that is flat."""
    weight = torch.tensor([[60.0, -60.0], [0.0, 0.0]], dtype=torch.float64)
    clf, x = cr.Classifier(lambda x: x @ weight, loss=cr.losses.Hinge()), torch.ones(2, 2).double()
    profile = cr.credibility(clf, x * 0, gamma=1.0, effort="decide")
    assert bool(profile.credibility.isfinite().all())
    flat = cr.Classifier(lambda x: 0.0 * (x @ weight))
    found = cr.credibility(flat, x, gamma=1.0, effort="decide")
    assert set(found.status) == {cr.Status.NO_GRADIENT}
    assert torch.equal(found.perturbed, x)


def test_rules_refuse_profiles_of_another_effort():
    clf, x = cr.Classifier(models.smooth_network()), models.inputs(20)
    quick = cr.credibility(clf, x, gamma=GAMMA, effort="decide")
    rule = cr.SelectiveClassifier.for_coverage(clf, quick, 0.5)
    with pytest.raises(cr.errors.InvalidArgumentError, match="solver"):
        rule.decide(cr.credibility(clf, x, gamma=GAMMA))


@pytest.mark.parametrize("bad", [{"radius": 0.0}, {"steps": 0}, {"length": -1.0}, {"momentum": 1}])
def test_impossible_settings_are_refused(bad):
    with pytest.raises(cr.errors.InvalidArgumentError, match=f"`{next(iter(bad))}`"):
        cr.solvers.FixedDescent(**{"radius": 1.0, **bad})


def test_an_unknown_effort_is_refused():
    with pytest.raises(cr.errors.InvalidArgumentError, match="'solve' or 'decide'"):
        cr.credibility(cr.Classifier(torch.tanh), torch.ones(1, 3), gamma=1.0, effort="quick")
