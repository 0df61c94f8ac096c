from dataclasses import replace

import pytest
import torch

import credibly as cr
from credibly import attached_credibility
from credibly.model.bind import bind
from credibly.profile.implicit import attached_answer
from tests.reference import models, oracles

EXACT = cr.solvers.LBFGS(tolerance=1e-12, steps=2000)
WEIGHTS = torch.tensor([40.0, 60.0, 50.0, 30.0, 70.0], dtype=torch.float64)
DIRECTION = torch.tensor([1.0, -2.0, 0.5, 3.0, -1.0], dtype=torch.float64)


def solved(net, x0, weights=WEIGHTS):
    return cr.credibility(cr.Classifier(net), x0, weights=weights, solver=EXACT)


def along(profile):
    return float((profile.credibility * DIRECTION).sum())


def test_the_gradient_by_the_input_is_that_of_the_solver():
    net, x0 = models.smooth_network(), models.inputs(3)
    tracked = x0.clone().requires_grad_(True)
    c = attached_credibility(
        cr.Classifier(net), solved(net, x0), x0=tracked, accuracy=1e-12, products=50
    )
    (c * DIRECTION).sum().backward()
    for n in range(3):
        expected = oracles.finite_difference(
            lambda v: along(solved(net, v.unsqueeze(0))), x0[n], step=1e-4
        )
        assert torch.allclose(tracked.grad[n], expected, atol=1e-5)


def test_the_gradient_by_the_weights_is_that_of_the_solver():
    net, x0 = models.smooth_network(seed=3), models.inputs(2, seed=4)
    tracked = WEIGHTS.clone().requires_grad_(True)
    c = attached_credibility(
        cr.Classifier(net), solved(net, x0), weights=tracked, accuracy=1e-12, products=50
    )
    (c * DIRECTION).sum().backward()
    expected = oracles.finite_difference(lambda w: along(solved(net, x0, w)), WEIGHTS, step=1e-3)
    assert torch.allclose(tracked.grad, expected, atol=1e-5)


def test_the_gradient_by_the_parameters_is_that_of_the_solver():
    net, x0 = models.smooth_network(seed=5), models.inputs(2, seed=6)
    c = attached_credibility(cr.Classifier(net), solved(net, x0), accuracy=1e-12, products=50)
    (c * DIRECTION).sum().backward()
    for layer, place in ((0, (1, 2)), (2, (3, 4)), (4, (0, 5))):
        weight = net[layer].weight
        found = float(weight.grad[place])
        values, step = [], 1e-4
        for sign in (1, -1):
            with torch.no_grad():
                weight[place] += sign * step
            values.append(along(solved(net, x0)))
            with torch.no_grad():
                weight[place] -= sign * step
        assert found == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-5)


def test_the_values_are_those_of_the_profile():
    net, x0 = models.smooth_network(), models.inputs(3)
    profile = solved(net, x0)
    assert torch.allclose(
        attached_credibility(cr.Classifier(net), profile), profile.credibility, atol=1e-12
    )


def test_a_piecewise_linear_network_gives_finite_gradients():
    net, x0 = models.relu_network(), models.inputs(4)
    clf = cr.Classifier(net)
    tracked = x0.clone().requires_grad_(True)
    attached_credibility(clf, cr.credibility(clf, x0, gamma=30.0), x0=tracked).sum().backward()
    assert bool(tracked.grad.isfinite().all())
    assert bool((tracked.grad != 0).any(1).all())


def test_other_inputs_weights_and_unsolved_samples_are_refused():
    net, x0 = models.smooth_network(), models.inputs(3)
    clf, profile = cr.Classifier(net), solved(net, x0)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`x0`"):
        attached_credibility(clf, profile, x0=x0[:2])
    with pytest.raises(cr.errors.InvalidArgumentError, match="`weights`"):
        attached_credibility(clf, profile, weights=WEIGHTS[:3])
    broken = x0.clone()
    broken[1, 1] = torch.nan
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`profile`.*1 that were not"):
        attached_credibility(clf, cr.credibility(clf, broken, gamma=30.0))


def gradient_by_input(clf, profile, curvature, **settings):
    tracked = profile.x0.clone().requires_grad_(True)
    c = attached_credibility(clf, profile, x0=tracked, curvature=curvature, **settings)
    (c * DIRECTION).sum().backward()
    return tracked.grad


