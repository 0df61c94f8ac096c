"""No call runs a network in training mode, or answers by a copy of weights that have changed."""

from copy import deepcopy

import pytest
import torch
from torch import nn

import credibly as cr
from credibly.decide.ordinary import Ordinary
from credibly.model.watched import Watched
from tests.model.test_fast import with_statistics


def training():
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    return net, net[1].running_mean.clone()


@pytest.mark.parametrize(
    "call",
    [
        cr.accelerate,
        cr.auto_gamma,
        cr.baselines.Mahalanobis.fit,
        cr.baselines.ReAct.fit,
        cr.baselines.NearestNeighbours.fit,
        cr.baselines.ASH(),
        cr.Judge.fit,
        lambda clf, x: cr.credibility(clf, x, gamma=1.0),
    ],
)
def test_no_network_in_training_mode_runs(call):
    net, before = training()
    with pytest.raises(cr.errors.ModelError, match=r"training mode.*net\.eval\(\)"):
        call(cr.Classifier(net), torch.randn(150, 4))
    assert torch.equal(net[1].running_mean, before)


def test_a_judge_checks_before_it_makes_a_faster_copy(monkeypatch):
    copied = []
    monkeypatch.setattr(Ordinary, "accelerated", lambda given: copied.append(given) or given)
    with pytest.raises(cr.errors.ModelError, match="model failed"):
        cr.Judge.fit(nn.Linear(3, 3), torch.randn(150, 4))
    with pytest.raises(cr.errors.InvalidArgumentError, match="at least 99 usable"):
        cr.Judge.fit(nn.Linear(4, 3), torch.full((150, 4), torch.nan))
    assert not copied


@pytest.mark.parametrize("again", ["judge", "profile", "loaded"])
def test_a_judge_refuses_a_network_that_was_put_into_training_mode(again, tmp_path):
    net, _ = training()
    net.eval()
    judge, x = cr.Judge.fit(net, torch.randn(150, 4)), torch.randn(5, 4)
    found = judge(x)
    net.train()
    before = net[1].running_mean.clone()
    if again == "loaded":
        judge.save(tmp_path / "judge")
        judge = cr.Judge.load(tmp_path / "judge", net)
    with pytest.raises(cr.errors.ModelError, match="training mode"):
        found.profile_of(0) if again == "profile" else judge(x)
    assert torch.equal(net[1].running_mean, before)
    net.eval()
    assert judge(x).trust.tolist() == found.trust.tolist()


def change_in_place(net):
    with torch.no_grad():
        net[3].weight.mul_(3)


def replace_one(net):
    net[3].bias = nn.Parameter(torch.ones(3))


def load_others(net):
    net.load_state_dict({name: value + 1 for name, value in net.state_dict().items()})


def train_a_step(net):
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    net(torch.randn(9, 4)).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("change", [change_in_place, replace_one, load_others, train_a_step])
def test_a_copy_whose_original_has_changed_refuses_to_answer(change):
    net, x = with_statistics(training()[0]), torch.randn(150, 4)
    clf = cr.Classifier(net)
    quick = cr.accelerate(clf, x, draft=False)
    judge = cr.Judge.fit(quick, x)
    copied = deepcopy(quick)
    change(net)
    calls = [
        lambda: cr.credibility(quick, x, gamma=1.0), lambda: judge(x[:2]),
        lambda: quick.predict(x), lambda: quick.logits(x), lambda: quick.losses(x),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(
            cr.errors.ModelError, match=r"weights.*have changed.*(accelerate\(|Fit a Judge)"
        ):
            call()
    cr.credibility(clf, x[:2], gamma=1.0)
    cr.credibility(copied, x[:2], gamma=1.0)  # its original is a copy as well
    with pytest.raises(cr.errors.ModelError, match="have changed"):
        cr.credibility(deepcopy(quick), x[:2], gamma=1.0)  # what is stale stays so
    again = cr.accelerate(clf, x, draft=False)
    assert torch.allclose(again.losses(x), clf.losses(x), atol=1e-5)


@pytest.mark.parametrize("change", [change_in_place, replace_one, load_others, train_a_step])
def test_a_judge_refuses_other_weights_than_it_was_fitted_on(change, tmp_path):
    net, x = with_statistics(training()[0]), torch.randn(150, 4)
    judge = cr.Judge.fit(net, x)
    judge.save(tmp_path / "judge")
    loaded, before = cr.Judge.load(tmp_path / "judge", net), judge(x[:5]).trust
    net.load_state_dict({name: value.clone() for name, value in net.state_dict().items()})
    assert judge(x[:5]).trust.tolist() == before.tolist()  # written, but the same
    change(net)
    for one in (judge, loaded, deepcopy(judge)):
        with pytest.raises(cr.errors.ModelError, match=r"weights.*have changed.*Fit a Judge"):
            one(x[:5])


def test_a_tensor_with_the_address_of_one_that_is_gone_is_another():
    net = with_statistics(training()[0])
    missed = 0
    for _ in range(30):
        seen = Watched(net)
        for _ in range(2):  # the second is often put where the first one was
            net[1].running_mean = torch.randn(8)
        missed += not seen.changed
    assert missed == 0


def test_what_changes_no_weight_is_allowed():
    net, x = with_statistics(training()[0]), torch.randn(20, 4)
    quick = cr.accelerate(cr.Classifier(net), x, draft=False)
    net.train().requires_grad_(False).eval()
    net(x).sum()
    cr.credibility(quick, x, gamma=1.0)
