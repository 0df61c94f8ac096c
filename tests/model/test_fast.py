"""`accelerate`: the same numbers, the user's network untouched, and words for what is left out."""

from copy import deepcopy

import pytest
import torch
from torch import nn

import credibly as cr
from credibly.data.sample import load_sample
from credibly.io.fingerprints import quick_digest
from credibly.model import fast
from credibly.model.folding import folded
from tests.reference import models


def with_statistics(net, seed=0):
    """A network in evaluation mode whose norms have learned something."""
    g = models.generator(seed)
    for part in net.modules():
        norm = isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)
        if norm and part.track_running_stats:
            part.running_mean.copy_(torch.randn(part.num_features, generator=g))
            part.running_var.copy_(0.5 + torch.rand(part.num_features, generator=g))
            if part.affine:
                part.weight.data.copy_(torch.randn(part.num_features, generator=g))
                part.bias.data.copy_(torch.randn(part.num_features, generator=g))
    return net.eval()


class Residual(nn.Module):
    """A norm on a branch, and one after a sum, which nothing can take in."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.branch, self.own = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.after, self.head = nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x):
        x = self.norm(self.stem(x)).relu()
        x = self.after(x + self.own(self.branch(x)))
        return self.head(x.mean((2, 3)))


class Twice(nn.Module):
    """A layer whose output is read twice, and a norm that is called twice."""

    def __init__(self):
        super().__init__()
        self.read, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.first, self.second, self.shared = nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        y = self.read(x)
        y = y + self.norm(y)
        return self.shared(self.first(y)) + self.shared(self.second(y))


class Branching(nn.Module):
    """Control flow by values, which torch.fx cannot follow."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 3), nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(self.layer(x)) if len(x) > 0 and bool(x.isfinite().all()) else x[:, :3]