def test_without_curvature_of_its_own_the_model_needs_only_that_of_the_outputs():
    clf = models.affine_classifier(classes=5)
    x0 = models.inputs(4, 6)
    profile = cr.credibility(clf, x0, weights=WEIGHTS, solver=EXACT)
    found = gradient_by_input(clf, profile, "outputs")
    full = gradient_by_input(clf, profile, "full", products=60, accuracy=1e-13)
    assert torch.allclose(found, full, atol=1e-9)
    expected = oracles.finite_difference(
        lambda v: along(
            cr.credibility(clf, v.unsqueeze(0), weights=WEIGHTS, solver=EXACT)
        ), x0[0], step=1e-4,
    )  # fmt: skip
    assert torch.allclose(found[0], expected, atol=1e-5)


def test_inside_a_linear_piece_of_a_relu_network_both_forms_agree_with_the_solver():
    clf = cr.Classifier(models.relu_network())
    planted = models.inputs(4, seed=9)
    problem = cr.solvers.FitRiskProblem(bind(clf, planted), WEIGHTS)
    # any x is the profile point of x0 = x + grad h(x), where F is stationary by construction
    x0 = planted + problem.evaluate(planted).gradient / 2
    profile = cr.credibility(clf, x0, weights=WEIGHTS, solver=EXACT)
    profile = replace(profile, perturbed=planted)
    found = gradient_by_input(clf, profile, "outputs")
    full = gradient_by_input(clf, profile, "full", products=60, accuracy=1e-13)
    assert torch.allclose(found, full, atol=1e-8)


def test_on_a_curved_model_the_outputs_alone_are_an_approximation():
    net, x0 = models.smooth_network(), models.inputs(3)
    clf, profile = cr.Classifier(net), solved(net, x0)
    rough = gradient_by_input(clf, profile, "outputs")
    full = gradient_by_input(clf, profile, "full", products=60, accuracy=1e-13)
    gap = float((rough - full).norm() / full.norm())
    assert 1e-4 < gap < 0.5


def test_the_kind_of_curvature_is_checked():
    net, x0 = models.smooth_network(), models.inputs(1)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`curvature`"):
        attached_credibility(cr.Classifier(net), solved(net, x0), curvature="gauss")


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"products": 0}, "^`products`"),
        ({"products": "many"}, "^`products`"),
        ({"accuracy": "high"}, "^`accuracy`"),
        ({"x0": models.inputs(2).numpy()}, "^`x0`.*ndarray"),
        ({"x0": models.inputs(2).float()}, r"^`x0`.*float32"),
        ({"x0": models.inputs(2) + 1}, r"^`x0`.*other values, by up to 1.*solve again"),
        ({"weights": [1.0] * 5}, "^`weights`.*list"),
        ({"weights": WEIGHTS + 1}, "^`weights`.*other values"),
    ],
)
def test_a_gradient_where_nothing_was_solved_is_refused(settings, match):
    net, x0 = models.smooth_network(), models.inputs(2)
    with pytest.raises(cr.errors.InvalidArgumentError, match=match):
        attached_credibility(cr.Classifier(net), solved(net, x0), **settings)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`profile`"):
        attached_credibility(cr.Classifier(net), x0)


def test_another_network_of_the_same_shape_is_refused():
    profile = solved(models.smooth_network(), models.inputs(2))
    other = cr.Classifier(models.smooth_network(seed=8))
    for use in (attached_credibility, cr.theory.check_tradeoff, cr.theory.check_assumption_2):
        with pytest.raises(cr.errors.InvalidArgumentError, match="`clf`"):
            use(other, profile)


SCALE = torch.tensor([0.5, 2.0, 1.0, 3.0, 0.7, 1.3, 1.0, 0.2], dtype=torch.float64)
SPACES = {
    "no space": None,
    "a metric": cr.Space(scale=SCALE),
    "a metric and a lock": cr.Space(scale=SCALE, locked=[2]),
    "bounds of its own": cr.Space(bounds=(-0.55, 0.6)),
}


def inside(count, seed=11):
    """Inputs strictly inside of bounds that some coordinates of x+ will reach."""
    return models.inputs(count, seed=seed).clamp(-0.5, 0.5)


def bounded(net, x0, space=None, weights=WEIGHTS):
    bounds = None if space is not None and space.bounds is not None else (-0.55, 0.6)
    clf = cr.Classifier(net, space=space)
    return cr.credibility(clf, x0, weights=weights, solver=EXACT, bounds=bounds)


def held(profile):
    return ((profile.perturbed - 0.6).abs() < 1e-12) | ((profile.perturbed + 0.55).abs() < 1e-12)


