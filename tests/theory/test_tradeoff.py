import copy

import pytest
import torch

import credibly as cr
from tests.reference import models

GAMMA = 30.0


@pytest.fixture(scope="module")
def smooth():
    clf = cr.Classifier(models.smooth_network())
    return clf, cr.credibility(clf, models.inputs(), gamma=GAMMA)


def naive_f(clf, x0, x):
    with torch.no_grad():
        losses = clf.losses(x.unsqueeze(0)).squeeze(0)
    return float((x - x0).square().sum() + losses.square().sum() / GAMMA)


def test_a_solved_profile_keeps_the_inequality_at_everything_tried(smooth):
    clf, profile = smooth
    found = cr.theory.check_tradeoff(clf, profile)
    assert bool(found.holds(tolerance=1e-12).all())
    assert set(found.margins) == {"random directions", "gradient directions", "between x0 and x+"}
    assert found.margins["random directions"].shape == (6, 48)
    assert "random directions: holds at 100.0%" in found.summary()


def test_margins_are_those_of_the_definition(smooth):
    clf, profile = smooth
    other = profile.perturbed + 0.3
    found = cr.theory.check_tradeoff(clf, profile, others={"moved": other}).margins["moved"]
    for n in range(6):
        own = naive_f(clf, profile.x0[n], profile.perturbed[n])
        there = naive_f(clf, profile.x0[n], other[n])
        assert float(found[n, 0]) == pytest.approx(there / own - 1, rel=1e-9)


def test_between_begins_at_x0_where_the_margin_is_the_decrease(smooth):
    clf, profile = smooth
    margin = cr.theory.check_tradeoff(clf, profile).margins["between x0 and x+"][:, 0]
    certificate = profile.certificate
    assert torch.allclose(margin, certificate.decrease / certificate.objective, atol=1e-9)


def test_weights_keep_their_precision():
    clf, x0 = cr.Classifier(models.smooth_network()), models.inputs()
    for gamma in (0.1, 1e-60):  # the first is rounded in single precision, the second zero
        profile = cr.credibility(clf, x0, gamma=gamma, solver=cr.solvers.LBFGS(steps=3))
        margin = cr.theory.check_tradeoff(clf, profile, others={"x0": x0}).margins["x0"][:, 0]
        certificate = profile.certificate
        expected = certificate.decrease / certificate.objective
        assert torch.allclose(margin, expected, rtol=1e-12, atol=1e-14)


def test_an_unfinished_answer_is_refuted_by_another_solvers(smooth):
    clf, profile = smooth
    early = cr.credibility(clf, profile.x0, gamma=GAMMA, solver=cr.solvers.GradientDescent(steps=2))
    found = cr.theory.check_tradeoff(clf, early, others={"default": profile.perturbed})
    assert not bool(found.holds(tolerance=1e-6).any())
    assert bool((found.margins["default"] < 0).all())
    nearby = cr.theory.check_tradeoff(clf, early)
    assert not bool(nearby.holds(tolerance=1e-6).any())  # the gradient direction sees it, too


def test_chunks_change_nothing(smooth):
    clf, profile = smooth
    whole = cr.theory.check_tradeoff(clf, profile, chunk_size=6)
    parts = cr.theory.check_tradeoff(clf, profile, chunk_size=2)
    for name, margin in whole.margins.items():
        assert torch.allclose(margin, parts.margins[name], atol=1e-12)


def test_assumption_2_holds_everywhere_for_affine_models():
    clf = models.affine_classifier()
    profile = cr.credibility(clf, models.inputs(5, 6), gamma=GAMMA)
    found = cr.theory.check_assumption_2(clf, profile, radii=(0.01, 1.0, 10.0))
    # l_k is convex and not negative, so its square is convex
    assert found.fraction.tolist() == [1.0] * 5
    assert found.by_radius.shape == (3, 5)


def test_assumption_2_is_the_papers_condition_and_fails_where_that_fails():
    def hump(x):  # the square of this loss is concave in a neighbourhood of any point near zero
        return 1 + torch.cos(x[:, :2])

    clf = cr.Classifier(hump, loss=cr.losses.CustomLoss(lambda z: z))
    x0 = torch.tensor([[0.3, 0.2], [0.1, 0.4]], dtype=torch.float64)
    profile = cr.credibility(clf, x0, gamma=1e4)
    found = cr.theory.check_assumption_2(clf, profile, directions=32, radii=(0.1, 1.0))
    assert found.fraction.tolist() == [0.0, 0.0]
    assert float(found.worst.max()) < 0
    # and by the paper's own formula, at one of the points
    x = profile.perturbed[0]
    losses, slope = 1 + torch.cos(x), -torch.sin(x)
    move = torch.tensor([1e-3, 1e-3], dtype=torch.float64)
    there = 1 + torch.cos(x + move)
    bound = losses + move * slope - (there - losses).square() / (2 * losses)
    assert not bool((there >= bound).all())