CASES = {
    "linear": (nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)), 1),
    "signal": (nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 5, 2),
                             nn.BatchNorm1d(5, affine=False), nn.Flatten()), 1),
    "volume": (nn.Sequential(nn.Unflatten(1, (1, 1, 2, 2)), nn.Conv3d(1, 5, 1), nn.BatchNorm3d(5),
                             nn.Flatten()), 1),
    "residual": (nn.Sequential(nn.Unflatten(1, (1, 2, 2)), Residual()), 2),
    "twice": (Twice(), 0),
    "positions": (nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Linear(2, 3), nn.BatchNorm1d(2),
                                nn.Flatten()), 0),
    "no statistics": (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False)),
                      0),
    "branching": (Branching(), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_folding_changes_no_output(name):
    net, count = CASES[name]
    net = with_statistics(deepcopy(net)).double()
    before = deepcopy(net.state_dict())
    x = torch.randn(7, 4, generator=models.generator(1), dtype=torch.float64)
    found, folds = folded(net)
    assert folds == count
    torch.testing.assert_close(found(x), net(x), rtol=1e-12, atol=1e-12)
    assert not any(p.requires_grad for p in found.parameters())
    assert all(p.requires_grad for p in net.parameters())
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    left = sum(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in found.modules())
    assert (
        left == sum(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in net.modules()) - count
    )


def test_a_layer_with_a_hook_is_left_alone():
    net = with_statistics(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    net[0].register_forward_hook(lambda *_: None)
    assert folded(net)[1] == 0


@pytest.fixture(scope="module")
def residual():
    net = with_statistics(nn.Sequential(nn.Unflatten(1, (1, 4, 4)), Residual())).double()
    return cr.Classifier(net), torch.randn(30, 16, generator=models.generator(2)).double()


def test_profiles_and_identity_are_the_same(residual):
    clf, x = residual
    found = cr.accelerate(clf, x)
    assert found.notes[0] == "2 batch norms folded"
    assert "inputs are torch.float64" in found.notes[-1]
    assert clf.notes == ()
    assert quick_digest(found) == quick_digest(clf)
    for effort in ("solve", "decide"):
        one, other = (cr.credibility(c, x, gamma=20.0, effort=effort) for c in (clf, found))
        torch.testing.assert_close(one.credence, other.credence)
        assert float((one.credibility - other.credibility).abs().median()) < 1e-6
        assert one.settings.model == other.settings.model


def test_a_judge_of_one_works_with_the_other(residual, tmp_path):
    clf, _ = residual
    x = torch.randn(150, 16, generator=models.generator(3)).double()
    cr.Judge.fit(clf, x).save(tmp_path / "judge")
    again = cr.Judge.load(tmp_path / "judge", cr.accelerate(clf, x))
    expected = cr.Judge.load(tmp_path / "judge", clf)(x)
    torch.testing.assert_close(again(x).trust, expected.trust)


@pytest.fixture
def drafted(monkeypatch):
    monkeypatch.setattr(fast, "WORTH_IT", 0.0)  # whatever this machine is good at
    sample = load_sample()
    clf = cr.accelerate(cr.Classifier(sample.net), sample.images[:50])
    return clf, sample.images[50:80]


def test_a_draft_takes_the_steps_and_all_numbers_are_exact(drafted):
    clf, x = drafted
    assert clf.notes[-2] == "steps of decision-grade solves in bfloat16"
    assert clf.notes[-1].endswith("of the classes ahead at x+ change")
    plain = cr.Classifier(clf.original)
    descent = cr.solvers.FixedDescent(radius=0.5)
    one, other = (cr.credibility(c, x, gamma=200.0, solver=descent) for c in (plain, clf))
    assert other.passes.tolist() == pytest.approx([9 + 2 / 3] * 30)  # nine, and x0 and x+ exactly
    torch.testing.assert_close(other.credence, one.credence, rtol=1e-4, atol=1e-5)
    exact = -plain.losses(other.perturbed)
    torch.testing.assert_close(other.credibility, exact.detach(), rtol=1e-4, atol=1e-4)
    assert bool((other.certificate.decrease >= 0).all())
    ratio = other.certificate.objective / one.certificate.objective
    assert float(ratio.median()) == pytest.approx(1.0, abs=0.02)
    top = cr.credibility(clf, x, gamma=200.0, solver=descent, top=3)
    assert top.passes.tolist() == pytest.approx([9 + 2 / 3] * 30)
    full = cr.credibility(clf, x[:3], gamma=200.0, solver=cr.solvers.LBFGS(steps=3))
    again = cr.credibility(plain, x[:3], gamma=200.0, solver=cr.solvers.LBFGS(steps=3))
    torch.testing.assert_close(full.credibility, again.credibility, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("gain", "words"), [(1.5, "channels last"), (0.9, "it is 0.90 times")])
def test_a_cpu_gets_another_layout_where_it_is_faster(monkeypatch, gain, words):
    monkeypatch.setattr(fast, "_gain", lambda *_: gain)
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)).eval()
    x = torch.rand(20, 2, 4, 4)
    found = cr.accelerate(cr.Classifier(net), x, draft=False)
    assert words in found.notes[-1]
    laid_out = found.net[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert laid_out == (gain > 1.1)
    assert net[0].weight.is_contiguous()
    torch.testing.assert_close(found.losses(x), cr.Classifier(net).losses(x))


class Viewing(nn.Module):
    """A forward that works in one layout only, or reads the order in memory."""

    def __init__(self, how):
        super().__init__()
        self.layer, self.norm, self.how = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), how
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        y = self.norm(self.layer(x))
        n = y.size(0)
        flat = y.view(n, -1) if self.how == "view" else y.as_strided((n, 16), (16, 1))
        return self.head(flat)


@pytest.mark.parametrize(("how", "words"), [("view", "fails"), ("memory", "differs by")])
def test_a_layout_in_which_the_network_fails_or_differs_is_left_out(monkeypatch, how, words):
    monkeypatch.setattr(fast, "_gain", lambda *_: 2.0)
    torch.manual_seed(0)
    net, x = with_statistics(Viewing(how)), torch.rand(20, 2, 4, 4)
    found = cr.accelerate(cr.Classifier(net), x, draft=False)
    assert found.notes[0] == "1 batch norm folded"
    assert "channels-last layout left out: it" in found.notes[1]
    assert words in found.notes[1]
    torch.testing.assert_close(found.losses(x), cr.Classifier(net).losses(x))


@pytest.mark.parametrize("count", [1, 3, 9])
def test_rounding_changes_no_decision_where_inputs_are_few(monkeypatch, count):
    monkeypatch.setattr(fast, "WORTH_IT", 0.0)
    sample = load_sample()
    for x in (sample.images[:count], sample.images[:count].numpy()):
        assert fast.DRAFTED in cr.accelerate(cr.Classifier(sample.net), x).notes


def test_without_a_draft_and_a_copy_nothing_is_watched(monkeypatch):
    monkeypatch.setattr(fast, "WORTH_IT", 0.0)
    monkeypatch.setattr(fast, "folded", lambda net: (net, 0))
    net, x = nn.Linear(4, 3).eval(), torch.randn(20, 4)
    found = fast.without_draft(
        fast.faster_copy(cr.Classifier(net), x, draft=True, compiled=False), "it does not serve"
    )
    assert found.net is net
    assert found.watched is None
    net.weight.data.add_(1.0)
    found.losses(x)