@pytest.mark.parametrize("space", list(SPACES.values()), ids=list(SPACES))
def test_what_a_bound_holds_does_not_move(space):
    net, x0 = models.smooth_network(), inside(3)
    weights = 0.1 * WEIGHTS  # cheap enough to move that bounds are met
    profile = bounded(net, x0, space, weights)
    share = float(held(profile).double().mean())
    assert 0.05 < share < 0.9
    clf = cr.Classifier(net, space=space)
    found = gradient_by_input(clf, profile, "full", products=60, accuracy=1e-13)
    step = 1e-5 * torch.eye(8, dtype=torch.float64)
    for n in range(3):
        both = bounded(net, torch.cat([x0[n] + step, x0[n] - step]), space, weights)
        ahead, behind = (both.credibility @ DIRECTION).chunk(2)
        assert torch.allclose(found[n], (ahead - behind) / 2e-5, atol=2e-5)
    if space is None or not space.locked:
        assert float(found[held(profile)].abs().max()) < 1e-12


def test_gradients_by_weights_and_parameters_know_of_active_bounds():
    net, x0, weights = models.smooth_network(seed=3), inside(2), 0.1 * WEIGHTS
    profile = bounded(net, x0, None, weights)
    assert bool(held(profile).any())
    tracked = weights.clone().requires_grad_(True)
    c = attached_credibility(
        cr.Classifier(net), profile, weights=tracked, accuracy=1e-13, products=60
    )
    (c * DIRECTION).sum().backward()
    expected = oracles.finite_difference(
        lambda w: along(bounded(net, x0, None, w)), weights, step=1e-4
    )
    assert torch.allclose(tracked.grad, expected, atol=1e-5)
    weight, place, values, step = net[2].weight, (3, 4), [], 1e-5
    for sign in (1, -1):
        with torch.no_grad():
            weight[place] += sign * step
        values.append(along(bounded(net, x0, None, weights)))
        with torch.no_grad():
            weight[place] -= sign * step
    assert float(weight.grad[place]) == pytest.approx(
        (values[0] - values[1]) / (2 * step), abs=1e-5
    )


def test_both_forms_agree_on_active_bounds_without_curvature_of_the_model():
    clf, x0 = models.affine_classifier(classes=5), models.inputs(4, 6).clamp(-0.5, 0.5)
    profile = cr.credibility(clf, x0, weights=0.1 * WEIGHTS, solver=EXACT, bounds=(-0.55, 0.6))
    assert bool(held(profile).any())
    found = gradient_by_input(clf, profile, "outputs")
    full = gradient_by_input(clf, profile, "full", products=60, accuracy=1e-13)
    assert torch.allclose(found, full, atol=1e-9)


def test_bounds_that_nothing_reaches_change_nothing():
    net, x0 = models.smooth_network(), models.inputs(3)
    wide = cr.credibility(
        cr.Classifier(net), x0, weights=WEIGHTS, solver=EXACT, bounds=(-99.0, 99.0)
    )
    clf = cr.Classifier(net)
    assert torch.allclose(
        gradient_by_input(clf, wide, "full"), gradient_by_input(clf, solved(net, x0), "full"),
        atol=1e-9,
    )  # fmt: skip


def test_tied_features_on_a_bound_are_refused():
    net, x0 = models.smooth_network(), inside(3)
    space = cr.Space(tied=[0, 0, 0, 0, -1, -1, -1, -1])
    profile = bounded(net, x0, space, 0.01 * WEIGHTS)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`profile`.*tied.*on a bound"):
        attached_credibility(cr.Classifier(net, space=space), profile)


@pytest.mark.parametrize("space", [None, cr.Space(scale=torch.linspace(0.5, 2.0, 8))])
def test_what_the_move_costs_is_attached_too(space):
    net, x0 = models.smooth_network(seed=8), models.inputs(2, seed=9)
    clf = cr.Classifier(net, space=space)

    def risk(v):
        made = cr.credibility(clf, v, weights=WEIGHTS, solver=EXACT)
        return float(made.perturbed.sub(v).square().sum())

    tracked = x0.clone().requires_grad_(True)
    profile = cr.credibility(clf, x0, weights=WEIGHTS, solver=EXACT)
    moved, _ = attached_answer(clf, profile, x0=tracked, accuracy=1e-12, products=50)
    (moved - tracked).square().sum().backward()
    for n in range(2):
        expected = oracles.finite_difference(lambda v: risk(v.unsqueeze(0)), x0[n], step=1e-4)
        assert torch.allclose(tracked.grad[n], expected, atol=1e-5)
        assert float(expected.abs().max()) > 1e-3