def naive_share(clf, profile, n, radius, directions):
    """How often Assumption 2 holds at the very x' that are tried, all in double precision."""
    exact = cr.Classifier(copy.deepcopy(clf.net).double())
    x, x0 = profile.perturbed[n].double(), profile.x0[n].double()

    def squares(v):
        return exact.losses(v.unsqueeze(0))[0].square()

    slopes, here = torch.func.jacrev(squares)(x).detach(), squares(x).detach()
    stream, held = torch.Generator().manual_seed(n), 0
    for _ in range(directions):
        step = torch.randn(x.shape, generator=stream, dtype=torch.float64)
        step *= radius * (x - x0).norm() / step.norm()
        tried = (x + step).to(profile.x0.dtype).double()
        held += bool((squares(tried).detach() >= here + slopes @ (tried - x)).all())
    return held / directions


@pytest.mark.parametrize("precision", [torch.float64, torch.float32])
@pytest.mark.parametrize("network", [models.smooth_network, models.relu_network])
def test_assumption_2_allows_for_the_rounding_of_the_model(network, precision):
    clf = cr.Classifier(network().to(precision).requires_grad_(False))
    profile = cr.credibility(clf, models.inputs(3).to(precision), gamma=GAMMA)
    radii = (1e-6, 1e-4, 1e-2, 0.3, 3.0)
    found = cr.theory.check_assumption_2(clf, profile, directions=20, radii=radii)
    shares = torch.tensor(
        [[naive_share(clf, profile, n, radius, 20) for n in range(3)] for radius in radii]
    ).double()
    assert bool((found.by_radius <= shares + 1e-6).all())
    assert bool((shares <= found.by_radius + found.unknown + 1e-6).all())
    assert 0 < float(shares.mean()) < 1  # both happen
    assert float(found.unknown[3:].max()) == 0
    if precision is torch.float32:
        assert float(found.unknown[0].min()) == 1  # so near nothing can be told
    else:
        assert float(found.unknown[1:].max()) == 0
        torch.testing.assert_close(found.by_radius[1:], shares[1:], rtol=0, atol=1e-6)


def test_assumption_2_says_nothing_where_nothing_moves():
    clf = models.affine_classifier()
    profile = cr.credibility(clf, models.inputs(2, 6), gamma=1e30)  # so dear that x+ is x0
    assert torch.equal(profile.perturbed, profile.x0)
    found = cr.theory.check_assumption_2(clf, profile, directions=3, radii=(0.1, 1.0))
    assert found.unknown.tolist() == [[1.0, 1.0]] * 2
    assert (found.fraction.tolist(), found.worst.tolist()) == ([0.0] * 2, [0.0] * 2)


@pytest.mark.parametrize("settings", [{"directions": 0}, {"radii": (0.1, -1.0)}])
def test_settings_are_checked(smooth, settings):
    clf, profile = smooth
    for function in (cr.theory.check_tradeoff, cr.theory.check_assumption_2):
        with pytest.raises(cr.errors.InvalidArgumentError, match=next(iter(settings))):
            function(clf, profile, **settings)


def test_others_of_another_shape_are_refused(smooth):
    clf, profile = smooth
    with pytest.raises(cr.errors.InvalidArgumentError, match="attack"):
        cr.theory.check_tradeoff(clf, profile, others={"attack": profile.x0[:3]})


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"others": [1.0]}, "^`others`.*mapping.*list"),
        ({"others": {"random directions": 0}}, "^`others`.*other than"),
        ({"others": {"a": torch.zeros(6, 2, dtype=torch.float64)}}, r"^`others\['a'\]`"),
        ({"radii": ()}, "^`radii`.*at least one"),
        ({"radii": 0.1}, r"^`radii`.*\(0.1,\)"),
        ({"seed": "a"}, "^`seed`"),
        ({"seed": 1.5}, "^`seed`"),
        ({"seed": 2**63}, "^`seed`"),
    ],
)
def test_careless_settings_are_named(smooth, settings, match):
    with pytest.raises(cr.errors.InvalidArgumentError, match=match):
        cr.theory.check_tradeoff(*smooth, **settings)


