"""Networks with other parts, against hooks and parameters that are put into deep copies."""

from copy import deepcopy
from functools import partial
from types import MethodType

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, weight_norm

import credibly as cr
from credibly import Classifier, bind, vary_parameters
from credibly.model.substitute import Parts
from tests.reference import models

X = models.inputs(3, 4)
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch.compile looks at it


class Plain(nn.Module):
    """A body, a middle that moves, and a head."""

    def __init__(self):
        super().__init__()
        self.body, self.middle, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.middle(torch.tanh(self.body(x)))))


class InAList(Plain):
    """The modules are called from a list of its own."""

    def __init__(self):
        super().__init__()
        self.steps = [self.body, torch.tanh, self.middle, torch.tanh, self.head]

    def forward(self, x):
        for step in self.steps:
            x = step(x)
        return x


class InAMethod(Plain):
    """The forward is a method that was stored."""

    def __init__(self):
        super().__init__()
        self.forward = MethodType(Plain.forward, self)


class InAPartial(Plain):
    """The forward is replaced as some libraries do it."""

    def __init__(self):
        super().__init__()
        self.forward = partial(Plain.forward, self)


class ByAHook(Plain):
    """What the middle gives arrives at the head by a hook, which writes it on the network."""

    def __init__(self):
        super().__init__()
        self.after = nn.Tanh()
        self.after.register_forward_hook(self.keep)
        self.kept = None

    def keep(self, _module, _inputs, output):
        self.kept = output

    def forward(self, x):
        self.after(self.middle(torch.tanh(self.body(x))))
        return self.head(self.kept)


class InAFunction(Plain):
    """The modules are called by a function that refers to them by itself."""

    def __init__(self):
        super().__init__()
        middle, head = self.middle, self.head
        self.rest = lambda x: head(torch.tanh(middle(x)))

    def forward(self, x):
        return self.rest(torch.tanh(self.body(x)))


class Helper:
    def __init__(self, net):
        self.net = net

    def __call__(self, x):
        return self.net.head(torch.tanh(self.net.middle(x)))


class InAnObject(Plain):
    """The modules are called by an object that refers to the network."""

    def __init__(self):
        super().__init__()
        self.helper = Helper(self)

    def forward(self, x):
        return self.helper(torch.tanh(self.body(x)))


class InASet(Plain):
    """The modules are called from a set, which is not looked through."""

    def __init__(self):
        super().__init__()
        self.rest = frozenset([nn.Sequential(self.middle, nn.Tanh(), self.head)])

    def forward(self, x):
        (rest,) = self.rest
        return rest(torch.tanh(self.body(x)))


def in_its_class():
    """The forward of the class refers to the network."""

    class OfAFunction(Plain):
        def forward(self, x):
            return net.head(torch.tanh(net.middle(torch.tanh(self.body(x)))))

    net = OfAFunction()
    return net


EVERYWHERE: dict[str, nn.Module] = {}


class InAGlobal(Plain):
    """The network is called by a name that no search finds."""

    def forward(self, x):
        net = EVERYWHERE["net"]
        return net.head(torch.tanh(net.middle(torch.tanh(self.body(x)))))


class Shared(Plain):
    """The same modules also under another name, which is the one that is called."""

    def __init__(self):
        super().__init__()
        self.again = nn.Sequential(self.middle, nn.Tanh(), self.head)

    def forward(self, x):
        return self.again(torch.tanh(self.body(x)))


class Compiled(Plain):
    """Its parts are compiled."""

    def __init__(self):
        super().__init__()
        self.middle = torch.compile(self.middle, backend="eager")
        self.head.compile(backend="eager")


class Scripted(Plain):
    """The part that moves is compiled by TorchScript."""

    def __init__(self):
        super().__init__()
        self.middle = torch.jit.script(self.middle)


def compiled():
    return torch.compile(Plain(), backend="eager")


def compiled_in_place():
    net = Plain()
    net.compile(backend="eager")
    return net


def traced():
    return torch.fx.symbolic_trace(Plain())


COPIED = {kind.__name__: kind for kind in (
    Plain, InAList, InAMethod, InAPartial, ByAHook, Shared, Compiled, Scripted,
    InAFunction, InAnObject, compiled, compiled_in_place, traced,
)}  # fmt: skip
CHANGED = {kind.__name__: kind for kind in (InASet, InAGlobal, in_its_class)}
KINDS = COPIED | CHANGED


def made(name):
    torch.manual_seed(0)
    net = KINDS[name]().double().eval()
    EVERYWHERE["net"] = net
    return net


def name_of(net, part):
    return next(name for name, _ in net.named_modules() if name.split(".")[-1] == part)


def plain_net():
    torch.manual_seed(0)
    return Plain().double().eval()


