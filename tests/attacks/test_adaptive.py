from dataclasses import replace

import pytest
import torch

import credibly as cr
from credibly.decide.scores import predicted_ratio, ratio
from credibly.model.bind import bind
from credibly.model.derivatives import gradient_of
from tests.reference import models, oracles

EXACT = cr.solvers.LBFGS(tolerance=1e-12, steps=2000)
SHORT = cr.solvers.LBFGS(steps=25)
WEIGHTS = torch.tensor([40.0, 60.0, 50.0, 30.0, 70.0], dtype=torch.float64)


def setting(count=8, net=None, solver=SHORT, **settings):
    clf = cr.Classifier(net or models.smooth_network())
    x = models.inputs(count)
    system = cr.attacks.System(
        decision="profile", weights=tuple(WEIGHTS.tolist()), solver=solver, **settings
    )
    labels = system.judge(clf, x, torch.zeros(count, dtype=torch.long)).classes
    return clf, x, labels, system


ATTACKS = {
    "bpda": lambda **s: cr.attacks.BPDA(**s, solver=cr.solvers.LBFGS(steps=12)),
    "implicit, full": lambda **s: cr.attacks.ImplicitGradient(**s, solver=SHORT),
    "implicit, outputs": lambda **s: cr.attacks.ImplicitGradient(
        **s, solver=SHORT, curvature="outputs"
    ),
    "unrolled": lambda **s: cr.attacks.Unrolled(**s, length=8, rate=0.1),
    "unrolled, short": lambda **s: cr.attacks.Unrolled(**s, length=1, rate=0.3),
    "gauss-newton": cr.attacks.Surrogate,
    "gradient": lambda **s: cr.attacks.Surrogate(**s, step="gradient"),
    "inverse": cr.attacks.InverseMap,
    "square": lambda **s: cr.attacks.Square(**{**s, "steps": 3 * s["steps"]}),
}


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("name", ATTACKS)
def test_it_lowers_the_margin_of_the_deployed_system_inside_the_ball(name, norm):
    clf, x, labels, system = setting()
    bounds = (float(x.min()), float(x.max()))
    eps = 0.3 if norm == "linf" else 0.7
    attack = ATTACKS[name](eps=eps, norm=norm, steps=6, system=system, bounds=bounds)
    found = attack(clf, x, labels)
    shift = (found - x).flatten(1)
    length = shift.abs().amax(1) if norm == "linf" else shift.norm(dim=1)
    assert float(length.max()) <= eps
    assert float(found.min()) >= bounds[0]
    assert float(found.max()) <= bounds[1]
    before, after = (system.judge(clf, v, labels) for v in (x, found))
    assert not bool(before.success.any())
    assert float(after.margin.mean()) < 0.5 * float(before.margin.mean())
    assert bool(after.success.any())


@pytest.mark.parametrize("name", ["bpda", "gauss-newton", "square", "inverse"])
def test_batch_mates_and_chunks_change_nothing(name):
    clf, x, labels, system = setting(4, solver=cr.solvers.LBFGS(steps=10))
    settings = {"eps": 0.3, "steps": 2, "restarts": 2, "system": system}
    together = ATTACKS[name](**settings)(clf, x, labels)
    chunked = ATTACKS[name](**settings, chunk_size=3)(clf, x, labels)
    assert torch.allclose(together, chunked, atol=1e-6)
    alone = ATTACKS[name](**settings)(clf, x[3:4], labels[3:4])
    assert torch.allclose(together[3:4], alone, atol=1e-6)


def deployed_margin(clf, system, label):
    return lambda v: float(system.judge(clf, v[None], label[None]).margin)


@pytest.mark.parametrize("seed", [0, 3])
def test_the_implicit_gradient_is_that_of_the_deployed_margin(seed):
    clf, x, labels, system = setting(2, models.smooth_network(seed=seed), solver=EXACT)
    attack = cr.attacks.ImplicitGradient(
        eps=0.3, system=system, solver=EXACT, products=60, accuracy=1e-12
    )
    task = attack._task(clf, x, labels, None)
    values, found = gradient_of(clf, x, attack.objective(task))
    assert torch.allclose(values, system.judge(clf, x, labels).margin, atol=1e-9)
    for n in range(len(x)):
        margin = deployed_margin(clf, system, labels[n])
        assert torch.allclose(
            found[n], oracles.finite_difference(margin, x[n], step=1e-4), atol=1e-5
        )