def test_what_is_not_the_profile_of_this_classifier_is_refused(smooth):
    clf, profile = smooth
    features = profile.x0[0].numel()
    for door in (cr.theory.check_tradeoff, cr.theory.check_assumption_2):
        with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`profile`.*Tensor.*Solve one"):
            door(clf, profile.x0)
        for sizes in ((features, 2), (features + 1, 5)):
            other = cr.Classifier(torch.nn.Linear(*sizes).double().eval())
            with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`clf`.*made with"):
                door(other, profile)


def test_a_sample_without_an_answer_neither_holds_nor_fails(smooth):
    clf, profile = smooth
    x0 = profile.x0.clone()
    x0[1] = torch.nan
    spoilt = cr.credibility(clf, x0, gamma=GAMMA)
    tried = cr.theory.check_tradeoff(clf, spoilt)
    assert "nan" not in tried.summary()
    assert tried.summary().count("holds at 100.0%") == 3
    found, whole = (
        cr.theory.check_assumption_2(clf, spoilt),
        cr.theory.check_assumption_2(clf, profile),
    )
    assert bool(found.fraction[1].isnan())
    assert bool(found.by_radius[:, 1].isnan().all())
    assert torch.equal(found.fraction[[0, 2]], whole.fraction[[0, 2]])
    assert "no sample has an answer" in cr.theory.check_tradeoff(clf, spoilt[1:2]).summary()


def test_assumption_2_is_not_needed_for_a_minimum(smooth):
    clf, profile = smooth
    fails = cr.theory.check_assumption_2(clf, profile, radii=(1e-4, 1e-3, 1e-2)).by_radius
    n = int(fails.sum(0).argmin())
    x = profile.perturbed[n]

    def squares(v):
        return clf.losses(v.unsqueeze(0))[0].square()

    bends = torch.func.hessian(squares)(x).detach().reshape(-1, x.numel(), x.numel())
    whole = 2 * torch.eye(x.numel()).double() + bends.sum(0) / GAMMA
    assert float(torch.linalg.eigvalsh(bends).min()) < -1e-2  # some l_k^2 bends down
    assert bool((fails[:, n] < 1).all())  # at every radius
    assert float(torch.linalg.eigvalsh(whole).min()) > 0.1  # F does not


def unfinished(bounds=None):
    """A profile short of its minimum, so that gradients are left there."""
    clf, x0 = cr.Classifier(models.smooth_network()), models.inputs(3).clamp(-1, 1)
    rough = cr.solvers.GradientDescent(steps=2, step=0.02)
    return clf, cr.credibility(clf, x0, gamma=5.0, solver=rough, bounds=bounds)


def margins_by_hand(clf, profile, others):
    """(F(x') - F(x+)) / F(x+) of one x' a sample, from the definition."""
    own, there = (
        (x - profile.x0).square().sum(1) + clf.losses(x).detach().square().sum(1) / 5.0
        for x in (profile.perturbed, others)
    )
    return (there - own) / own


def test_gradient_directions_are_up_and_down_the_objective_and_the_fit():
    clf, profile = unfinished()
    found = cr.theory.check_tradeoff(clf, profile, radii=(0.2,), directions=1).margins[
        "gradient directions"
    ]
    x = profile.perturbed.clone().requires_grad_()
    (by_fit,) = torch.autograd.grad((clf.losses(x).square() / 5.0).sum(), x)
    size = 0.2 * profile.risk.sqrt()[:, None]
    for column, slope in enumerate((by_fit + 2 * (profile.perturbed - profile.x0), by_fit)):
        move = size * slope / slope.norm(dim=1, keepdim=True)
        for k, sign in enumerate((-1, 1)):
            expected = margins_by_hand(clf, profile, profile.perturbed + sign * move)
            torch.testing.assert_close(found[:, 2 * column + k], expected)
    assert bool((found[:, 0] < 0).all()), "downhill nothing was found: nothing to see"


def test_what_lies_outside_the_bounds_is_tried_at_the_nearest_point_inside():
    clf, profile = unfinished(bounds=(-1.0, 1.0))
    far = profile.perturbed + 3.0
    found = cr.theory.check_tradeoff(clf, profile, others={"far": far}, directions=1).margins[
        "far"
    ][:, 0]
    torch.testing.assert_close(found, margins_by_hand(clf, profile, far.clamp(-1, 1)))


def test_chunks_do_not_change_what_is_tried_of_assumption_2():
    clf, profile = unfinished()
    whole, parts = (
        cr.theory.check_assumption_2(clf, profile, directions=4, chunk_size=size) for size in (3, 1)
    )
    torch.testing.assert_close(whole.worst, parts.worst, rtol=1e-6, atol=1e-15)
    assert torch.equal(whole.by_radius, parts.by_radius)
