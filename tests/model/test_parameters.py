"""Perturbed parameters against loops over copied models."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import credibly as cr
from credibly import Classifier, vary_parameters
from credibly.errors import InvalidArgumentError, ModelError
from credibly.model.parameters import OverLastLinear, OverParameters
from tests.reference import models

EXACT = cr.solvers.LBFGS(tolerance=1e-11, steps=3000)
GAMMA = 20.0


@pytest.fixture
def net():
    return models.smooth_network(features=4, classes=3, width=5)


def close(left, right, tolerance=1e-8):
    return bool(torch.allclose(left, right, atol=tolerance, rtol=tolerance))


def by_copies(net, x, names, variable):
    """Outputs of each sample by a copy of the model with its own parameters."""
    rows = []
    for n in range(len(x)):
        copied = deepcopy(net)
        chosen = [p for name, p in copied.named_parameters() if name in names]
        vector_to_parameters(variable[n], chosen)
        with torch.no_grad():
            rows.append(copied(x[n : n + 1]))
    return torch.cat(rows)


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        (None, ["4.weight", "4.bias"]),
        ("4", ["4.weight", "4.bias"]),
        ("0.weight", ["0.weight"]),
        (["4.bias", "2"], ["2.weight", "2.bias", "4.bias"]),
        (["0", "2", "4"], ["0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"]),
    ],
)
def test_outputs_are_those_of_copied_models(net, chosen, names):
    x = models.inputs(3, 4)
    bound = vary_parameters(Classifier(net), x, chosen)
    assert list(bound.names) == names
    assert isinstance(bound, OverLastLinear) == (names == ["4.weight", "4.bias"])
    own = parameters_to_vector(p for n, p in net.named_parameters() if n in names).detach()
    assert torch.equal(bound.values, own.expand(3, -1))
    noise = 0.1 * models.inputs(3, len(own), seed=3)
    assert close(bound.logits(own + noise), by_copies(net, x, names, own + noise), 1e-12)
    rows = torch.tensor([2, 0])
    part = bound.select(rows)
    assert close(part.logits((own + noise)[rows]), bound.logits(own + noise)[rows], 1e-12)


def test_the_short_way_the_general_way_and_a_loop_give_one_profile(net):
    x = models.inputs(3, 4)
    clf = Classifier(net)
    short = vary_parameters(clf, x)
    general = OverParameters(clf, short.start, x, short.names)
    found = [cr.credibility(bound, gamma=GAMMA, solver=EXACT) for bound in (short, general)]
    features = net[:4](x).detach()
    start = short.start[:1]
    for n in range(3):

        def head(theta, n=n):
            weight, bias = theta[:, :15].reshape(-1, 3, 5), theta[:, 15:]
            return (weight @ features[n]) + bias

        found.append(cr.credibility(Classifier(head), start, gamma=GAMMA, solver=EXACT))
    loop = cr.Profile.concatenate([*found[2:]])
    for name in ("credibility", "credence", "risk", "perturbed"):
        values = getattr(loop, name)
        assert close(getattr(found[0], name), values), name
        assert close(getattr(found[1], name), values), name
    assert cr.auto_gamma(short) == pytest.approx(cr.auto_gamma(general), rel=1e-12)
    assert found[0].settings.space == "parameters 4.weight, 4.bias"
    moved = (found[0].perturbed - start).square().sum(1)
    assert close(found[0].risk, moved)


def test_the_model_is_left_as_it_was(net):
    before = deepcopy(net.state_dict())
    for chosen in (None, "0"):
        cr.credibility(vary_parameters(Classifier(net), models.inputs(2, 4), chosen), gamma=GAMMA)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    assert sum(len(part._forward_hooks) for part in net.modules()) == 0


@pytest.mark.parametrize("chosen", [None, ["0", "4.bias"]])
def test_certificate_and_theorem_2(net, chosen):
    x = models.inputs(3, 4)
    bound = vary_parameters(Classifier(net, loss="logistic"), x, chosen)
    profile = cr.credibility(bound, gamma=200.0, solver=EXACT)
    certificate = cr.certify(bound, None, profile.perturbed, gamma=200.0)
    assert bool(certificate.holds().all())
    assert float(certificate.relative_stationarity.max()) < 1e-9
    again = cr.theory.solve_constrained(bound, None, profile.credibility)
    assert set(again.status) == {cr.theory.Feasibility.SOLVED}
    assert close(again.x, profile.perturbed, 1e-5)
    assert close(again.multipliers, profile.multipliers, 1e-4)
    assert bool(cr.theory.check_tradeoff(bound, profile, directions=3).holds().all())
    assert close(cr.attached_credibility(bound, profile).detach(), profile.credibility, 1e-10)


class Nested(nn.Module):
    """A mapping with integers and a plain number; one logit."""

    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(4, 3), nn.Linear(3, 1)

    def forward(self, x):
        return self.out(torch.tanh(self.words(x["n"]) + x["rate"] * x["a"])).squeeze(1)


def test_nested_inputs_and_a_single_logit():
    torch.manual_seed(0)
    net = Nested().double().eval()
    x = {"n": torch.tensor([0, 3, 2]), "a": models.inputs(3, 3), "rate": 0.7}
    for chosen in ("out", "words"):
        bound = vary_parameters(Classifier(net), x, chosen)
        assert not isinstance(bound, OverLastLinear)  # what it gives is squeezed
        theta = bound.values + 0.1 * models.inputs(3, bound.values.shape[1])
        copied, rows = deepcopy(net), []
        for n in range(3):
            module = copied.get_submodule(chosen)
            vector_to_parameters(theta[n], module.parameters())
            one = {"n": x["n"][n : n + 1], "a": x["a"][n : n + 1], "rate": 0.7}
            rows.append(copied(one).detach())
        assert close(bound.raw_outputs(theta)[:, 0], torch.cat(rows), 1e-12)
        assert bool(cr.credibility(bound, gamma=GAMMA).usable.all())


class Clipped(nn.Module):
    """The last layer's output is changed in place, which is the same object."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(3, 2)

    def forward(self, x):
        return torch.relu_(self.out(x))


