"""Baselines that run the model again, against loops over single samples."""

import math
from dataclasses import FrozenInstanceError

import pytest
import torch
from torch import nn

import credibly as cr
from credibly import baselines as b
from credibly.baselines.input_baselines import dropping_out
from credibly.decide import scores
from tests.reference import models, oracles

GAMMA = 30.0


@pytest.fixture(scope="module")
def net():
    return models.smooth_network()


@pytest.fixture(scope="module")
def clf(net):
    return cr.Classifier(net)


X = models.inputs(6)


def with_dropout():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Dropout(0.0),
        nn.Linear(16, 3),
    ).double().eval()  # fmt: skip


EVERY = b.all_baselines(gamma=GAMMA, temperature=1.3, sigma=0.3, votes=7)


@pytest.mark.parametrize("t", [1.0, 1000.0])
def test_odin_raises_the_largest_probability_and_looks_again(net, clf, t):
    expected = []
    for x in X:

        def log_s(v):
            return float((net(v.unsqueeze(0)) / t).log_softmax(1).max().detach())

        slope = oracles.finite_difference(log_s, x, step=1e-4)
        p = math.exp(log_s(x - 0.05 * torch.sign(-slope)))
        expected.append(math.log(p / (1 - p)))
    found = b.ODIN(temperature=t, eps=0.05)(clf, X)
    assert found.tolist() == pytest.approx(expected, abs=1e-8)
    plain = b.TemperatureScaled(temperature=t)(clf, X)
    assert bool((found > plain).all())


@pytest.mark.parametrize("variant", ["alpha", "beta"])
def test_doctor_steps_as_printed(net, clf, variant):
    def ratio(v):
        p = (net(v.unsqueeze(0)) / 1.5).softmax(1)[0].detach()
        own = p.square().sum() if variant == "alpha" else p.max()
        return float(((1 - own) / own).log())

    expected = []
    for x in X:
        slope = oracles.finite_difference(ratio, x)
        expected.append(-ratio(x - 0.05 * torch.sign(-slope)))
    doctor = b.Doctor(variant=variant, temperature=1.5)
    found = b.DoctorWithStep(doctor=doctor, eps=0.05)(clf, X)
    assert found.tolist() == pytest.approx(expected, abs=1e-8)
    small = b.DoctorWithStep(doctor=doctor, eps=1e-4)(clf, X)
    assert bool((small < doctor(clf, X)).all())


def test_dropout_is_averaged_over_probabilities():
    net = with_dropout()
    clf, x = cr.Classifier(net), models.inputs(5)
    found = b.MonteCarloDropout(samples=4, seed=3)(clf, x)
    net[3].train()
    torch.manual_seed(3)
    with torch.no_grad():
        mean = torch.stack([net(x).softmax(1) for _ in range(4)]).mean(0)
    p = mean.amax(1)
    torch.testing.assert_close(found, (p / (1 - p)).log())
    net.eval()
    assert not torch.allclose(found, b.MonteCarloDropout(samples=4, seed=4)(clf, x))


def test_dropout_leaves_every_flag_and_the_generator_as_they_were():
    net = with_dropout()
    flags = [m.training for m in net.modules()]
    statistics = net[1].running_mean.clone()
    state = torch.get_rng_state()
    seen = []
    handle = net[3].register_forward_hook(
        lambda m, _i, _o: seen.append((m.training, net.training, net[1].training))
    )
    b.MonteCarloDropout(samples=2)(cr.Classifier(net), X)
    handle.remove()
    assert (True, False, False) in seen
    assert {s[1:] for s in seen} == {(False, False)}
    assert [m.training for m in net.modules()] == flags
    assert torch.equal(statistics, net[1].running_mean)
    assert torch.equal(state, torch.get_rng_state())


def test_dropout_is_on_in_a_copy_only():
    net = with_dropout()
    with dropping_out(cr.bind(cr.Classifier(net), X)) as random:
        assert [m.training for m in random.net] == [m is net[3] for m in net]
        assert random.net[0] is net[0]
        assert not any(m.training for m in net.modules())


class Hidden(nn.Module):
    """Layers in a set, of which no copy can be made."""

    def __init__(self):
        super().__init__()
        self.inner = with_dropout()
        self.held = {self.inner}

    def forward(self, x):
        return next(iter(self.held))(x)


def test_dropout_of_a_model_without_copies_is_switched_and_switched_back():
    net = Hidden().eval()
    clf, plain = cr.Classifier(net), cr.Classifier(net.inner)
    dropout = b.MonteCarloDropout(samples=2)
    assert torch.equal(dropout(clf, X), dropout(plain, X))
    with (
        pytest.raises(ValueError, match="at work: True"),
        dropping_out(cr.bind(clf, X)),
    ):
        fail(f"at work: {net.inner[3].training}")
    assert not any(m.training for m in net.modules())


