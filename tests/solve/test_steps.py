"""Single steps and rules of stopping, each against another implementation or a closed form."""

import math

import pytest
import torch

import credibly as cr
from credibly.model.bind import bind
from credibly.problem.fit_risk import FitRiskProblem, Point
from credibly.solve.base import reach, rounding_of
from credibly.solve.lbfgs import Memory, _direction, _pair, _shorter
from credibly.solve.linear import conjugate_gradients
from credibly.solve.loop import _prefer_converged, _StoppingRule, solve
from tests.reference import models


def problem(count=3, gamma=30.0, bounds=None):
    clf = cr.Classifier(models.smooth_network())
    weights = torch.full((5,), gamma, dtype=torch.float64)
    return FitRiskProblem(bind(clf, models.inputs(count)), weights, bounds)


def iterates(solver, p, steps):
    state = solver.begin(p, p.evaluate(p.x0))
    found = []
    for _ in range(steps):
        state = solver.advance(p, state)
        found.append(state.point.x)
    return found


def torch_iterates(p, make, schedule, steps):
    """The same descent by an optimiser of torch, for one sample."""
    x = p.x0.clone().requires_grad_()
    optimiser = make([x])
    lengths = schedule(optimiser)
    found = []
    for _ in range(steps):
        optimiser.zero_grad()
        losses = p.variable.clf.losses(x)
        ((x - p.x0).square().sum() + (losses.square() / p.weights).sum()).backward()
        optimiser.step()
        lengths.step()
        found.append(x.detach().clone())
    return found


def cosine(steps):
    return lambda optimiser: torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)


def test_plain_descent_is_torchs_with_momentum_and_cosine():
    p = problem(1)
    solver = cr.solvers.GradientDescent(steps=12, step=0.07, momentum=0.6, schedule="cosine")
    expected = torch_iterates(
        p, lambda v: torch.optim.SGD(v, lr=0.07, momentum=0.6), cosine(12), steps=12
    )
    for mine, other in zip(iterates(solver, p, 12), expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-12)


def test_adams_scaling_is_torchs_in_units_of_the_likely_distance():
    p = problem(1)
    point = p.evaluate(p.x0)
    likely = min(0.25 * math.sqrt(float(point.objective)), 0.5 * float(point.gradient.norm()))
    length = 0.3 * 2 * likely / math.sqrt(8)
    solver = cr.solvers.GradientDescent(
        steps=12, step=0.3, momentum=0.5, forgetting=0.8, scaling="adam", schedule="cosine"
    )
    expected = torch_iterates(
        p, lambda v: torch.optim.Adam(v, lr=length, betas=(0.5, 0.8), eps=0.0), cosine(12), 12
    )
    for mine, other in zip(iterates(solver, p, 12), expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4 * length)


def test_features_whose_gradients_are_only_rounding_stay_where_they_are():
    matrix = models.affine()[0].clone()
    matrix[:, 0] *= 1e-12  # seen by the gradient, but as noise
    clf, x0 = cr.Classifier(lambda x: x @ matrix.T), models.inputs(2, 6)
    p = FitRiskProblem(bind(clf, x0), torch.full((4,), 20.0).double())
    moved = iterates(cr.solvers.GradientDescent(scaling="adam", step=0.2), p, 1)[0] - x0
    assert float(moved[:, 0].abs().max()) < 1e-4 * float(moved[:, 1:].abs().min())


def test_a_bound_that_holds_a_feature_leaves_no_momentum_behind():
    p = problem(2, gamma=2.0, bounds=(-0.5, 0.5))
    p = FitRiskProblem(bind(p.variable.clf, p.x0.clamp(-0.5, 0.5)), p.weights, p.bounds)
    point = p.evaluate(p.x0)
    held = ~p.free(point)
    assert bool(held.any()), "no bound is felt: nothing to see"
    state = cr.solvers.GradientDescent(step=0.1, momentum=0.5)
    state = state.advance(p, state.begin(p, point))
    assert torch.equal(state.mean, 0.5 * point.gradient.masked_fill(held, 0.0))


def point_of(objective, gradient=1.0, x=0.0):
    rows = torch.as_tensor(objective, dtype=torch.float64)
    fill = torch.ones(len(rows), 2, dtype=torch.float64)
    return Point(x * fill, fill, rows, gradient * fill)


