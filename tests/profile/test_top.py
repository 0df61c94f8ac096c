"""Profiles of the most probable classes: against a model that returns added probabilities."""

import pytest
import torch

import credibly as cr
from credibly.decide import scores
from tests.reference import models

CLASSES, GAMMA = 30, 2.0
NET = models.smooth_network(classes=CLASSES, seed=4)
CLF = cr.Classifier(NET)
X = 2 * models.inputs(7)


def explicit(kept):
    """One sample's model, which returns log probabilities of the kept classes and of the rest."""

    def model(x):
        p = NET(x).softmax(1)
        rest = [k for k in range(CLASSES) if k not in kept]
        return torch.cat([p[:, kept], p[:, rest].sum(1, keepdim=True)], dim=1).log()

    return cr.Classifier(model)


def most_probable(top):
    return (-NET(X).detach()).argsort(1)[:, :top].tolist()


@pytest.mark.parametrize("top", [1, 3])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"solver": cr.solvers.LBFGS()},
        {"solver": cr.solvers.GaussNewton(steps=5)},
        {"solver": cr.solvers.GaussNewton(steps=5, jacobian="free")},
        {"solver": cr.solvers.FixedDescent(radius=0.8)},
        {"bounds": (-7.41, 5.86)},
    ],
    ids=lambda settings: str(*settings.values()) or "default",
)
def test_a_profile_is_that_of_the_explicit_model(settings, top):
    found = cr.credibility(CLF, X, gamma=GAMMA, top=top, **settings)
    assert found.kept.tolist() == most_probable(top)
    for row, kept in enumerate(found.kept.tolist()):
        expected = cr.credibility(explicit(kept), X[row : row + 1], gamma=GAMMA, **settings)
        for name in ("credibility", "credence", "risk", "multipliers", "perturbed"):
            one, other = getattr(found, name)[row], getattr(expected, name)[0]
            assert torch.allclose(one, other, rtol=1e-5, atol=1e-5), name
        for name in ("objective", "decrease"):
            one, other = (getattr(p.certificate, name) for p in (found, expected))
            assert torch.allclose(one[row], other[0], rtol=1e-6, atol=1e-7), name
        assert found.status[row] is expected.status[0]


def test_to_decide_takes_nine_passes_over_the_joined_problem_too():
    found = cr.credibility(CLF, X, gamma=GAMMA, top=3, effort="decide")
    solved = cr.credibility(CLF, X, gamma=GAMMA, top=3)
    assert set(found.passes.tolist()) == {9.0}
    assert torch.equal(found.kept, solved.kept)
    ratio = found.certificate.objective / solved.certificate.objective
    assert float(ratio.median()) < 1.1


def test_the_automatic_gamma_is_that_of_the_joined_losses():
    energies = []
    for row, kept in enumerate(most_probable(3)):
        model = explicit(kept)
        rows = torch.autograd.functional.jacobian(lambda x: model.losses(x[None])[0], X[row])  # noqa: B023
        energies.append(rows.square().sum() / 4)
    expected = float(torch.stack(energies).median())
    assert cr.auto_gamma(CLF, X, top=3) == pytest.approx(expected, rel=1e-3)
    assert cr.auto_gamma(cr.bind(CLF, X, top=3)) == cr.auto_gamma(CLF, X, top=3)
    assert cr.credibility(CLF, X, gamma="auto", top=3).gamma == cr.auto_gamma(CLF, X, top=3)


@pytest.mark.parametrize("classes", [1, 2, 4])
def test_all_but_one_class_is_the_ordinary_problem_in_another_order(classes):
    clf, x = models.affine_classifier(features=8, classes=classes), models.inputs(9)
    ordinary = cr.credibility(clf, x, gamma=GAMMA)
    top = ordinary.credibility.shape[1] - 1
    found = cr.credibility(clf, x, gamma=GAMMA, top=top)
    order = ordinary.credence.argsort(dim=1, descending=True)
    assert torch.equal(found.kept, order[:, :-1])
    assert torch.allclose(found.credibility, ordinary.credibility.gather(1, order), atol=1e-6)
    assert torch.allclose(found.risk, ordinary.risk, atol=1e-6)
    assert torch.equal(found.predicted, clf.predict(x))
    for name in ("margin", "predicted_ratio", "shift", "gain", "max_softmax", "softmax_ratio"):
        one, other = (scores.SCORES[name](p) for p in (found, ordinary))
        assert torch.allclose(one, other, atol=1e-5), name