def fail(message):
    raise ValueError(message)


def test_models_without_dropout_are_refused(net):
    for model in (net, lambda x: x):
        with pytest.raises(cr.errors.ModelError, match="no dropout layer"):
            b.MonteCarloDropout()(cr.Classifier(model), X)
    training = with_dropout().train()
    with pytest.raises(cr.errors.ModelError, match="training mode"):
        b.MonteCarloDropout()(cr.Classifier(training), X)


def test_votes_are_counted_under_the_same_noise_for_all(net, clf):
    g = torch.Generator().manual_seed(5)
    noises = [0.8 * torch.randn(8, generator=g, dtype=torch.float64) for _ in range(20)]
    expected = []
    for x in X:
        own = int(net(x.unsqueeze(0)).argmax())
        expected.append(sum(int(net((x + e).unsqueeze(0)).argmax()) == own for e in noises) / 20)
    found = b.NoiseVote(sigma=0.8, votes=20, seed=5)(clf, X)
    assert found.tolist() == pytest.approx(expected)
    assert len(set(expected)) > 2


@pytest.mark.parametrize("step", [None, 0.5])
@pytest.mark.parametrize("keep_class", [False, True])
def test_one_gradient_step_is_that_of_the_objective(clf, step, keep_class):
    expected = []
    for x in X:

        def objective(v, x=x):
            losses = clf.losses(v.unsqueeze(0)).detach()
            return float((v - x).square().sum() + losses.square().sum() / GAMMA)

        slope = oracles.finite_difference(objective, x)
        length = float(slope.norm())
        far = min(0.25 * math.sqrt(objective(x)), 0.5 * length) / length if step is None else step
        losses = clf.losses((x - far * slope).unsqueeze(0))[0].tolist()
        own = int(clf.losses(x.unsqueeze(0)).argmin()) if keep_class else losses.index(min(losses))
        other = min(v for k, v in enumerate(losses) if k != own)
        expected.append(math.log(other / losses[own]))
    found = b.OneGradientStep(gamma=GAMMA, step=step, keep_class=keep_class)(clf, X)
    assert found.tolist() == pytest.approx(expected, abs=1e-6)


def test_an_explicit_step_is_the_profile_as_gamma_grows(clf):
    gamma = 1e6
    profile = cr.credibility(clf, X, gamma=gamma, solver=cr.solvers.LBFGS())
    fit = b.CredenceRatio()(clf, X)
    exact = -torch.log1p(-scores.ratio(profile))
    found = b.OneGradientStep(gamma=gamma, step=0.5)(clf, X)
    assert float((found - exact).abs().max()) < 1e-2 * float((fit - exact).abs().max())


@pytest.mark.parametrize("keep_class", [False, True])
def test_one_gauss_newton_step_is_the_profile_of_an_affine_model(keep_class):
    clf, x = models.affine_classifier(), models.inputs(20, features=6)
    profile = cr.credibility(clf, x, gamma=5.0, solver=cr.solvers.LBFGS())
    found = b.OneGaussNewtonStep(gamma=5.0, keep_class=keep_class)(clf, x)
    signed = scores.predicted_ratio(profile) if keep_class else scores.ratio(profile)
    expected = signed.sign() * -torch.log1p(-signed.abs())
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    if keep_class:
        assert bool((found < 0).any())


def test_two_sided_scores_fall_on_both_sides(clf):
    base = b.MaxSoftmax()
    two = b.TwoSided.fit(base, clf, X)
    plain = base(clf, X)
    assert two.centre == pytest.approx(sum(sorted(plain.tolist())[2:4]) / 2)
    torch.testing.assert_close(two(clf, X), -(plain - two.centre).abs())
    torch.testing.assert_close(two.of_scores(plain), two(clf, X))
    assert b.TwoSided(base, 1.0).passes(5) == base.passes(5)


@pytest.mark.parametrize("name", EVERY)
def test_no_score_depends_on_batch_chunk_or_bad_rows(clf, name):
    baseline = EVERY[name]
    together = baseline(clf, X)
    torch.testing.assert_close(baseline(clf, X, chunk_size=2), together)
    alone = torch.cat([baseline(clf, x.unsqueeze(0)) for x in X])
    torch.testing.assert_close(alone, together)
    spoiled = torch.cat([X, torch.full((1, 8), math.inf, dtype=X.dtype)])
    found = baseline(clf, spoiled)
    torch.testing.assert_close(found[:6], together)
    assert bool(found[6].isnan())
    assert together.dtype == torch.float64
    with torch.inference_mode():
        torch.testing.assert_close(baseline(clf, X.clone()), together)