def hooks(net):
    tables = ("_forward_hooks", "_forward_pre_hooks")
    return [len(getattr(m, t)) for m in net.modules() for t in tables if hasattr(m, t)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_output_of_a_module_moves(kind):
    net, plain = made(kind), plain_net()
    before = hooks(net)
    bound = bind(Classifier(net, module=name_of(net, "middle")), X)
    assert bound.parts.in_place == (kind in CHANGED)
    with torch.no_grad():
        assert torch.equal(bound.values, plain.middle(torch.tanh(plain.body(X))))
        moved = bound.values + 0.3
        expected = plain.head(torch.tanh(moved))
        assert torch.equal(bound.logits(moved), expected)
        rows = torch.tensor([2, 0])
        assert torch.equal(bound.select(rows).logits(moved[rows]), expected[rows])
    profile = cr.credibility(bound, gamma=9.0)
    assert torch.equal(profile.credibility, tail_profile(plain, bound.values).credibility)
    assert hooks(net) == before
    assert torch.equal(net(X), plain(X))


def tail_profile(plain, features):
    tail = Classifier(lambda u: plain.head(torch.tanh(u)))
    return cr.credibility(tail, features, gamma=9.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", ["head", "middle"])
def test_parameters_move(kind, part):
    if (kind, part) == ("Scripted", "middle"):
        pytest.skip("parameters inside of TorchScript cannot be replaced")
    net, plain = made(kind), plain_net()
    before = {name: (p, p.clone()) for name, p in net.named_parameters()}
    name = name_of(net, part)
    if is_wrapped := "_orig_mod" in dict(net.get_submodule(name).named_children()):
        name = f"{name}._orig_mod"
    assert is_wrapped == (kind == "Compiled" and part == "middle")
    bound = vary_parameters(Classifier(net), X, name)
    theta = bound.values + 0.1 * models.inputs(3, bound.values.shape[1])
    rows = []
    for n in range(3):
        copied = deepcopy(plain)
        torch.nn.utils.vector_to_parameters(theta[n], copied.get_submodule(part).parameters())
        rows.append(copied(X[n : n + 1]).detach())
    with torch.no_grad():
        torch.testing.assert_close(bound.logits(theta), torch.cat(rows))
    assert bool(cr.credibility(bound, gamma=9.0).usable.all())
    now = dict(net.named_parameters())
    assert all(now[n] is p and torch.equal(p, value) for n, (p, value) in before.items())
    assert all(p.grad is None for p in net.parameters())


def test_what_only_torchscript_sees_is_refused():
    net = torch.jit.script(plain_net())
    with pytest.raises(cr.errors.InvalidArgumentError, match="'middle' with 0 calls"):
        bind(Classifier(net, module="middle"), X)
    with pytest.raises(cr.errors.ModelError, match="other parameters for every sample"):
        cr.credibility(vary_parameters(Classifier(net), X), gamma=1.0)


class Counting(nn.Module):
    """Counts its runs where the user's module cannot see it, so the count is a list."""

    def __init__(self, runs):
        super().__init__()
        self.inner, self.runs = nn.Linear(4, 4), lambda: runs.append(1)

    def forward(self, x):
        self.runs()
        return self.inner(x)


def test_a_module_whose_output_moves_is_run_once():
    runs = []
    net = nn.Sequential(Counting(runs), nn.Tanh(), nn.Linear(4, 3)).double().eval()
    bound = bind(Classifier(net, module="0"), X)
    cr.credibility(bound, gamma=9.0)
    assert len(runs) == 1


class Masking(nn.Module):
    """Leaves a mask of its inputs for others."""

    def __init__(self):
        super().__init__()
        self.words, self.mask = nn.Embedding(9, 4), None

    def forward(self, tokens):
        self.mask = (tokens > 0).unsqueeze(2)
        return self.words(tokens)


class UsesMask(nn.Module):
    def __init__(self):
        super().__init__()
        self.front, self.head = Masking(), nn.Linear(4, 3)

    def forward(self, tokens):
        return self.head((torch.tanh(self.front(tokens)) * self.front.mask).sum(1))


def test_a_module_that_leaves_something_behind_runs_in_every_pass():
    net = UsesMask().double().eval()
    first, second = torch.tensor([[1, 2, 0], [3, 0, 0]]), torch.tensor([[4, 5, 6], [7, 0, 0]])
    clf = Classifier(net, module="front")
    bound = bind(clf, first)
    assert not bound.parts.silent
    bind(clf, second)
    net(second)
    with torch.no_grad():
        for tokens in (first, first[:1]):
            moved = bound.values[: len(tokens)] + 0.1
            expected = net.head((torch.tanh(moved) * (tokens > 0).unsqueeze(2)).sum(1))
            found = bound.select(slice(0, len(tokens))).logits(bound.encode(moved))
            assert torch.equal(found, expected)
    assert torch.equal(net.front.mask, (second > 0).unsqueeze(2))


def test_attributes_of_a_module_are_there_while_its_output_moves():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(9, 4)

        def forward(self, tokens):
            return torch.tanh(self.words(tokens).sum(1)) @ self.words.weight[:3].T

    net, tokens = Tied().double().eval(), torch.tensor([[1, 2], [3, 4]])
    bound = bind(Classifier(net, module="words"), tokens)
    assert bound.parts.silent
    with torch.no_grad():
        expected = torch.tanh((bound.values + 1).sum(1)) @ net.words.weight[:3].T
        assert torch.equal(bound.logits(bound.encode(bound.values + 1)), expected)


def old_weight_norm():
    with pytest.warns(FutureWarning, match="weight_norm"):
        return weight_norm(nn.Linear(4, 3))


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of vmap
@pytest.mark.parametrize(
    "make", [old_weight_norm, lambda: parametrizations.weight_norm(nn.Linear(4, 3))]
)
def test_parameters_behind_others_move(make):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Tanh(), make()).double().eval()
    net(X)
    before, held = deepcopy(net.state_dict()), set(vars(net[1]))
    name = next(name for name, p in net.named_parameters() if p.numel() == 12)
    bound = vary_parameters(Classifier(net), X, name)
    theta = bound.values + 0.1 * models.inputs(3, 12)
    expected = []
    for n in range(3):
        copied = deepcopy(dict(net.named_parameters()))
        copied[name] = theta[n].reshape(copied[name].shape)
        expected.append(torch.func.functional_call(deepcopy_of(net), copied, X[n : n + 1]))
    torch.testing.assert_close(bound.logits(theta), torch.cat(expected))
    assert set(vars(net[1])) == held
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    weight = net[1].weight
    assert not torch._C._functorch.is_batchedtensor(weight)


def deepcopy_of(net):
    """Without the tensor that the old weight norm leaves on the module, which has a history."""
    if "weight" in vars(net[1]):
        vars(net[1])["weight"] = net[1].weight.detach()
    return deepcopy(net)


def test_copies_share_what_is_not_on_the_way():
    net = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 3))
    weight = torch.zeros(3, 4)
    copied, _ = Parts.of(net, parameters=["1.weight"]).copy({"1.weight": weight})
    assert type(copied) is nn.Sequential
    assert copied[0] is net[0]
    assert copied[1] is not net[1]
    assert copied[1].weight is weight
    assert copied[1].bias is net[1].bias
    copied[1].register_forward_hook(lambda *_: None)
    copied.extra = nn.Linear(1, 1)
    copied[1].register_buffer("more", weight)
    assert sum(hooks(net)) == 0
    assert not hasattr(net, "extra")
    assert not hasattr(net[1], "more")