@pytest.mark.parametrize("effort", ["solve", "decide"])
def test_the_batch_and_its_chunks_change_nothing(effort):
    solver = cr.solvers.FixedDescent(radius=0.8) if effort == "decide" else None
    whole = cr.credibility(CLF, X, gamma=GAMMA, top=3, solver=solver)
    cut = cr.credibility(CLF, X.flip(0), gamma=GAMMA, top=3, solver=solver, chunk_size=2)
    assert torch.equal(whole.kept, cut.kept.flip(0))
    assert torch.allclose(whole.credibility, cut.credibility.flip(0), atol=1e-7)
    assert torch.allclose(whole.perturbed, cut.perturbed.flip(0), atol=1e-7)


@pytest.mark.parametrize("effort", ["solve", "decide"])
def test_rows_that_are_not_finite_affect_only_themselves(effort):
    solver = cr.solvers.FixedDescent(radius=0.8) if effort == "decide" else None
    x = X.clone()
    x[2, 1], x[5] = torch.nan, torch.inf
    good = [0, 1, 3, 4, 6]
    found = cr.credibility(CLF, x, gamma=GAMMA, top=3, solver=solver)
    alone = cr.credibility(CLF, X[good], gamma=GAMMA, top=3, solver=solver)
    assert torch.allclose(found.credibility[good], alone.credibility, atol=1e-7)
    assert torch.equal(found.kept[good], alone.kept)
    assert [found.status[row].label for row in (2, 5)] == ["non finite input"] * 2
    assert bool((found.kept[[2, 5]] == -1).all())
    assert found.predicted[[2, 5]].tolist() == [-1, -1]
    assert bool(scores.max_softmax(found)[[2, 5]].isnan().all())
    nothing = cr.credibility(CLF, torch.full_like(X, torch.nan), gamma=GAMMA, top=3, solver=solver)
    assert not bool(nothing.usable.any())


def test_the_certificate_and_the_theory_are_those_of_the_joined_problem():
    profile = cr.credibility(CLF, X, gamma=GAMMA, top=3, solver=cr.solvers.LBFGS())
    variable = cr.bind(CLF, X, top=3)
    given = cr.certify(variable, None, profile.perturbed, gamma=GAMMA)
    assert bool(given.holds().all())
    assert bool((given.fixed_point < 1e-9).all())
    assert torch.allclose(given.objective, profile.certificate.objective)
    lead = profile.risk + profile.credibility.square().sum(1) / GAMMA
    assert torch.allclose(lead, profile.certificate.objective)
    assert bool((profile.certificate.decrease >= 0).all())
    for clf in (CLF, variable):  # a profile knows its classes
        tried = cr.theory.check_tradeoff(clf, profile, directions=4)
        assert bool(tried.holds().all())
    met = cr.theory.solve_constrained(variable, None, profile.credibility - 0.05)
    assert bool((met.risk <= profile.risk * (1 + 1e-6)).all())
    with pytest.raises(cr.errors.InvalidArgumentError, match="which moved inputs, got one that"):
        cr.theory.check_tradeoff(variable, cr.credibility(CLF, X, gamma=GAMMA))


@pytest.mark.parametrize("curvature", ["full", "outputs"])
def test_derivatives_through_a_profile_are_those_of_the_explicit_model(curvature):
    profile = cr.credibility(CLF, X, gamma=GAMMA, top=3, solver=cr.solvers.LBFGS())
    x0 = X.clone().requires_grad_()
    c = cr.attached_credibility(CLF, profile, x0=x0, curvature=curvature, products=50)
    (found,) = torch.autograd.grad(c[:, 0].sum(), x0)
    for row, kept in enumerate(profile.kept.tolist()):
        one = cr.credibility(
            explicit(kept), X[row : row + 1], gamma=GAMMA, solver=cr.solvers.LBFGS()
        )
        own = X[row : row + 1].clone().requires_grad_()
        c = cr.attached_credibility(explicit(kept), one, x0=own, curvature=curvature, products=50)
        (expected,) = torch.autograd.grad(c[:, 0].sum(), own)
        assert torch.allclose(found[row], expected[0], rtol=1e-4, atol=1e-5)


