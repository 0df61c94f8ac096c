"""Moving the output of a named module is moving the input of what comes after it."""

import pytest
import torch
from torch import nn

import credibly as cr
from credibly import Classifier, Space, bind
from credibly.errors import InvalidArgumentError
from tests.reference import models

EXACT = cr.solvers.LBFGS(tolerance=1e-11, steps=2000)


class Words(nn.Module):
    """Token numbers to an embedding to a smooth tail, with the parts one level down."""

    def __init__(self):
        super().__init__()
        self.front = nn.ModuleDict({"words": nn.Embedding(9, 4), "pool": nn.Flatten()})
        self.tail = models.smooth_network(features=12, classes=4)
        self.calls = 0

    def forward(self, tokens):
        self.calls += 1
        return self.tail(self.front["pool"](self.front["words"](tokens)))


@pytest.fixture
def net():
    torch.manual_seed(1)
    return Words().double().eval()


def tokens(count=4):
    return torch.randint(0, 9, (count, 3), generator=models.generator(2))


def hooks(net):
    return sum(len(part._forward_hooks) for part in net.modules())


def close(left, right, tolerance=1e-8):
    return bool(torch.allclose(left, right, atol=tolerance, rtol=tolerance))


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_it_equals_the_tail_on_features_computed_by_hand(net, scale):
    ids = tokens()
    clf = Classifier(net, module="front.words", space=Space(scale=scale))
    profile = cr.credibility(clf, ids, gamma="auto", solver=EXACT)
    with torch.no_grad():
        features = net.front["words"](ids)
    tail = Classifier(lambda u: net.tail((u * scale).flatten(1)))
    by_hand = cr.credibility(tail, features / scale, gamma="auto", solver=EXACT)
    assert profile.gamma == pytest.approx(by_hand.gamma, rel=1e-12)
    for name in ("credibility", "credence", "risk"):
        assert close(getattr(profile, name), getattr(by_hand, name)), name
    assert torch.equal(profile.x0, features)
    assert close(profile.perturbed, by_hand.perturbed * scale)
    assert profile.settings.space.startswith("output of module 'front.words', Space(")
    assert hooks(net) == 0


def test_all_doors_take_the_bound_one(net):
    ids = tokens()
    clf = Classifier(net, module="front.words", loss="logistic")
    bound = bind(clf, ids)
    profile = cr.credibility(bound, gamma=50.0, solver=EXACT)
    assert profile.settings.space == "output of module 'front.words'"
    assert bool(cr.certify(clf, ids, profile.perturbed, gamma=50.0).holds().all())
    assert bool(cr.certify(bound, None, profile.perturbed, gamma=50.0).holds().all())
    assert bool(cr.theory.check_tradeoff(bound, profile, directions=3).holds().all())
    near = cr.credibility(clf, ids, gamma=1000.0, solver=EXACT)
    answer = cr.theory.solve_constrained(clf, ids, near.credibility)
    assert close(answer.x, near.perturbed, 1e-5)
    assert close(cr.attached_credibility(bound, profile).detach(), profile.credibility, 1e-10)
    with pytest.raises(InvalidArgumentError, match=r"^`clf`.*not bound.*bind\(clf, x\)"):
        cr.theory.check_tradeoff(clf, profile)
    chosen = (slice(0, 1), torch.tensor([3, 1]), torch.tensor([False, False, True, False]))
    parts = [cr.credibility(bound.select(rows), gamma=50.0, solver=EXACT) for rows in chosen]
    joined = torch.cat([part.credibility for part in parts])
    assert close(joined, profile.credibility[[0, 3, 1, 2]])
    assert hooks(net) == 0


def test_hooks_of_the_user_stay_and_count(net):
    ids = tokens(2)
    handle = net.front["words"].register_forward_hook(lambda _m, _i, out: 2 * out)
    bound = bind(Classifier(net, module="front.words"), ids)
    assert torch.equal(bound.values, 2 * net.front["words"].weight[ids])
    assert hooks(net) == 1
    handle.remove()