@pytest.mark.parametrize("name", EVERY)
def test_the_model_and_the_generator_are_left_alone(name):
    net = with_dropout()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    state = torch.get_rng_state()
    EVERY[name](cr.Classifier(net), X)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    assert torch.equal(state, torch.get_rng_state())


class Counter(nn.Module):
    """Counts rows that go forward and rows whose gradient comes back."""

    def __init__(self, net):
        super().__init__()
        self.net, self.forwards, self.backwards = net, 0, 0

    def forward(self, x):
        logits = self.net(x)
        self.forwards += len(x)
        if logits.requires_grad and x.requires_grad:
            logits.register_hook(self._back)
        return logits

    def _back(self, gradient):
        self.backwards += len(gradient)


@pytest.mark.parametrize("name", EVERY)
def test_passes_are_those_that_are_run(net, name):
    counter, x = Counter(net), models.inputs(8)  # a solver on a CPU fills batches up to fours
    EVERY[name].of_chunk(cr.bind(cr.Classifier(counter), x), x)
    extra = 1 if name.startswith("one ") else 0  # one row, once, to count the classes
    spent = (counter.forwards - extra + 2 * counter.backwards) / 3 / len(x)
    assert spent == pytest.approx(EVERY[name].passes(5), abs=1e-9)


def test_every_baseline_is_a_value():
    both = b.all_baselines(gamma=GAMMA, temperature=1.3, sigma=0.3, votes=7)
    assert both == EVERY
    assert "Monte-Carlo dropout" in b.all_baselines(gamma=1.0, dropout=True)
    assert "temperature scaling" not in b.all_baselines(gamma=1.0)
    with pytest.raises(FrozenInstanceError):
        EVERY["ODIN"].eps = 1.0


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: b.ODIN(eps=0.0), "eps"),
        (lambda: b.ODIN(temperature=0.0), "temperature"),
        (lambda: b.DoctorWithStep(eps=-1.0), "eps"),
        (lambda: b.MonteCarloDropout(samples=0), "samples"),
        (lambda: b.NoiseVote(sigma=0.0), "sigma"),
        (lambda: b.NoiseVote(votes=2.5), "votes"),
        (lambda: b.OneGradientStep(gamma="auto"), "gamma"),
        (lambda: b.OneGradientStep(gamma=1.0, step=0.0), "step"),
        (lambda: b.OneGaussNewtonStep(gamma=-1.0), "gamma"),
        (lambda: b.OneGaussNewtonStep(gamma=1.0, method=cr.solvers.GaussNewton(steps=2)), "method"),
        (lambda: b.TwoSided(b.MaxSoftmax(), math.nan), "centre"),
    ],
)
def test_bad_settings_are_refused(make, name):
    with pytest.raises(cr.errors.InvalidArgumentError, match=f"`{name}`"):
        make()


@pytest.mark.parametrize("seed", [2**64, 1.5, None])
def test_a_seed_that_torch_cannot_take_is_refused(seed):
    for kind in (b.NoiseVote, b.MonteCarloDropout):
        with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`seed`"):
            kind(seed=seed)


def test_dropout_layers_that_drop_nothing_are_none():
    net = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.0)).double().eval()
    with pytest.raises(cr.errors.ModelError, match="no dropout layer"):
        b.MonteCarloDropout()(cr.Classifier(net), models.inputs(2, 6))


def test_a_sample_that_nothing_pulls_stays_where_it_is():
    flat = torch.tensor([1.0, 2.0, 4.0]).double()
    clf = cr.Classifier(lambda x: 0.0 * x[:, :1] + flat)
    x = models.inputs(2, 6)
    found = b.OneGradientStep(gamma=5.0)(clf, x)
    torch.testing.assert_close(found, b.CredenceRatio()(clf, x))


def test_one_step_ends_on_the_bounds_of_a_space():
    net, x = models.smooth_network(), models.inputs(3).clamp(-0.5, 0.5)
    clf = cr.Classifier(net)
    found = b.OneGradientStep(gamma=2.0, step=2.0)(
        cr.Classifier(net, space=cr.Space(bounds=(-0.5, 0.5))), x
    )
    point = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad((clf.losses(point).square() / 2.0).sum(), point)
    moved = (x - 2.0 * slope).clamp(-0.5, 0.5)
    assert not torch.equal(moved, x - 2.0 * slope)
    torch.testing.assert_close(found, b.CredenceRatio()(clf, moved))