def test_the_implicit_gradient_of_a_targeted_and_a_rejection_aware_goal():
    clf, x, labels, system = setting(2, solver=EXACT, score=ratio, threshold=0.9, aware=True,
                                     confidence=10.0, hinge=3.0)  # fmt: skip
    attack = cr.attacks.ImplicitGradient(
        eps=0.3, system=system, solver=EXACT, products=60, accuracy=1e-12
    )
    target = (labels + 2) % 5
    task = attack._task(clf, x, labels, target)
    _, found = gradient_of(clf, x, attack.objective(task))
    for n in range(len(x)):
        expected = oracles.finite_difference(
            lambda v, n=n: float(
                system.judge(clf, v[None], labels[n : n + 1], target=target[n : n + 1]).goal
            ),
            x[n],
            step=1e-4,
        )
        assert torch.allclose(found[n], expected, atol=1e-5)


@pytest.mark.parametrize("decision", ["model", "profile"])
@pytest.mark.parametrize("aware", [True, False])
def test_the_goal_of_an_attack_is_that_of_the_system_it_is_on(decision, aware):
    # this score needs both c0 and c+, and the classes of the two systems are not always the same
    clf, x = cr.Classifier(models.relu_network()), models.inputs(40)
    labels = torch.arange(40) % 5
    system = cr.attacks.System(
        decision=decision, gamma=5.0, solver=SHORT, score=predicted_ratio, threshold=0.4,
        aware=aware,
    )  # fmt: skip
    attack = cr.attacks.BPDA(eps=0.3, system=system, solver=SHORT)
    values, _ = gradient_of(clf, x, attack.objective(attack._task(clf, x, labels, None)))
    torch.testing.assert_close(values, system.judge(clf, x, labels).goal, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bounds", [None, (-1.0, 1.0)])
@pytest.mark.parametrize(
    "make",
    [
        lambda **s: cr.attacks.Unrolled(**s, length=5, rate=0.1),
        cr.attacks.Surrogate,
        lambda **s: cr.attacks.Surrogate(**s, step="gradient"),
    ],
)
def test_unrolled_and_one_step_surrogates_are_differentiated_exactly(make, bounds):
    clf, x, labels, system = setting(2, bounds=bounds)
    attack = make(eps=0.3, system=system)
    objective = attack.objective(attack._task(clf, x, labels, None))
    _, found = gradient_of(clf, x, objective)
    for n in range(len(x)):

        def value(v, n=n):
            whole = x.clone()
            whole[n] = v
            return float(gradient_of(clf, whole, objective)[0][n])

        assert torch.allclose(found[n], oracles.finite_difference(value, x[n]), atol=1e-6)


def test_the_unrolled_point_is_that_of_plain_descent():
    clf, x, _, system = setting(3)
    attack = cr.attacks.Unrolled(eps=0.1, system=system, length=7, rate=0.05)
    problem = cr.solvers.FitRiskProblem(bind(clf, x), WEIGHTS)
    expected = x
    for _ in range(7):
        expected = expected - 0.05 * problem.evaluate(expected).gradient
    moved, credibility = attack.attached(clf, x.clone().requires_grad_(True), WEIGHTS)
    assert torch.allclose(moved, expected, atol=1e-12)
    assert torch.allclose(credibility, -clf.losses(expected), atol=1e-12)


def test_one_gauss_newton_step_is_the_ridge_solution():
    clf, x, _, system = setting(3)
    moved, _ = cr.attacks.Surrogate(eps=0.1, system=system).attached(
        clf, x.clone().requires_grad_(True), WEIGHTS
    )
    for n in range(3):
        slopes = torch.autograd.functional.jacobian(lambda v: clf.losses(v[None])[0], x[n])
        offsets = clf.losses(x[n : n + 1])[0] - slopes @ x[n]
        expected, _, _ = oracles.ridge(slopes, offsets, x[n], WEIGHTS)
        assert torch.allclose(moved[n], expected, atol=1e-10)


def test_bpda_takes_the_gradient_at_the_moved_point():
    clf, x, labels, system = setting(3, solver=EXACT)
    attack = cr.attacks.BPDA(eps=0.3, system=system, solver=EXACT)
    _, found = gradient_of(clf, x, attack.objective(attack._task(clf, x, labels, None)))
    moved = cr.credibility(clf, x, weights=WEIGHTS, solver=EXACT).perturbed
    for n in range(3):

        def margin(v, n=n):
            c = -clf.losses(v[None])[0]
            rest = torch.cat([c[: labels[n]], c[labels[n] + 1 :]])
            return float((c[labels[n]] - rest.max()).detach())

        assert torch.allclose(found[n], oracles.finite_difference(margin, moved[n]), atol=1e-6)


def test_planted_points_are_what_the_deployed_solver_finds():
    clf, x, labels, system = setting(6, solver=EXACT)
    attack = cr.attacks.InverseMap(
        eps=50.0, system=system, steps=30, reach=(0.02,)
    )  # nothing is cut
    task = attack._task(clf, x, labels, None)
    planted = attack._planted(task, 1.0)
    asked = attack.run(task)[0]
    found = cr.credibility(clf, asked, weights=WEIGHTS, solver=EXACT).perturbed
    assert float((found - planted).abs().amax(1).median()) < 1e-6
    wrong = clf.logits(planted).argmax(1) != labels
    assert float(wrong.double().mean()) > 0.5
    assert float((system.judge(clf, asked, labels).success == wrong).double().mean()) > 0.8


def test_points_are_planted_in_as_many_steps_as_told():
    clf, x, labels, system = setting(3)
    for steps in (1, 5):
        attack = cr.attacks.InverseMap(eps=0.4, system=system, steps=steps, norm="l2")
        task = attack._task(clf, x, labels, None)
        plain = cr.attacks.PGD(eps=0.8, norm="l2", steps=steps, loss="goal", keep="best")
        own = replace(task, ball=plain._task(clf, x, labels, None).ball)
        assert torch.equal(attack._planted(task, 0.8), plain.run(own)[0])
    assert cr.attacks.InverseMap(eps=0.4, system=system).reach == (1.0, 2.0, 4.0, 8.0)


def test_samples_that_cannot_be_solved_do_not_stop_the_others():
    clf, x, labels, system = setting(4, models.relu_network())
    x[1, 2] = torch.inf
    found = cr.attacks.ImplicitGradient(eps=0.2, system=system, steps=3)(clf, x, labels)
    assert torch.equal(found[1], x[1])
    assert bool((found[[0, 2, 3]] != x[[0, 2, 3]]).any(1).all())


REJECTION = {
    "pgd": lambda **s: cr.attacks.PGD(**s, loss="goal", steps=10, keep="best"),
    "bpda": lambda **s: cr.attacks.BPDA(**s, steps=8, solver=cr.solvers.LBFGS(steps=8)),
    "implicit": lambda **s: cr.attacks.ImplicitGradient(
        **s, steps=5, solver=cr.solvers.LBFGS(steps=12)
    ),
    "gauss-newton": lambda **s: cr.attacks.Surrogate(**s, steps=8),
    "square": lambda **s: cr.attacks.Square(**s, steps=12),
}


@pytest.mark.parametrize("inner", REJECTION)
def test_a_rejection_aware_attack_gets_answers_that_are_wrong(inner):
    clf, x, _, _ = setting(8, models.relu_network())
    labels = clf.logits(x).argmax(1)
    solver = cr.solvers.LBFGS(steps=12)
    system = cr.attacks.System.ranked(score=predicted_ratio, gamma=50.0, solver=solver)
    system = system.calibrated(clf, x, coverage=0.75)
    clean = system.judge(clf, x, labels)
    assert float(clean.accepted.double().mean()) == 0.75
    assert not bool(clean.success.any())
    attack = REJECTION[inner](eps=0.6, system=system)
    aware = cr.attacks.RejectionAware(attack, system.threshold, system.score)
    assert aware.attack.system.aware
    plain, knowing = (system.judge(clf, a(clf, x, labels), labels) for a in (attack, aware))
    assert int(knowing.success.sum()) >= max(2, int(plain.success.sum()))
    assert torch.equal(knowing.success, knowing.accepted & (knowing.classes != labels))


def test_a_rejection_aware_attack_brings_its_own_threshold_and_weights():
    clf, x, labels, _ = setting(3)
    inner = cr.attacks.PGD(
        eps=0.2, steps=2, restarts=2, loss="goal", system=cr.attacks.System(gamma=20.0)
    )
    aware = cr.attacks.RejectionAware(inner, 0.3, ratio, hinge=2.0, confidence=0.5)
    assert aware.attack.system == cr.attacks.System(
        gamma=20.0, score=ratio, threshold=0.3, aware=True, hinge=2.0, confidence=0.5
    )
    assert aware._unaware == cr.attacks.System(
        gamma=20.0, score=ratio, threshold=0.3, aware=False, hinge=2.0, confidence=0.5
    )
    plain = cr.attacks.RejectionAware(inner, 0.3, ratio).attack.system
    assert (plain.hinge, plain.confidence) == (1.0, 1.0)
    target = (labels + 1) % 5
    wanted, free = (aware.all_restarts(clf, x, labels, target=t) for t in (target, None))
    assert torch.equal(wanted, aware.attack.all_restarts(clf, x, labels, target=target))
    assert wanted.shape == (2, *x.shape)
    assert not torch.equal(wanted, free)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: cr.attacks.BPDA(eps=0.1, solver="short"), "solver"),
        (lambda: cr.attacks.ImplicitGradient(eps=0.1), "system"),
        (lambda: cr.attacks.InverseMap(eps=0.1), "system"),
        (
            lambda: cr.attacks.Unrolled(eps=0.1, system=cr.attacks.System(gamma=1.0), length=0),
            "length",
        ),
        (
            lambda: cr.attacks.Unrolled(eps=0.1, system=cr.attacks.System(gamma=1.0), rate=-1.0),
            "rate",
        ),
        (
            lambda: cr.attacks.Surrogate(
                eps=0.1, system=cr.attacks.System(gamma=1.0), step="newton"
            ),
            "step",
        ),
        (
            lambda: cr.attacks.ImplicitGradient(
                eps=0.1, system=cr.attacks.System(gamma=1.0), curvature="no"
            ),
            "curvature",
        ),
        (
            lambda: cr.attacks.InverseMap(eps=0.1, system=cr.attacks.System(gamma=1.0), reach=()),
            "reach",
        ),
        (lambda: cr.attacks.Square(eps=0.1, share=0.0), "share"),
        (lambda: cr.attacks.TransferAPGD(eps=0.1), "bounds"),
        (lambda: cr.attacks.TransferAPGD(eps=0.1, bounds=(0.0, 1.0), kinds=("fab",)), "kinds"),
        (lambda: cr.attacks.RejectionAware("pgd", 0.1, ratio), "inner"),
        (lambda: cr.attacks.RejectionAware(cr.attacks.PGD(eps=0.1), 0.1, ratio), "gamma"),
        (lambda: cr.attacks.System(decision="vote"), "decision"),
        (lambda: cr.attacks.System(decision="profile"), "gamma"),
        (lambda: cr.attacks.System(gamma="auto"), "gamma"),
        (lambda: cr.attacks.System(threshold=0.5), "score"),
        (lambda: cr.attacks.System(aware=True), "threshold"),
    ],
)
def test_bad_settings_are_refused(make, name):
    with pytest.raises(cr.errors.InvalidArgumentError, match=f"`{name}`"):
        make()


