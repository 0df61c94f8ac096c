"""Spaces and nested inputs through every door, against the same problem posed by hand."""

from collections import namedtuple

import numpy as np
import pytest
import torch
from torch import nn

import credibly as cr
from credibly import Classifier, Space, bind
from credibly.errors import InvalidArgumentError
from tests.reference import models

EXACT = cr.solvers.LBFGS(tolerance=1e-11, steps=2000)
SCALE = torch.tensor([0.5, 2.0, 1.0, 0.1, 3.0, 1.5, 0.7, 1.1], dtype=torch.float64)
GAMMA = 30.0
Pair = namedtuple("Pair", ["left", "right"])  # noqa: PYI024


@pytest.fixture(scope="module")
def net():
    return models.smooth_network()


def close(left, right, tolerance=1e-8):
    return bool(torch.allclose(left, right, atol=tolerance, rtol=tolerance))


def same_profiles(left, right, *, tolerance=1e-8):
    for name in ("credibility", "credence", "risk", "multipliers"):
        assert close(getattr(left, name), getattr(right, name), tolerance), name
    return True


def test_a_scale_is_the_plain_problem_on_rescaled_inputs(net):
    x = models.inputs(5)
    inside = cr.credibility(
        Classifier(net, space=Space(scale=SCALE)), x, gamma="auto", solver=EXACT
    )
    by_hand = cr.credibility(
        Classifier(lambda u: net(u * SCALE)), x / SCALE, gamma="auto", solver=EXACT
    )
    assert inside.gamma == pytest.approx(by_hand.gamma, rel=1e-12)
    assert same_profiles(inside, by_hand)
    assert close(inside.perturbed, by_hand.perturbed * SCALE)
    assert torch.equal(inside.x0, x)
    moves = (inside.perturbed - x) / SCALE
    assert close(inside.risk, moves.square().sum(1))


def test_locked_features_stay_and_the_rest_is_a_model_of_the_rest(net):
    x, locked, free = models.inputs(1), [0, 3, 6], [1, 2, 4, 5, 7]
    x = x.expand(4, -1).clone()
    x[:, free] += models.inputs(4, 5, seed=3)

    def of_the_free(u):
        whole = x[:1].expand(len(u), -1).clone()  # the locked ones are the same in every sample
        return net(whole.index_copy(1, torch.tensor(free), u))

    inside = cr.credibility(
        Classifier(net, space=Space(locked=locked)), x, gamma="auto", solver=EXACT
    )
    by_hand = cr.credibility(Classifier(of_the_free), x[:, free], gamma="auto", solver=EXACT)
    assert inside.gamma == pytest.approx(by_hand.gamma, rel=1e-12)
    assert same_profiles(inside, by_hand)
    assert torch.equal(inside.perturbed[:, locked], x[:, locked])
    assert close(inside.perturbed[:, free], by_hand.perturbed)


def test_tied_features_are_one_dimension(net):
    x, groups = models.inputs(3), torch.tensor([0, 0, -1, -1, 0, -1, -1, -1])
    locked = [2, 3, 5, 6, 7]
    space = Space(scale=SCALE, tied=groups, locked=locked)
    inside = cr.credibility(Classifier(net, space=space), x, gamma=GAMMA, solver=EXACT)
    direction = torch.where(groups == 0, SCALE, 0.0)
    for n in range(3):
        one = Classifier(lambda t, n=n: net(x[n] + t * direction / 3**0.5))
        zero = torch.zeros(1, 1, dtype=torch.float64)
        by_hand = cr.credibility(one, zero, gamma=GAMMA, solver=EXACT)
        assert same_profiles(inside[n], by_hand)
        step = by_hand.perturbed[0, 0] * direction / 3**0.5
        assert close(inside.perturbed[n], x[n] + step)
    moves = (inside.perturbed - x) / SCALE
    assert close(inside.risk, moves.square().sum(1))
    assert close(moves[:, 0], moves[:, 1], 1e-12)
    assert close(moves[:, 0], moves[:, 4], 1e-12)