def test_a_path_knows_its_classes():
    path = cr.credibility_path(cr.bind(CLF, X, top=3), None, [20.0, 2.0, 0.2])
    first = path.profiles[0]
    ahead = path.credibility.argmax(2)
    for g, row in ((0, 0), (2, 3), (1, 6)):
        column = int(ahead[g, row])
        expected = -1 if column == 3 else int(first.kept[row, column])
        assert int(path.most_credible()[g, row]) == expected
    assert path.switching_gamma().shape == (7,)


@pytest.fixture(scope="module")
def profile():
    clf = cr.Classifier(NET, classes=[f"kind {k}" for k in range(CLASSES)])
    x = X.clone()
    x[2] = torch.nan
    return cr.credibility(clf, x, gamma=GAMMA, top=4, solver=cr.solvers.LBFGS(steps=5))


def test_classes_are_named_by_their_number_in_the_model(profile):
    assert profile.class_count == CLASSES
    assert torch.equal(profile.predicted, CLF.predict(profile.x0))
    ranking, c = profile.ranking(), profile.credibility
    for row in (0, 1, 3):
        expected = [*profile.kept[row].tolist(), -1]
        order = c[row].argsort(descending=True).tolist()
        assert ranking[row].tolist() == [expected[k] for k in order]
        names = [f"kind {k}" for k in profile.kept[row].tolist()]
        assert profile.column_names(row) == (*names, "(others)")
    assert "top 4 of 30 classes" in repr(profile)
    assert "top 4 of 30 classes" in profile.summary()


def test_the_models_class_is_a_kept_one_although_all_others_are_more_probable():
    flat = cr.Classifier(lambda x: 0.1 * NET(x))
    found = cr.credibility(flat, X, gamma=GAMMA, top=2)
    assert bool((found.credence.argmax(1) == 2).all())
    assert torch.equal(found.predicted, flat.predict(X))
    p = (0.1 * NET(X)).softmax(1).detach()
    best, second = p.topk(2, dim=1).values.unbind(1)
    assert torch.allclose(scores.max_softmax(found), best.log())
    assert torch.allclose(scores.softmax_ratio(found), (best / second).log())
    c, own = found.credibility, found.credibility[:, 0]
    assert torch.allclose(scores.margin(found), own - c[:, 1:].amax(1))
    assert bool((scores.predicted_ratio(found) < 0).all())
    z = found.credence - found.credence.mean(1, keepdim=True)
    expected = z[:, 0] / z.pow(4).sum(1).pow(0.25)
    assert torch.allclose(scores.p_norm(found), expected)
    one = cr.credibility(flat, X, gamma=GAMMA, top=1)
    assert torch.allclose(scores.softmax_ratio(one), (best / (1 - best)).log())


def test_weights_per_class_are_refused():
    for use in (
        lambda: cr.credibility(CLF, X, weights=[1.0] * 4, top=3),
        lambda: cr.credibility(cr.bind(CLF, X, top=3), weights=[1.0] * 4),
    ):
        with pytest.raises(cr.errors.InvalidArgumentError, match="`weights`: expected gamma"):
            use()


def test_an_ordinary_profile_knows_nothing_of_it():
    ordinary = cr.credibility(CLF, X, gamma=GAMMA, solver=cr.solvers.LBFGS(steps=3))
    assert ordinary.kept is None
    assert not {"top", "class_count"} & set(ordinary.settings.as_json())
    assert "top" not in repr(ordinary.settings)
    assert torch.equal(ordinary.predicted, CLF.predict(X))
    assert ordinary.class_count == CLASSES


def test_the_figure_of_a_sample_names_its_classes(profile):
    title = cr.plot_profile(profile, 0).get_suptitle()
    assert title.startswith(f"kind {int(profile.predicted[0])} at x0, ")
    share = float(100 * NET(X).detach()[0].softmax(0).max())
    assert f"{share:.1f} % by softmax" in title
    own = cr.plot_profile(profile, 0, classes=[f"sort {k}" for k in range(CLASSES)])
    assert own.get_suptitle().startswith(f"sort {int(profile.predicted[0])} at x0, ")
    unnamed = cr.credibility(CLF, X, gamma=GAMMA, top=4, solver=cr.solvers.LBFGS(steps=5))
    title = cr.plot_profile(unnamed, 1).get_suptitle()
    assert title.startswith(f"class {int(unnamed.predicted[1])} at x0, ")