@pytest.mark.parametrize("unsolved", [0, 1, 3])
@pytest.mark.parametrize("coverage", [0.05, 0.5, 0.7, 1.0])
def test_a_calibrated_system_answers_the_share_that_was_asked_for(coverage, unsolved):
    clf, x, _, _ = setting(10)
    x[2 : 2 + unsolved] = torch.nan  # these have no score and are never answered
    system = cr.attacks.System.ranked(score=ratio, gamma=50.0, solver=SHORT)
    system = system.calibrated(clf, x, coverage=coverage)
    accepted = system.judge(clf, x, torch.zeros(10, dtype=torch.long)).accepted
    assert int(accepted.sum()) == min(10 - unsolved, max(1, round(10 * coverage)))
    assert system.threshold == float(ratio(system.profile(clf, x))[accepted].min())


def test_calibrating_needs_a_score():
    clf, x, _, system = setting(3)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`coverage`"):
        system.calibrated(clf, x)
    ranked = cr.attacks.System.ranked(score=ratio, gamma=50.0, solver=SHORT)
    with pytest.raises(cr.errors.InvalidArgumentError, match="3 inputs, none of them"):
        ranked.calibrated(clf, x * torch.nan)
    for share in (0.0, 1.1):
        with pytest.raises(cr.errors.InvalidArgumentError, match="`coverage`"):
            ranked.calibrated(clf, x, coverage=share)