class Shared(nn.Module):
    """The last layer's weight also acts before it."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(3, 3)

    def forward(self, x):
        return self.out(torch.tanh(x @ self.out.weight))


class Named(nn.Module):
    """The last layer is called by keyword."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(3, 2)

    def forward(self, x):
        return self.out(input=x)


class Positive(nn.Module):
    """A ReLU after the last layer, at work nowhere near these inputs."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(3, 2)

    def forward(self, x):
        return torch.relu(self.out(x) + 100)


@pytest.mark.parametrize("kind", [Clipped, Shared, Named, Positive])
def test_the_short_way_is_taken_only_where_it_is_the_model(kind):
    torch.manual_seed(2)
    net, x = kind().double().eval(), models.inputs(4, 3)
    bound = vary_parameters(Classifier(net), x)
    theta = bound.values + 0.5 * models.inputs(4, bound.values.shape[1])
    assert close(bound.logits(theta), by_copies(net, x, bound.names, theta), 1e-12)


def test_tied_weights_move_together():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
            self.last.weight = self.first.weight

        def forward(self, x):
            return self.last(torch.tanh(self.first(x)))

    net, x = Tied().double().eval(), models.inputs(2, 3)
    bound = vary_parameters(Classifier(net), x, "first")
    theta = bound.values + 0.1 * models.inputs(2, 12)
    assert close(bound.logits(theta), by_copies(net, x, bound.names, theta), 1e-12)


class Decides(nn.Module):
    """Looks at values, which vmap cannot."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x):
        y = self.first(x)
        return self.out(y if float(y.sum()) > 0 else -y)


def test_models_that_vmap_cannot_run_are_told_apart():
    bound = vary_parameters(Classifier(Decides().double().eval()), models.inputs(2, 3), "first")
    with pytest.raises(
        ModelError, match=r"(?s)other parameters for every sample.*vmap must be able"
    ):
        cr.credibility(bound, gamma=1.0)


class Tuple(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x):
        y = self.first(x)
        return self.out(y), y


def test_outputs_must_be_picked():
    net, x = Tuple().double().eval(), models.inputs(2, 3)
    for chosen in (None, "first"):
        with pytest.raises(ModelError, match=r"returned a tuple.*pick="):
            cr.credibility(vary_parameters(Classifier(net), x, chosen), gamma=1.0)
    picked = Classifier(net, pick=lambda found: found[0])
    assert isinstance(vary_parameters(picked, x), OverLastLinear)
    assert bool(cr.credibility(vary_parameters(picked, x, "first"), gamma=1.0).usable.all())


def test_inside_of_inference_mode(net):
    x = models.inputs(2, 4)
    expected = cr.credibility(vary_parameters(Classifier(net), x), gamma=GAMMA)
    for chosen in (None, ["4"]):
        with torch.inference_mode():
            bound = vary_parameters(Classifier(net), x.clone(), chosen)
            assert close(cr.credibility(bound, gamma=GAMMA).credibility, expected.credibility)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda net, x: vary_parameters(Classifier(net.forward), x), "^`clf`.*Module.*pick="),
        (vary_parameters, r"^`clf`.*Wrap"),
        (lambda net, x: vary_parameters(cr.bind(Classifier(net), x), x), "^`clf`"),
        (lambda net, x: vary_parameters(Classifier(net), x, "5"), r"^`parameters`.*\['5'\].*named"),
        (lambda net, x: vary_parameters(Classifier(net), x, ["4", "4.w"]), "^`parameters`.*'4.w'"),
        (lambda net, x: vary_parameters(Classifier(net), x, []), "^`parameters`"),
        (lambda _, x: vary_parameters(Classifier(nn.Flatten()), x), "^`parameters`.*no para"),
        (lambda net, _: vary_parameters(Classifier(net), 3.0), "^`x`.*at least one sample"),
        (lambda net, x: vary_parameters(Classifier(net), x, 3), r"^`parameters`.*\[3\]"),
    ],
)
def test_bad_input_is_refused(net, make, match):
    with pytest.raises(InvalidArgumentError, match=match):
        make(net, models.inputs(2, 4))


@pytest.mark.parametrize("spoil", [lambda x: x.float(), lambda x: x[:, :1], lambda x: x[0]])
def test_inputs_the_model_cannot_take_are_told(net, spoil):
    with pytest.raises(ModelError, match=r"the model failed on the inputs|evaluated with other"):
        cr.credibility(vary_parameters(Classifier(net), spoil(models.inputs(2, 4))), gamma=1.0)


@pytest.mark.parametrize(
    "use",
    [
        lambda net, x: vary_parameters(Classifier(net), x),
        lambda net, x: cr.bind(Classifier(net, module="0"), x),
        lambda net, x: cr.credibility(Classifier(net, module="0"), x, gamma=1.0),
    ],
)
def test_a_model_in_training_mode_is_refused_before_it_runs(use):
    net = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)).double().train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(ModelError, match=r"training mode: 0 \(BatchNorm1d\).*eval"):
        use(net, torch.randn(5, 4, dtype=torch.float64))
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
