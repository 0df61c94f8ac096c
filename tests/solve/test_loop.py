from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import credibly as cr
from credibly.model.bind import bind
from credibly.problem.fit_risk import FitRiskProblem
from credibly.solve.loop import batch_size, solve
from tests.reference import models


def problem(count=5, gamma=30.0, net=None, x0=None):
    clf = cr.Classifier(net or models.smooth_network())
    weights = torch.full((5,), gamma, dtype=torch.float64)
    return FitRiskProblem(bind(clf, models.inputs(count) if x0 is None else x0), weights)


def test_finished_samples_leave_the_batch():
    net, sizes = models.smooth_network(), []

    def counted(x):
        sizes.append(len(x))
        return net(x)

    p = problem(net=counted).select(slice(0, 3))  # so few are not filled up with copies
    solution = solve(p, cr.solvers.LBFGS(), chunk_size=3)
    assert len(set(solution.steps.tolist())) > 1, "all samples took equally long: nothing to see"
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 3
    assert sum(sizes) == int(solution.passes.sum())


def test_chunks_bound_the_batch_the_model_sees():
    net, sizes = models.smooth_network(), []

    def counted(x):
        sizes.append(len(x))
        return net(x)

    solve(problem(net=counted), cr.solvers.Hybrid(), chunk_size=2)
    assert max(sizes) == 2


def test_progress_never_falls_and_ends_at_one():
    seen = []
    solve(problem(), cr.solvers.Hybrid(), chunk_size=2, tick=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1.0)


def test_progress_is_the_share_of_the_steps_taken():
    seen = []
    slow = cr.solvers.GradientDescent(step=1e-6, steps=4, patience=None, tolerance=0.0)
    solve(problem(4), slow, chunk_size=2, tick=seen.append)
    assert seen == pytest.approx([k / 8 for k in (1, 2, 3, 4, 4, 5, 6, 7, 8, 8)])


def test_a_step_limit_is_called_so_and_returns_the_best_point():
    p = problem()
    short = solve(p, cr.solvers.GradientDescent(step=0.01, steps=3), chunk_size=5)
    assert set(short.status.tolist()) == {cr.Status.STEP_LIMIT}
    assert bool((p.objective(short.x) < p.objective(p.x0)).all())


def test_the_best_point_is_kept_when_the_iterates_get_worse():
    p = problem(gamma=1.0)
    overshooting = cr.solvers.GradientDescent(step=1.2, steps=60, patience=None)
    solution = solve(p, overshooting, chunk_size=5)
    assert bool((p.objective(solution.x) <= p.objective(p.x0)).all())


def test_kinked_networks_stall_and_say_so():
    clf = cr.Classifier(models.relu_network())
    profile = cr.credibility(clf, models.inputs(12), gamma=5.0)
    assert cr.Status.STALLED in profile.status
    stalled = torch.tensor([status is cr.Status.STALLED for status in profile.status])
    assert bool((profile.certificate.relative_stationarity[stalled] > 1e-6).all())
    assert "kink" in cr.Status.STALLED.advice


def test_the_default_is_at_least_as_good_as_its_first_stage_alone_on_kinks():
    clf = cr.Classifier(models.relu_network(seed=3))
    x0 = models.inputs(20, seed=9)
    hybrid = cr.credibility(clf, x0, gamma=5.0)
    first = cr.credibility(clf, x0, gamma=5.0, solver=cr.solvers.Hybrid().stages()[0])
    assert bool((hybrid.certificate.objective <= first.certificate.objective * (1 + 1e-12)).all())
    assert float(hybrid.certificate.objective.sum()) < float(first.certificate.objective.sum())


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: cr.solvers.LBFGS(memory=0), "memory"),
        (lambda: cr.solvers.LBFGS(steps=0), "steps"),
        (lambda: cr.solvers.LBFGS(tolerance=-1.0), "tolerance"),
        (lambda: cr.solvers.LBFGS(decrease=1.0), "decrease"),
        (lambda: cr.solvers.LBFGS(patience=0), "patience"),
        (lambda: cr.solvers.GradientDescent(step=0.0), "step"),
        (lambda: cr.solvers.GradientDescent(momentum=1.0), "momentum"),
        (lambda: cr.solvers.GradientDescent(scaling="rmsprop"), "scaling"),
        (lambda: cr.solvers.GradientDescent(schedule="linear"), "schedule"),
        (lambda: cr.solvers.GaussNewton(jacobian="sparse"), "jacobian"),
        (lambda: cr.solvers.GaussNewton(products=0), "products"),
        (lambda: cr.solvers.ArrowHurwicz(primal_step=-1.0), "primal_step"),
        (lambda: cr.solvers.ArrowHurwicz(initial="zeros"), "initial"),
        (lambda: cr.solvers.Hybrid(effort=0.0), "effort"),
    ],
)
def test_impossible_settings_are_refused_by_name(make, name):
    with pytest.raises(cr.errors.InvalidArgumentError, match=f"`{name}`"):
        make()