def test_hooks_are_removed_after_errors(net):
    bound = bind(Classifier(net, module="front.words"), tokens(2))

    def broken(*_):
        message = "broken on purpose"
        raise RuntimeError(message)

    net.tail.forward = broken
    with pytest.raises(RuntimeError, match="on purpose"):
        bound.run_at(bound.start)
    assert hooks(net) == 0
    with pytest.raises(RuntimeError, match="on purpose"):
        bind(Classifier(net, module="front.words"), tokens(2))
    assert hooks(net) == 0


class Odd(nn.Module):
    """A module used twice, one that gives a tuple, one with the time axis first, one left out."""

    def __init__(self):
        super().__init__()
        self.twice, self.left_out = nn.Linear(3, 3), nn.Linear(3, 3)
        self.pair = nn.GRU(3, 3)
        self.numbers = nn.Identity()

    def forward(self, x):
        y = self.twice(self.twice(x))
        self.numbers(x.long())
        outputs, _ = self.pair(y.unsqueeze(0).expand(2, -1, -1))
        return outputs[1]


@pytest.mark.parametrize(
    ("name", "got"),
    [("twice", "2 calls"), ("left_out", "0 calls"), ("pair", "a tuple"), ("numbers", "int64")],
)
def test_modules_that_cannot_be_moved_are_refused(name, got):
    net = Odd().double().eval()
    with pytest.raises(InvalidArgumentError, match=f"^`module`.*runs once.*'{name}' with.*{got}"):
        bind(Classifier(net, module=name), models.inputs(4, 3))
    assert hooks(net) == 0


def test_a_module_without_the_sample_axis_first_is_refused():
    class TimeFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.turn = nn.Identity()

        def forward(self, x):
            return self.turn(x.transpose(0, 1)).transpose(0, 1).sum(2)

    with pytest.raises(InvalidArgumentError, match=r"each of the 4 samples.*shape \(2, 4, 3\)"):
        bind(Classifier(TimeFirst(), module="turn"), torch.randn(4, 2, 3))


@pytest.mark.parametrize(
    ("net", "name", "match"),
    [
        (nn.Sequential(nn.Linear(2, 2)), "1", r"^`module`.*'1'.*named_modules.*\['0'\]"),
        (Words(), "front.word", r"^`module`.*front\.words"),
        (torch.tanh, "0", "^`module`.*an nn.Module"),
    ],
)
def test_a_module_that_is_not_there_is_refused(net, name, match):
    with pytest.raises(InvalidArgumentError, match=match):
        Classifier(net, module=name)


def test_token_numbers_without_a_module_name_the_layer_to_move(net):
    with pytest.raises(InvalidArgumentError, match=r"module='front\.words'"):
        cr.credibility(Classifier(net), tokens(), gamma=1.0)
    with pytest.raises(InvalidArgumentError, match="module='embedding'"):
        cr.credibility(Classifier(lambda x: net(x["ids"])), {"ids": tokens()}, gamma=1.0)


@pytest.mark.parametrize("module", [None, "front.words"])
def test_token_numbers_as_floats_are_refused_with_a_remedy_that_works(net, module):
    floats = tokens().double()
    with pytest.raises(cr.errors.ModelError) as caught:
        cr.credibility(Classifier(net, module=module), floats, gamma=1.0)
    assert caught.value.remedy.endswith(
        "Classifier(net, module='front.words', preprocess=torch.Tensor.long)."
    )
    remedied = Classifier(net, module="front.words", preprocess=torch.Tensor.long)
    found = cr.credibility(remedied, floats, gamma=1.0)
    plain = cr.credibility(Classifier(net, module="front.words"), tokens(), gamma=1.0)
    assert torch.equal(found.credibility, plain.credibility)