BOUNDED = [
    ({"bounds": (-0.2, 0.2)}, None),
    ({"bounds": (torch.full((8,), -0.1), SCALE), "scale": SCALE}, (-0.15, 0.3)),
    ({"tied": [0, 0, 1, 1, -1, -1, 2, 2], "bounds": (-0.2, 0.25), "scale": SCALE}, None),
    ({"locked": [0, 1], "tied": [0, 0, 0, 3, 3, -1, -1, -1]}, (-0.2, 0.2)),
]


@pytest.mark.parametrize(("settings", "bounds"), BOUNDED)
def test_bounded_answers_lie_inside_and_are_certified(net, settings, bounds):
    x = models.inputs(6).clamp(-0.1, 0.1)
    if "locked" in settings:
        x[:, 0] = 50.0  # outside of the bounds, and it does not matter
    clf = Classifier(net, space=Space(**settings))
    profile = cr.credibility(clf, x, gamma=1.0, bounds=bounds, solver=EXACT)
    free = profile.perturbed[:, len(settings.get("locked", [])) :]
    for low, high in filter(None, (settings.get("bounds"), bounds)):
        assert bool((free >= low).all())
        assert bool((free <= high).all())
    free_risk = cr.credibility(
        Classifier(net, space=Space(**{**settings, "bounds": None})), x, gamma=1.0, solver=EXACT
    )
    active = (free_risk.risk - profile.risk).abs() > 1e-6
    assert bool(active.any()), "the bounds must matter for this to be a test"
    certificate = cr.certify(clf, x, profile.perturbed, gamma=1.0, bounds=bounds)
    assert bool(certificate.holds().all())
    assert float(certificate.feasibility.max()) <= 1e-12


def test_bounds_of_a_space_are_those_of_the_argument(net):
    x = models.inputs(4).clamp(-0.1, 0.1)
    plain = cr.credibility(Classifier(net), x, gamma=1.0, bounds=(-0.2, 0.2), solver=EXACT)
    clf = Classifier(net, space=Space(bounds=(-0.2, 0.2)))
    assert same_profiles(cr.credibility(clf, x, gamma=1.0, solver=EXACT), plain)