def test_solvers_are_immutable_values():
    solver = cr.solvers.LBFGS(memory=4)
    with pytest.raises(AttributeError):
        solver.memory = 5
    assert solver == cr.solvers.LBFGS(memory=4)
    assert "memory=4" in repr(solver)


@given(st.integers(1, 10**6))
def test_batches_shrink_to_few_sizes_and_waste_little(left):
    size = batch_size(left)
    assert left <= size <= max(left, 1.25 * left)
    assert batch_size(size) == size
    assert size <= batch_size(left + 1)


def test_different_batches_meet_the_same_sizes():
    """Whatever finishes when: between two of these sizes no other is ever asked of the model."""
    net, sizes = models.smooth_network(), []

    def counted(x):
        sizes.append(len(x))
        return net(x)

    p = problem(40, net=counted)
    solution = solve(p, cr.solvers.LBFGS(), chunk_size=40)
    assert len(set(sizes)) > 3, "nothing left early: nothing to see"
    assert set(sizes) - {40} <= {batch_size(size) for size in range(1, 40)}
    alone = [
        solve(p.select(slice(k, k + 1)), cr.solvers.LBFGS(), chunk_size=1).x
        for k in range(0, 40, 6)
    ]
    torch.testing.assert_close(solution.x[::6], torch.cat(alone), rtol=0, atol=1e-6)


class LeapThenSettle(cr.solvers.Solver):
    """A first stage that leaps far off, and one that does not."""

    def stages(self):
        return (
            *cr.solvers.GradientDescent(step=1e4, steps=5).stages(),
            *cr.solvers.LBFGS().stages(),
        )


def test_a_stage_that_left_where_the_model_is_finite_does_not_cost_the_next():
    net = models.smooth_network()
    far = lambda x: x.abs().amax(1, keepdim=True) > 50  # noqa: E731
    inside = cr.Classifier(lambda x: torch.where(far(x), torch.nan, net(x)))
    x0 = models.inputs(3)
    leap = cr.credibility(inside, x0, gamma=30.0, solver=LeapThenSettle().stages()[0])
    assert set(leap.status) == {cr.Status.NON_FINITE_MODEL}
    found = cr.credibility(inside, x0, gamma=30.0, solver=LeapThenSettle())
    expected = cr.credibility(cr.Classifier(net), x0, gamma=30.0, solver=cr.solvers.LBFGS())
    assert set(found.status) == {cr.Status.CONVERGED}
    assert torch.allclose(found.perturbed, expected.perturbed, atol=1e-6)


def without_gradients(x0, least=0.0):
    """As good a value as ever, but no gradient from a distance of 1e-3 (or of nothing) on."""
    net = models.smooth_network()

    def broken(x):
        nearest = torch.cdist(x.detach(), x0).argmin(1)
        room = 1e-3 - least - (x - x0[nearest]).norm(dim=1, keepdim=True)
        return net(x) + 0 * (room * (room > 0)).sqrt()

    return problem(net=broken, x0=x0)


def test_a_point_without_a_gradient_is_not_what_the_next_stage_starts_from():
    class TwoStages(cr.solvers.Solver):
        def stages(self):
            return (
                *cr.solvers.GradientDescent(step=0.05, steps=5).stages(),
                *cr.solvers.LBFGS().stages(),
            )

    p = without_gradients(models.inputs(2))
    found = solve(p, TwoStages(), chunk_size=2)
    assert found.status.tolist() == [cr.Status.NON_FINITE_MODEL] * 2
    assert bool((p.objective(found.x) < p.objective(p.x0)).all())
    assert found.passes.tolist() == [3.0, 3.0]  # at x0, at the better point, at NaN


