"""The descent of fixed length: against a plain loop, its price, and what decisions make of it."""

import math
from collections import Counter

import pytest
import torch

import credibly as cr
from credibly.model.bind import bind
from credibly.problem.fit_risk import FitRiskProblem
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
    clf, x = counting(models.smooth_network(), seen), models.inputs(6)
    descent = cr.solvers.FixedDescent(radius=0.4)
    cr.credibility(clf, x[:1], gamma=GAMMA, solver=descent)
    one = seen["backward"]  # with the check of the model before
    seen.clear()
    profile = cr.credibility(clf, x, gamma=GAMMA, solver=descent)
    assert profile.passes.tolist() == [9.0] * 6
    assert seen["backward"] - one == 5 * 9  # five samples more, nine passes each


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


def test_a_radius_of_few_inputs_is_said_with_what_to_do():
    clf, x = cr.Classifier(models.smooth_network()), models.inputs(20)
    x[4:] = torch.nan  # these tell nothing
    with pytest.warns(
        cr.errors.CrediblyWarning, match=r"found from 4 inputs.*FixedDescent\(radius"
    ):
        cr.credibility(clf, x, gamma=GAMMA, effort="decide")
    cr.credibility(clf, x, gamma=GAMMA, solver=cr.solvers.FixedDescent(radius=0.5))  # no warning


def test_the_search_for_the_radius_keeps_the_size_of_chunks():
    sizes, net = [], models.smooth_network()
    clf = cr.Classifier(lambda x: sizes.append(len(x)) or net(x))
    x = models.inputs(30)
    found = cr.credibility(clf, x, gamma=GAMMA, effort="decide", chunk_size=3)
    assert max(sizes) == 3
    whole = cr.credibility(clf, x, gamma=GAMMA, effort="decide")
    torch.testing.assert_close(found.credibility, whole.credibility)


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