def test_a_draft_that_decides_otherwise_is_left_out(monkeypatch):
    """Logits that half precision hardly changes, and gradients that it turns round."""

    class Turning(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            z = self.layer(x)
            return z + 2 * (z.detach() - z) if torch.is_autocast_enabled("cpu") else z

    monkeypatch.setattr(fast, "WORTH_IT", 0.0)
    torch.manual_seed(0)
    clf = cr.Classifier(Turning().eval())
    x = torch.randn(40, 4)
    assert fast.faster_copy(clf, x, draft=True, compiled=False).draft is not None
    found = cr.accelerate(clf, x)
    assert found.draft is None
    assert "of the decisions change, and 0.0% by reordering" in found.notes[-1]
    assert fast.DRAFTED not in found.notes
    one, other = (cr.credibility(c, x, gamma=5.0, effort="decide") for c in (clf, found))
    torch.testing.assert_close(one.credibility, other.credibility)


def test_half_precision_that_changes_classes_is_no_draft():
    class Cancelling(nn.Module):
        """Two large numbers whose difference decides: bfloat16 has eight bits of them."""

        def __init__(self):
            super().__init__()
            self.same = nn.Linear(4, 3)

        def forward(self, x):
            large = self.same(x) + 1000.0
            return (
                large.to(torch.bfloat16).float() - 1000.0
                if torch.is_autocast_enabled("cpu")
                else large - 1000.0
            )

    clf = cr.accelerate(cr.Classifier(Cancelling().eval()), torch.randn(40, 4))
    assert clf.draft is None
    assert "of the classes change" in clf.notes[-1]


def test_a_copy_that_differs_is_not_used(monkeypatch):
    def wrong(net):
        other = deepcopy(net)
        other[0].weight.data.mul_(1.01)
        return other, 0

    monkeypatch.setattr(fast, "folded", wrong)
    net = nn.Sequential(nn.Linear(4, 3)).eval()
    found = cr.accelerate(cr.Classifier(net), torch.randn(9, 4), draft=False)
    assert found.net is net
    assert "differs by" in found.notes[0]


@pytest.mark.parametrize(
    "clf",
    [
        cr.Classifier(lambda x: x @ torch.ones(4, 3)),
        cr.Classifier(nn.Linear(4, 3), space=cr.Space(scale=torch.ones(4))),
    ],
    ids=["function", "space"],
)
def test_what_cannot_be_copied_stays(clf):
    found = cr.accelerate(clf, torch.randn(5, 4))
    assert found.net is clf.net
    assert "only plain inputs of an nn.Module" in found.notes[0]


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (None, "a tensor or a NumPy array"),
        ([[1.0] * 4], "a tensor or a NumPy array"),
        (torch.zeros(0, 4), "at least one sample"),
        (torch.full((5, 4), torch.nan), "none in 5.*ordinary"),
        (torch.zeros(5, 4).double(), "precision torch.float32"),
    ],
)
def test_inputs_are_needed(x, words):
    with pytest.raises(cr.errors.InvalidArgumentError, match=rf"`x`.*{words}"):
        cr.accelerate(cr.Classifier(nn.Linear(4, 3)), x)


def test_inputs_of_another_shape_are_refused_with_what_to_do():
    with pytest.raises(cr.errors.ModelError, match=r"failed on a batch of shape \(2, 3\)"):
        cr.accelerate(cr.Classifier(nn.Linear(4, 3).eval()), torch.randn(5, 3))


class Remembers(nn.Module):
    """A forward that keeps what it computes, and counts its calls."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.seen = nn.Linear(4, 3), nn.BatchNorm1d(3), []

    def forward(self, x):
        self.seen.append(self.norm(self.layer(x)))
        return self.seen[-1]


def test_a_forward_that_keeps_what_it_computes_is_not_traced():
    net = with_statistics(Remembers())
    found, count = folded(net)
    assert count == 1
    assert net.seen == found.seen == []


class Penalised(nn.Module):
    """A forward that reads a number of its norm, which is not there once it is folded."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 3), nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(self.layer(x)) / (1 + self.norm.running_var.mean())


def test_a_network_that_fails_once_it_is_folded_stays():
    net, x = with_statistics(Penalised()), torch.randn(9, 4)
    found = cr.accelerate(cr.Classifier(net), x, draft=False)
    assert found.net is net
    assert "nothing done: the faster network fails (AttributeError" in found.notes[0]
    assert torch.equal(found.losses(x), cr.Classifier(net).losses(x))