def steep_where_large(x):
    """Two logits, so steep above 5 that the identity is lost beside the curvature there."""
    return torch.where(x[:, :1] > 5, 1e12 * x, x)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_singular_sample_gets_no_gradient_and_costs_the_others_nothing(classes):
    clf = cr.Classifier(steep_where_large, dtype=torch.float64)
    x = models.inputs(3, classes, seed=4).clamp(-1, 1)
    profile = cr.credibility(clf, x, gamma=2.0, solver=EXACT)
    alone = profile[[0, 2]]
    steep = 6 + 1e-12 * torch.arange(classes, dtype=torch.float64)  # logits of no size that rounds
    moved = torch.stack([profile.perturbed[0], steep, profile.perturbed[2]])
    spoilt = replace(profile, perturbed=moved)

    def gradient(made, rows):
        tracked = made.x0.clone().requires_grad_(True)
        c = attached_credibility(clf, made, x0=tracked, curvature="outputs")
        c[rows, 0].sum().backward()
        return tracked.grad

    everyone = gradient(spoilt, [0, 1, 2])
    assert bool(everyone[1].isnan().all())
    assert torch.allclose(everyone[[0, 2]], gradient(alone, [0, 1]), atol=1e-12)
    assert bool(gradient(spoilt, [0, 2])[1].eq(0).all())  # left out, it has none


def test_a_singular_sample_does_not_cost_what_all_samples_share():
    scale = torch.ones(1, dtype=torch.float64, requires_grad=True)
    space = cr.Space(locked=[0])
    clf = cr.Classifier(lambda x: scale * steep_where_large(x), dtype=torch.float64, space=space)
    x = models.inputs(3, 3, seed=4).clamp(-1, 1)
    x[1] = 6 + 1e-12 * torch.arange(3, dtype=torch.float64)
    profile = cr.credibility(clf, x, gamma=2.0, solver=EXACT)
    profile = replace(profile, codes=torch.full_like(profile.codes, cr.Status.STALLED))

    def gradients(made):
        tracked = made.x0.clone().requires_grad_(True)
        w = torch.full((3,), 2.0, dtype=torch.float64, requires_grad=True)
        c = attached_credibility(clf, made, x0=tracked, weights=w, curvature="outputs")
        return torch.autograd.grad(c[:, 0].sum(), (tracked, w, scale))

    x_all, w_all, scale_all = gradients(profile)
    x_rest, w_rest, _ = gradients(profile[[0, 2]])
    assert bool(x_all[1].isnan().all())  # also of what is locked: it acts through the rest
    assert torch.allclose(x_all[[0, 2]], x_rest, atol=1e-12)
    assert torch.allclose(w_all, w_rest, atol=1e-12)  # with x+ fixed, weights do nothing
    assert float(w_rest.abs().max()) > 1e-3
    assert bool(scale_all.isfinite())


def test_a_system_that_rounding_has_eaten_gives_no_number():
    matrix = models.affine(features=6, classes=5)[0].float()
    clf = cr.Classifier(lambda x: x @ matrix.T, dtype=torch.float32)
    x0 = models.inputs(2, 6).float()
    for weights, expected in ((1.0, True), (1e-12, False)):
        profile = cr.credibility(clf, x0, gamma=weights, solver=cr.solvers.LBFGS(steps=3))
        tracked = x0.clone().requires_grad_(True)
        attached_credibility(clf, profile, x0=tracked, curvature="outputs").sum().backward()
        assert bool(tracked.grad.isfinite().all()) is expected
        assert bool(tracked.grad.isnan().all()) is not expected


@pytest.mark.parametrize("curvature", ["full", "outputs"])
def test_a_training_step_in_half_precision_solves_its_system_in_full(curvature):
    net, x0 = models.smooth_network().float(), models.inputs(3).float()
    clf = cr.Classifier(net)
    profile = cr.credibility(clf, x0, gamma=50.0)

    def gradient():
        tracked = x0.clone().requires_grad_(True)
        c = attached_credibility(clf, profile, x0=tracked, curvature=curvature)
        (c * DIRECTION.float()).sum().backward()
        return tracked.grad

    expected = gradient()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = gradient()
    assert torch.allclose(found, expected, atol=0.05 * float(expected.abs().max()))


def test_no_more_products_are_used_than_were_asked_for():
    clf, x0 = cr.Classifier(models.smooth_network()), models.inputs(2)
    profile = cr.credibility(clf, x0, gamma=2.0, solver=cr.solvers.LBFGS(tolerance=1e-11))
    exact = gradient_by_input(clf, profile, "full", products=60, accuracy=1e-13)
    errors = [
        float((gradient_by_input(clf, profile, "full", products=k, accuracy=0.0) - exact).norm())
        for k in (1, 3, 8)
    ]
    assert errors[0] > 2 * errors[1] > 1e3 * errors[2]