def test_without_a_gradient_at_x0_nothing_is_tried():
    p = without_gradients(models.inputs(2), least=1.0)
    found = solve(p, cr.solvers.LBFGS(), chunk_size=2)
    assert found.status.tolist() == [cr.Status.NON_FINITE_MODEL] * 2
    assert found.passes.tolist() == [1.0, 1.0]
    assert found.steps.tolist() == [0, 0]
    assert torch.equal(found.x, p.x0)


def test_the_best_point_may_be_one_that_the_solver_refused():
    p = without_gradients(models.inputs(2))
    found = solve(p, cr.solvers.LBFGS(), chunk_size=2)
    assert bool((p.risk(found.x) > 1e-6).all())  # where the solver itself could not go on from


class Settled(FitRiskProblem):
    """A problem in which no gradient is left anywhere."""

    def evaluate(self, x, multipliers=None):
        return replace(super().evaluate(x, multipliers), gradient=torch.zeros_like(x))


def test_a_vanishing_gradient_is_the_goal_unless_it_is_met_at_x0():
    p = problem(2)
    p = Settled(p.variable, p.weights)
    start = p.x0.clone()
    start[1] += 0.01
    found = solve(p, cr.solvers.LBFGS(), chunk_size=2, start=start)
    assert found.status.tolist() == [cr.Status.NO_GRADIENT, cr.Status.CONVERGED]


class Stages(cr.solvers.Solver):
    """Any stages, one after the other."""

    def __init__(self, *stages):
        self.own = stages

    def stages(self):
        return self.own


SHORT = cr.solvers.GradientDescent(step=0.01, steps=3, patience=None, tolerance=0.0)


def stationarity(p, solution):
    return p.relative_stationarity(p.evaluate(solution.x))


def test_a_sample_near_enough_to_stationary_is_left_alone_by_later_stages():
    p = problem(8)
    after_one = stationarity(p, solve(p, Stages(SHORT), chunk_size=8))
    middle = float(after_one.median())
    both = solve(p, Stages(replace(SHORT, enough=middle), SHORT), chunk_size=8)
    done = after_one <= middle
    assert 0 < int(done.sum()) < 8
    assert both.steps.tolist() == [3 if one else 6 for one in done]


def test_where_the_model_looks_smooth_less_progress_is_enough_to_go_on():
    """Plain descent gains a few per cent a step: too little for half, enough for a twentieth."""
    p = problem(8)
    slow = cr.solvers.GradientDescent(step=0.02, steps=60, decrease=0.5, patience=2, tolerance=0.0)
    strict = solve(p, slow, chunk_size=8)
    lenient = solve(p, replace(slow, decrease=0.05), chunk_size=8)
    smooth = solve(p, replace(slow, smooth=0.999), chunk_size=8)
    assert bool((strict.steps < lenient.steps).any())
    assert smooth.steps.tolist() == lenient.steps.tolist()
    middle = float(stationarity(p, strict).median())  # of some samples
    some = solve(p, replace(slow, smooth=middle), chunk_size=8)
    assert bool((some.steps >= strict.steps).all())
    assert bool((some.steps <= lenient.steps).all())


@pytest.mark.parametrize(
    ("settings", "argument"), [({"enough": -1.0}, "enough"), ({"smooth": -1.0}, "smooth")]
)
def test_stationarities_of_a_stage_are_checked(settings, argument):
    with pytest.raises(cr.errors.InvalidArgumentError) as caught:
        cr.solvers.LBFGS(**settings)
    assert caught.value.argument == argument


class Waits(TorchDispatchMode):
    """Counts operations for which a CPU waits for a GPU: they need to know values."""

    NEEDS_VALUES = ("aten._local_scalar_dense", "aten.nonzero", "aten.masked_select")

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function)
        masks = name.startswith(("aten.index.Tensor", "aten.index_put")) and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        self.count += masks or name.startswith(self.NEEDS_VALUES)
        return function(*args, **(kwargs or {}))


def test_a_step_waits_for_one_number():
    p = problem(8)
    counts = []
    for steps in (10, 30):
        stage = cr.solvers.GradientDescent(step=1e-4, steps=steps, patience=None, tolerance=0.0)
        with Waits() as waits:
            assert solve(p, stage, chunk_size=8).steps.tolist() == [steps] * 8
        counts.append(waits.count)
    assert counts[1] - counts[0] == 20