def test_the_likely_distance_is_the_one_moved_or_the_smaller_guess():
    p = problem(3)
    near = FitRiskProblem(bind(p.variable.clf, torch.zeros(2, 2).double()), p.weights)
    # sqrt(F) / 4 = 1 and |gradient| / 2 = sqrt(2) / 2 * g
    assert reach(near, point_of([16.0, 16.0], 10.0)).tolist() == [1.0, 1.0]
    assert reach(near, point_of([16.0, 16.0], 0.1)).tolist() == pytest.approx([0.05 * 2**0.5] * 2)
    assert reach(near, point_of([16.0, 16.0], 10.0, 3.0)).tolist() == pytest.approx(
        [3 * 2**0.5] * 2
    )
    assert rounding_of(point_of([3.0])).tolist() == [12 * torch.finfo(torch.float64).eps]


class Residuals(cr.solvers.GradientDescent):
    """A stage whose residual is told by the losses of the point."""

    def residual(self, _problem, state):
        return state.point.losses[:, 0]


def judged(stage, pairs, stuck=False):  # noqa: FBT002
    """Verdicts along pairs of objective and residual, from an objective of 100."""
    rule, found = _StoppingRule.of(stage, point_of([100.0])), []
    for objective, residual in pairs:
        state = stage.begin(problem(1), problem(1).evaluate(problem(1).x0))
        at = point_of([objective])
        at = Point(at.x, residual * at.losses, at.objective, at.gradient)
        object.__setattr__(state, "point", at)
        object.__setattr__(state, "stuck", torch.tensor([stuck]))
        found.append(cr.Status(int(rule.judge(problem(1), state))))
    return found


RUN, STALL = cr.Status.RUNNING, cr.Status.STALLED


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        # the first residual counts as progress; then two idle steps are one too few
        ([(100, 1.0), (100, 1.0), (100, 1.0), (100, 1.0)], [RUN, RUN, RUN, STALL]),
        # a fall of a tenth in sum counts, however slowly it came
        ([(100, 1.0), (96, 1.0), (93, 1.0), (90, 1.0), (89, 1.0)], [RUN] * 5),
        # less than a tenth since the last progress does not
        ([(100, 1.0), (96, 1.0), (93, 1.0), (91, 1.0)], [RUN, RUN, RUN, STALL]),
        # a halved residual counts, in sum as well
        ([(100, 1.0), (100, 0.8), (100, 0.6), (100, 0.5), (100, 0.5)], [RUN] * 5),
        ([(100, 1.0), (100, 0.9), (100, 0.8), (100, 0.6)], [RUN, RUN, RUN, STALL]),
        # what came in between starts the count again
        ([(100, 1.0), (100, 1.0), (100, 1.0), (80, 1.0), (80, 1.0), (80, 1.0)], [RUN] * 6),
        ([(100, 1e-3)], [cr.Status.CONVERGED]),
        ([(math.nan, 1e-3)], [cr.Status.NON_FINITE_MODEL]),
    ],
)
def test_a_sample_ends_by_the_rule_that_the_page_states(pairs, expected):
    stage = Residuals(decrease=0.1, patience=3, tolerance=1e-3)
    assert judged(stage, pairs) == expected


def test_a_sample_that_is_stuck_has_stalled_unless_it_has_converged():
    stage = Residuals(patience=None, tolerance=1e-3)
    assert judged(stage, [(100, 1.0)], stuck=True) == [STALL]
    assert judged(stage, [(100, 1e-4)], stuck=True) == [cr.Status.CONVERGED]


def test_without_a_tolerance_it_is_the_root_of_the_precision():
    root = torch.finfo(torch.float64).eps ** 0.5
    assert judged(Residuals(), [(100, 0.9 * root)]) == [cr.Status.CONVERGED]
    assert judged(Residuals(), [(100, 1.1 * root)]) == [RUN]


def test_the_stationary_point_is_taken_only_where_it_is_as_good():
    best, current = point_of([1.0, 1.0, 1.0]), point_of([1.0 + 1e-9, 1.01, 1.0 + 1e-9], x=1.0)
    verdict = torch.tensor([cr.Status.CONVERGED, cr.Status.CONVERGED, cr.Status.STALLED])
    taken = _prefer_converged(best, current, verdict)
    assert taken.x[:, 0].tolist() == [1.0, 0.0, 0.0]


def test_a_start_of_its_own_stays_with_its_sample_across_chunks():
    p = problem(5)
    start = p.x0 + 0.1 * torch.arange(5).double()[:, None]
    one = cr.solvers.GradientDescent(steps=1, step=1e-9)
    found = solve(p, one, chunk_size=2, start=start)
    torch.testing.assert_close(found.x, start, rtol=0, atol=1e-6)


def test_steps_of_finished_samples_are_not_counted():
    # of 12 samples in a batch of sizes 12, 10, 8, ... some wait for others after they ended
    p = problem(12)
    together = solve(p, cr.solvers.LBFGS(), chunk_size=12)
    alone = [solve(p.select(slice(k, k + 1)), cr.solvers.LBFGS(), chunk_size=1) for k in range(12)]
    assert together.steps.tolist() == [int(one.steps) for one in alone]
    assert len(set(together.steps.tolist())) > 1