class Mixed(nn.Module):
    """Takes a mapping: pixels, a table, numbers of words, a rate and a pair of views."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(5, 3)
        self.body = models.smooth_network(features=8, classes=4)

    def forward(self, x):
        pixels = x["pixels"].flatten(1)
        left, right = x["views"][0], x["views"][1]
        words = self.words(x["words"]) * x["rate"]
        joined = torch.cat([pixels + left, words, right + 0 * x["table"]], 1)
        return self.body(joined)


def mixed_inputs(count=5, *, as_array=False):
    g = models.generator(7)
    draw = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    table = draw(count, 1)
    return {
        "pixels": draw(count, 2, 2),
        "words": torch.randint(0, 5, (count,), generator=g),
        "views": Pair(draw(count, 4), draw(count, 1)),
        "rate": 0.5,
        "table": table.numpy() if as_array else table,
    }


@pytest.fixture(scope="module")
def mixed():
    torch.manual_seed(3)
    return Mixed().double().eval()


VARY = ("views.0", "pixels")


def test_several_leaves_move_and_the_rest_passes_through(mixed):
    x = mixed_inputs(as_array=True)
    clf = Classifier(mixed, space=Space(vary=VARY, scale={"pixels": 2.0}))
    profile = cr.credibility(clf, x, gamma=GAMMA, solver=EXACT)
    assert profile.perturbed.shape == (5, 8)
    back = bind(clf, x).inputs_at(profile.perturbed)
    assert isinstance(back["views"], Pair)
    assert torch.equal(back["views"].left, profile.perturbed[:, :4])
    assert torch.equal(back["pixels"].flatten(1), profile.perturbed[:, 4:])
    assert torch.equal(back["words"], x["words"])
    assert back["rate"] == 0.5
    with torch.no_grad():
        found = -torch.log_softmax(mixed(back), 1)
    assert close(found, -profile.credibility, 1e-12)
    risk = (back["views"].left - x["views"].left).square().sum(1)
    risk += ((back["pixels"] - x["pixels"]) / 2).square().flatten(1).sum(1)
    assert close(profile.risk, risk)

    for n in range(2):  # the same problem, one sample at a time, as a plain function

        def plain(u, n=n):
            single = {k: v[n : n + 1] for k, v in x.items() if k not in ("views", "rate", "table")}
            views = Pair(u[:, :4], x["views"].right[n : n + 1])
            table = torch.as_tensor(x["table"][n : n + 1])
            return mixed({**single, "pixels": 2 * u[:, 4:], "views": views, "rate": 0.5,
                          "table": table})  # fmt: skip

        start = torch.cat([x["views"].left[n], x["pixels"][n].flatten() / 2])[None]
        weights = torch.full((4,), GAMMA).double()
        answer = torch.cat([profile.perturbed[n, :4], profile.perturbed[n, 4:] / 2])[None]
        by_hand = cr.solvers.FitRiskProblem(bind(Classifier(plain), start), weights).evaluate(
            answer
        )
        assert float(by_hand.gradient.norm()) < 1e-7  # it is stationary by hand, too
        assert close(by_hand.losses, -profile.credibility[n : n + 1], 1e-12)


def test_one_leaf_keeps_its_shape(mixed):
    x = mixed_inputs()
    profile = cr.credibility(Classifier(mixed, space=Space(vary="pixels")), x, gamma=GAMMA)
    assert profile.perturbed.shape == (5, 2, 2)
    assert torch.equal(profile.x0, x["pixels"])


def test_nan_in_a_part_is_the_matter_of_its_sample_alone(mixed):
    clean, x = mixed_inputs(), mixed_inputs()
    x["pixels"][1, 0, 0] = torch.nan  # varies
    x["views"].right[3, 0] = torch.inf  # does not
    clf = Classifier(mixed, space=Space(vary=VARY))
    profile = cr.credibility(clf, x, gamma=GAMMA, solver=EXACT)
    assert profile.status[1] == cr.Status.NON_FINITE_INPUT
    assert profile.status[3] == cr.Status.NON_FINITE_MODEL
    others, expected = [0, 2, 4], cr.credibility(clf, clean, gamma=GAMMA, solver=EXACT)
    assert same_profiles(profile[others], expected[others])
    assert profile.usable.tolist() == [True, False, True, False, True]
    assert bool(cr.credibility(clf, x, gamma="auto").usable[0])
    x["views"].right[:] = torch.nan  # nothing left to set gamma by
    with pytest.raises(InvalidArgumentError, match=r"^`gamma`.*Pass gamma as a number"):
        cr.credibility(clf, x, gamma="auto")
    assert not bool(cr.credibility(clf, x, gamma=GAMMA).usable.any())


SPACES = {
    "scaled": Space(scale=SCALE),
    "locked": Space(locked=[1, 5], scale=SCALE),
    "tied": Space(tied=[0, 0, 0, -1, 1, 1, -1, -1], locked=[7], scale=SCALE),
}


@pytest.mark.parametrize("name", SPACES)
def test_every_door_takes_the_classifier_and_the_bound_one_alike(net, name, tmp_path):
    x, gammas = models.inputs(4), [60.0, 40.0]
    clf = Classifier(net, space=SPACES[name], loss="logistic")
    bound = bind(clf, x)
    profile = cr.credibility(clf, x, gamma=GAMMA, solver=EXACT)
    for given in (None, x, bound.values):
        assert same_profiles(cr.credibility(bound, given, gamma=GAMMA, solver=EXACT), profile)
    assert cr.auto_gamma(clf, x) == cr.auto_gamma(bound)
    paths = [cr.credibility_path(c, v, gammas, solver=EXACT) for c, v in ((clf, x), (bound, None))]
    assert close(paths[0].credibility, paths[1].credibility)
    assert close(
        paths[0].credibility[1], cr.credibility(clf, x, gamma=40.0, solver=EXACT).credibility, 1e-7
    )
    for c, v in ((clf, x), (bound, None)):
        certificate = cr.certify(c, v, profile.perturbed, gamma=GAMMA)
        assert bool(certificate.holds().all())
        assert float(certificate.relative_stationarity.max()) < 1e-9
        answer = cr.theory.solve_constrained(
            c, v, 0.5 * (profile.credibility + profile.credence) - 0.02
        )
        assert set(answer.status) == {cr.theory.Feasibility.SOLVED}
        moves = (answer.x - x) / SCALE
        assert float(answer.risk.max()) > 0
        assert close(answer.risk, moves.square().sum(1))
        locked = SPACES[name].locked_mask("", (8,))
        assert torch.equal(answer.x[:, locked], x[:, locked])
    for c in (clf, bound):
        tried = cr.theory.check_tradeoff(c, profile, others={"x0": x}, directions=4)
        assert bool(tried.holds().all())
        assert bool((tried.margins["x0"] > 0).all())
        assert (
            0 <= float(cr.theory.check_assumption_2(c, profile, directions=4).fraction.min()) <= 1
        )
    profile.save(tmp_path / "p.safetensors")
    loaded = cr.Profile.load(tmp_path / "p.safetensors")
    assert loaded.settings.space == SPACES[name].describe()
    assert torch.equal(loaded.perturbed, profile.perturbed)


@pytest.mark.parametrize("name", SPACES)
def test_the_gradient_by_the_input_is_that_of_the_solver_in_a_space(net, name):
    clf, x0, step = Classifier(net, space=SPACES[name]), models.inputs(2, seed=9), 1e-4
    direction = torch.tensor([1.0, -2.0, 0.5, 3.0, -1.0], dtype=torch.float64)
    shifts = step * torch.cat([torch.eye(8), -torch.eye(8)]).double()
    shifted = (x0[:, None] + shifts).reshape(-1, 8)
    around = cr.credibility(clf, shifted, gamma=GAMMA, solver=EXACT).credibility @ direction
    up, down = around.reshape(2, 2, 8).unbind(1)
    profile = cr.credibility(clf, x0, gamma=GAMMA, solver=EXACT)
    for c in (clf, bind(clf, x0)):
        tracked = x0.clone().requires_grad_(True)
        found = cr.attached_credibility(c, profile, x0=tracked, accuracy=1e-12, products=50)
        assert close(found.detach(), profile.credibility, 1e-10)
        (gradient,) = torch.autograd.grad((found * direction).sum(), tracked)
        assert torch.allclose(gradient, (up - down) / (2 * step), atol=1e-5)


def test_given_credences_in_a_space_are_the_plain_problem_on_rescaled_inputs(net):
    x = models.inputs(3)
    by_hand = Classifier(lambda u: net(u * SCALE), loss="logistic")
    clf = Classifier(net, loss="logistic", space=Space(scale=SCALE))
    wanted = cr.credibility(clf, x, gamma=GAMMA, solver=EXACT).credibility - 0.05
    inside = cr.theory.solve_constrained(clf, x, wanted)
    outside = cr.theory.solve_constrained(by_hand, x / SCALE, wanted)
    assert inside.status == outside.status
    assert close(inside.risk, outside.risk, 1e-6)
    assert close(inside.x, outside.x * SCALE, 1e-5)


def test_a_space_keeps_its_bounds_for_given_credences(net):
    x = models.inputs(4).clamp(-0.1, 0.1)
    wanted = cr.credibility(Classifier(net), x, gamma=20.0, bounds=(-0.2, 0.2), solver=EXACT)
    clf = Classifier(net, space=Space(bounds=(-0.2, 0.2)))
    found = cr.theory.solve_constrained(clf, x, wanted.credibility)
    assert bool((found.x.abs() <= 0.2).all())
    solved = torch.tensor([status == cr.theory.Feasibility.SOLVED for status in found.status])
    assert bool(solved.all())
    assert bool((found.risk <= wanted.risk * (1 + 1e-4)).all())
    classical = cr.theory.ClassicalArrowHurwicz(steps=50)
    rough = cr.theory.solve_constrained(clf, x, wanted.credibility, method=classical)
    assert bool((rough.x.abs() <= 0.2).all())


def test_neither_chunks_nor_company_change_anything(mixed):
    x = mixed_inputs(7)
    clf = Classifier(mixed, space=Space(vary=VARY, tied={"pixels": [[0, 0], [-1, -1]]}))
    bound = bind(clf, x)
    whole = cr.credibility(bound, gamma=GAMMA, solver=EXACT)
    assert same_profiles(cr.credibility(bound, gamma=GAMMA, solver=EXACT, chunk_size=3), whole)
    for rows in (slice(2, 5), torch.tensor([6, 0, 3]), torch.arange(7) % 2 == 0):
        part = bound.select(rows)
        assert same_profiles(cr.credibility(part, gamma=GAMMA, solver=EXACT), whole[rows])
        assert torch.equal(part.values, bound.values[rows])
        assert close(part.logits(part.start), bound.logits(bound.start)[rows], 1e-12)


def test_all_works_inside_of_inference_mode(mixed):
    x = mixed_inputs(3)
    clf = Classifier(mixed, space=Space(vary=VARY))
    expected = cr.credibility(clf, x, gamma=GAMMA, solver=EXACT)
    with torch.inference_mode():
        inside = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in x.items()}
        assert same_profiles(cr.credibility(clf, inside, gamma=GAMMA, solver=EXACT), expected)


def test_unpacking_and_picking():
    net = models.smooth_network()
    x = models.inputs(3)
    plain = cr.credibility(Classifier(net), x, gamma=GAMMA, solver=EXACT)

    def with_keywords(*, values, shift):
        return {"logits": net(values + shift)}

    def positional(values, shift):
        return (net(values + shift), "more")

    for function, inputs, vary, pick in (
        (with_keywords, {"values": x - 1, "shift": torch.ones(3, 1).double()}, "values",
         lambda found: found["logits"]),
        (positional, (x - 1, torch.ones(3, 1).double()), "0", lambda found: found[0]),
    ):  # fmt: skip
        clf = Classifier(function, space=Space(vary=vary), unpack=True, pick=pick)
        profile = cr.credibility(clf, inputs, gamma=GAMMA, solver=EXACT)
        assert same_profiles(profile, plain)
        assert close(profile.perturbed, plain.perturbed - 1)


def test_nested_inputs_need_no_space_where_only_one_part_is_floating(net):
    x = {"a": models.inputs(2), "n": torch.tensor([1, 2])}
    clf = Classifier(lambda given: net(given["a"]))
    profile = cr.credibility(clf, x, gamma=GAMMA, solver=EXACT)
    assert same_profiles(
        profile, cr.credibility(Classifier(net), x["a"], gamma=GAMMA, solver=EXACT)
    )
    assert profile.settings.space == "inputs, a"
    with pytest.raises(InvalidArgumentError, match=r"moved inputs, a.*bind\(clf, x\)"):
        cr.theory.check_tradeoff(clf, profile)
    assert bool(cr.theory.check_tradeoff(bind(clf, x), profile, directions=2).holds().all())


def refused(argument, match):
    return pytest.raises(InvalidArgumentError, match=f"(?s)^`{argument}`.*{match}")


def test_bad_input_is_refused_with_a_remedy(net, mixed):
    x, nested = models.inputs(3), mixed_inputs(3)
    clf, bound = Classifier(net, space=Space(locked=[0])), bind(Classifier(net), x)
    with refused("vary", "3 floating.*pixels.*Space"):
        bind(Classifier(mixed), {"pixels": x, "a": x, "b": x})
    with refused("vary", r"50 floating.*'4'\] and 45 more\. Stack.*torch\.stack\(x\)"):
        bind(Classifier(net), list(models.inputs(50)))
    with refused("x", r"the part 'pixels'.*one tensor without parts.*\{'pixels': x, \.\.\.\}"):
        bind(Classifier(mixed, space=Space(vary="pixels")), x)
    with refused("vary", "'pictures'.*Paths are keys"):
        bind(Classifier(mixed, space=Space(vary="pictures")), nested)
    with refused(r"x\['n'\]", "floating-point.*Convert"):
        bind(Classifier(mixed, space=Space(vary="n")), {"n": torch.ones(3, 2).long()})
    with refused(r"x\['rate'\]", "tensor"):
        bind(Classifier(mixed, space=Space(vary="rate")), nested)
    with refused("vary", "one precision.*Convert"):
        bind(Classifier(lambda v: v, space=Space(vary=["0", "1"])), (x, x.float()))
    with refused("clf", r"credibly\.Classifier\(net\)"):
        bind(net, x)
    with refused("x", r"for each sample, \(3, 8\).*variable\.select"):
        cr.credibility(bound, x[:2], gamma=1.0)
    with refused("x", "NoneType"):
        cr.credibility(Classifier(net), gamma=1.0)
    moved = x.clone()
    moved[1, 0] += 1
    with refused("x", "1 that move locked"):
        cr.certify(clf, x, moved, gamma=1.0)
    profile = cr.credibility(Classifier(mixed, space=Space(vary="pixels")), nested, gamma=1.0)
    for door in (cr.theory.check_tradeoff, cr.theory.check_assumption_2, cr.attached_credibility):
        with refused("clf", r"not bound.*bind\(clf, x\)"):
            door(Classifier(mixed, space=Space(vary="pixels")), profile)
        with refused("clf", "moved Space.*one that moves inputs"):
            door(Classifier(net), profile)
    with pytest.raises(cr.errors.ModelError, match=r"variable of 3 samples.*at 2.*select"):
        bound.logits(x[:2])


def labelled(kind):
    """A batch as loaders yield it: inputs and their labels."""
    x, labels = models.inputs(3), torch.tensor([0, 2, 1])
    return kind((x.numpy(), labels.numpy())) if kind is tuple else kind((x, labels))


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_pair_of_inputs_and_labels_is_refused(net, kind):
    with refused("x", rf"inputs alone, got a {kind.__name__} of inputs and labels.*x\[0\]"):
        cr.credibility(Classifier(net), labelled(kind), gamma=1.0)


def test_a_model_that_takes_a_pair_says_which_part_moves(net):
    x, shift = labelled(list)[0], torch.tensor([0, 1, 2])
    clf = Classifier(lambda pair: net(pair[0] + pair[1][:, None]), space=Space(vary="0"))
    found = cr.credibility(clf, (x, shift), gamma=GAMMA)
    plain = cr.credibility(Classifier(net), x + shift[:, None], gamma=GAMMA)
    assert same_profiles(found, plain)


def test_bound_values_are_the_new_inputs(net):
    """Locked features of what is passed count, and not those of what was bound."""
    x, other = models.inputs(3), models.inputs(3, seed=4)
    clf = Classifier(net, space=Space(locked=[0, 1]))
    expected = cr.credibility(clf, other, gamma=GAMMA, solver=EXACT)
    found = cr.credibility(bind(clf, x), other, gamma=GAMMA, solver=EXACT)
    assert same_profiles(found, expected)
    assert torch.equal(found.x0, other)


def test_arrays_are_taken_as_they_are(net):
    x = models.inputs(2)
    clf = Classifier(net, space=Space(scale=np.full(8, 2.0)))
    assert same_profiles(
        cr.credibility(clf, x.numpy(), gamma=GAMMA), cr.credibility(clf, x, gamma=GAMMA)
    )


def test_other_values_must_keep_the_bounds_of_the_space_too():
    clf = cr.Classifier(models.smooth_network(), space=cr.Space(bounds=(-5.0, 5.0)))
    x = models.inputs(3)
    bound = cr.bind(clf, x)
    inside = cr.credibility(bound, 0.5 * x, gamma=9.0)
    assert torch.equal(inside.perturbed, cr.credibility(clf, 0.5 * x, gamma=9.0).perturbed)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`bounds`.*3 samples outside"):
        cr.credibility(bound, x + 10, gamma=9.0)