def test_exported_programs():
    net = plain_net()
    program = torch.export.export(net, (X,), dynamic_shapes=[{0: torch.export.Dim.DYNAMIC}])
    clf = Classifier(program)
    bound = vary_parameters(clf, X, "head")
    expected = vary_parameters(Classifier(net), X, "head")
    assert not bound.parts.in_place
    found, right = (cr.credibility(one, gamma=9.0) for one in (bound, expected))
    torch.testing.assert_close(found.credibility, right.credibility)


def test_a_pick_that_calls_the_module():
    net = plain_net()
    whole = nn.ModuleDict({"body": net.body, "rest": net.head})
    whole.forward = net.body.forward
    clf = Classifier(whole, module="rest", pick=lambda found: 1.0 * whole["rest"](found))
    bound = bind(clf, X)
    assert bound.parts.in_place
    assert torch.equal(bound.logits(bound.values + 1), bound.values + 1)


def test_copies_of_functions_that_call_themselves():
    class Twice(Plain):
        def __init__(self):
            super().__init__()

            def run(x, times):
                return run(torch.tanh(self.middle(x)), times - 1) if times else self.head(x)

            self.run = run

        def forward(self, x):
            return self.run(self.body(x), 2)

    torch.manual_seed(0)
    net = Twice().double().eval()
    bound = vary_parameters(Classifier(net), X, "middle")
    assert not bound.parts.in_place
    moved = bound.values + 0.1
    changed = deepcopy(plain_net())
    torch.nn.utils.vector_to_parameters(moved[0], changed.middle.parameters())
    middle = lambda x: torch.tanh(changed.middle(x))  # noqa: E731
    torch.testing.assert_close(bound.logits(moved), changed.head(middle(middle(changed.body(X)))))


def test_a_hook_on_all_modules_is_applied_once():
    net = plain_net()
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, _, output: 2 * output if module.__class__ is nn.Linear else None
    )
    try:
        bound = bind(Classifier(net, module="middle"), X)
        found, whole = bound.logits(bound.start), net(X)
    finally:
        handle.remove()
    assert torch.equal(found, whole)