def test_a_shorter_step_is_the_minimum_of_the_parabola_within_a_tenth_and_a_half():
    # F = 8 - 4 t + c t^2 along the step of length 1, of which the minimum is 2 / c
    old = point_of([8.0] * 4)
    trial = point_of([8.0 - 4.0 + c for c in (5.0, 8.0, 100.0)] + [math.inf])
    length, slope = torch.ones(4).double(), torch.full((4,), -4.0).double()
    assert _shorter(length, old, trial, slope).tolist() == pytest.approx([0.4, 0.25, 0.1, 0.1])
    # and where the parabola has its minimum beyond the middle, or none, the middle
    beyond = point_of([8.0 - 4.0 + 2.5] * 4)
    assert _shorter(length, old, beyond, slope).tolist() == pytest.approx([0.5] * 4)


def test_pairs_without_curvature_are_lifted_to_a_tenth_of_the_risks():
    old = Point(*(torch.zeros(2, k).double() for k in (2, 1)), torch.ones(2).double(),
                torch.zeros(2, 2).double())  # fmt: skip
    new = Point(torch.tensor([[1.0, 2.0]] * 2).double(), old.losses, old.objective,
                torch.tensor([[-3.0, 1.0], [3.0, 1.0]]).double())  # fmt: skip
    step, change = _pair(old, new)
    assert (step * change).sum(1).tolist() == pytest.approx([0.2 * 5, 5.0])
    assert torch.equal(change[1], new.gradient[1])


def test_the_first_step_is_two_fifths_of_the_likely_distance_downhill():
    p = problem(3)
    point = p.evaluate(p.x0)
    direction = _direction(p, point, Memory.empty(p.x0, 4))
    torch.testing.assert_close(direction.norm(dim=1), 0.4 * reach(p, point))
    cosines = torch.cosine_similarity(direction, -point.gradient)
    torch.testing.assert_close(cosines, torch.ones(3).double())


def test_a_step_that_gains_less_than_armijo_asks_is_refused_and_shortened():
    p = problem(2)
    state = cr.solvers.LBFGS().begin(p, p.evaluate(p.x0))
    uphill = -state.direction
    object.__setattr__(state, "direction", uphill)
    after = cr.solvers.LBFGS().advance(p, state)
    assert torch.equal(after.point.x, p.x0)
    assert torch.equal(after.direction, uphill)
    assert bool((after.length < 1).all())
    assert after.trials.tolist() == [1.0, 1.0]
    assert after.memory.count.tolist() == [0, 0]
    for _ in range(10):
        after = cr.solvers.LBFGS().advance(p, after)
    assert after.stuck.tolist() == [False, False]
    assert cr.solvers.LBFGS().advance(p, after).stuck.tolist() == [True, True]


def test_conjugate_gradients_solve_stop_and_count_products():
    g = torch.Generator().manual_seed(0)
    a = torch.randn(3, 6, 6, generator=g, dtype=torch.float64)
    a = a @ a.mT + torch.eye(6)
    right = torch.randn(3, 6, generator=g, dtype=torch.float64)
    calls = []

    def matrix(v):
        calls.append(v)
        return (a @ v.unsqueeze(2)).squeeze(2)

    exact = torch.linalg.solve(a, right)
    found, used = conjugate_gradients(matrix, right, most=50, accuracy=1e-10)
    torch.testing.assert_close(found, exact, rtol=1e-8, atol=1e-8)
    assert used == len(calls)
    calls.clear()
    rough, used = conjugate_gradients(matrix, right, most=50, accuracy=0.05)
    left = (right - (a @ rough.unsqueeze(2)).squeeze(2)).norm(dim=1) / right.norm(dim=1)
    assert float(left.max()) <= 0.05
    assert used == len(calls) < 8
    assert conjugate_gradients(matrix, right, most=2, accuracy=0.0)[1] == 2


def test_conjugate_gradients_stop_where_the_matrix_is_not_positive():
    signs = torch.tensor([[1.0, 1.0], [-1.0, -1.0]]).double()
    right = torch.ones(2, 2).double()
    found, _ = conjugate_gradients(lambda v: signs * v, right, most=5, accuracy=1e-9)
    assert found.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    # the first direction is fine, the second is not, and no third is tried
    bent = torch.tensor([[3.0, 1.0, -1.0]]).double()
    found, _ = conjugate_gradients(
        lambda v: bent * v, torch.ones(1, 3).double(), most=9, accuracy=0
    )
    assert found.tolist() == [[1.0, 1.0, 1.0]]
