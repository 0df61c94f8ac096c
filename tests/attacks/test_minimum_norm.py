"""Attacks from foolbox, against distances that are known."""

import sys

import pytest
import torch
from torch import nn

import credibly as cr
from credibly import Classifier
from credibly.attacks import minimum_norm_attacks
from credibly.errors import InvalidArgumentError
from tests.reference import models

NAMES = ["deepfool", "carlini-wagner", "decoupled direction and norm"]


def affine_binary(count=6, features=5):
    """A hyperplane through points far from the bounds, and the distances to it."""
    g = models.generator(1)
    w = torch.randn(features, generator=g, dtype=torch.float64)
    x = torch.randn(count, features, generator=g, dtype=torch.float64)
    distance = (x @ w + 0.1).abs() / w.norm()
    return Classifier(lambda u: u @ w + 0.1), x, distance


@pytest.mark.parametrize("name", NAMES)
def test_distances_to_a_hyperplane(name):
    clf, x, distance = affine_binary()
    found = minimum_norm_attacks(clf, x, bounds=(-50.0, 50.0), attacks=[name])[name]
    moved = (found - x).norm(dim=1)
    before, after = clf.logits(x)[:, 0] > 0, clf.logits(found)[:, 0] > 0
    changed = before != after
    assert bool(changed.all())
    assert bool((moved >= distance * (1 - 1e-6)).all())  # nothing is nearer than the plane
    most = {"deepfool": 1.05, "carlini-wagner": 1.5, "decoupled direction and norm": 1.3}[name]
    assert bool((moved <= distance * most + 1e-3).all()), moved / distance


def test_labels_change_inside_of_the_bounds_and_the_tradeoff_survives():
    net = models.smooth_network(classes=12)
    x = models.inputs(5).sigmoid()
    before = net(x).argmax(1)
    found = minimum_norm_attacks(
        Classifier(net), x, bounds=(0.0, 1.0), attacks=["deepfool", "decoupled direction and norm"]
    )
    for points in found.values():
        assert points.shape == x.shape
        assert points.dtype == x.dtype
        assert not points.requires_grad
        assert bool(((points >= 0) & (points <= 1)).all())
        stayed = (points == x).all(1)
        assert bool(((net(points).argmax(1) != before) | stayed).all())
        assert not bool(stayed.all())
    clf = Classifier(net)
    profile = cr.credibility(clf, x, gamma=20.0, bounds=(0.0, 1.0), solver=cr.solvers.LBFGS())
    tried = cr.theory.check_tradeoff(clf, profile, others=found, directions=2)
    assert set(found) < set(tried.margins)
    for name, points in found.items():
        losses = clf.losses(points)
        own = profile.risk + profile.credibility.square().sum(1) / 20
        other = (points - x).square().sum(1) + losses.square().sum(1) / 20
        assert torch.allclose(tried.margins[name][:, 0], ((other - own) / own).detach())


def test_given_labels_are_the_ones_to_leave():
    net, x = models.smooth_network(), models.inputs(4)
    wrong = (net(x).argmax(1) + 1) % 5  # left already: nothing has to move
    found = minimum_norm_attacks(
        Classifier(net), x, bounds=(-9.0, 9.0), attacks=["deepfool"], labels=wrong
    )
    assert torch.equal(found["deepfool"], x)


def test_where_an_attack_fails_the_input_stands():
    net = models.smooth_network()
    lead = torch.tensor([1e3, 0, 0, 0, 0], dtype=torch.float64)
    clf, x = Classifier(lambda u: net(u) + lead), models.inputs(3)
    for points in minimum_norm_attacks(
        clf, x, bounds=(-3.0, 3.0), attacks=["deepfool", "decoupled direction and norm"]
    ).values():
        assert torch.equal(points, x)


def test_a_row_that_is_not_finite_costs_the_others_nothing():
    net, x = models.smooth_network(), models.inputs(4)
    clean = minimum_norm_attacks(Classifier(net), x, bounds=(-9.0, 9.0), attacks=["deepfool"])
    x[2, 0] = torch.nan
    found = minimum_norm_attacks(Classifier(net), x, bounds=(-9.0, 9.0), attacks=["deepfool"])
    rows = [0, 1, 3]
    assert torch.allclose(found["deepfool"][rows], clean["deepfool"][rows], atol=1e-12)
    assert bool(found["deepfool"][2, 0].isnan())


def test_chunks_change_nothing_and_settings_arrive():
    clf, x = Classifier(models.smooth_network()), models.inputs(5)
    for name, own in (("deepfool", {}), ("carlini-wagner", {"abort_early": False})):
        given = {"bounds": (-9.0, 9.0), "attacks": [name], "settings": {name: {"steps": 9, **own}}}
        whole = minimum_norm_attacks(clf, x, **given)[name]
        parts = minimum_norm_attacks(clf, x, chunk_size=2, **given)[name]
        assert torch.allclose(whole, parts, atol=1e-10)
    none = minimum_norm_attacks(clf, x, **given | {"settings": {name: {"steps": 0}}})[name]
    assert torch.equal(none, x)


def test_the_model_is_left_as_found():
    net, x = models.smooth_network(), models.inputs(2)
    kept = torch.full_like(net[0].weight, 3.0)
    net[0].weight.grad = kept
    with torch.inference_mode():
        minimum_norm_attacks(Classifier(net), x.clone(), bounds=(-9.0, 9.0), attacks=["deepfool"])
    assert net[0].weight.grad is kept
    assert bool((kept == 3.0).all())
    assert all(p.grad is None for name, p in net.named_parameters() if name != "0.weight")


@pytest.mark.parametrize("name", NAMES)
def test_no_parameter_gets_a_gradient_even_for_a_moment(name):
    net = models.smooth_network()
    written = []
    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(written.append)
    settings = {name: {"steps": 3}}
    found = minimum_norm_attacks(
        Classifier(net), models.inputs(2), bounds=(-9.0, 9.0), attacks=[name], settings=settings
    )
    assert not torch.equal(found[name], models.inputs(2)) or name == "carlini-wagner"
    assert not written


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"attacks": ["boundary"]}, "^`attacks`.*deepfool.*boundary.*Leave it out"),
        ({"attacks": []}, "^`attacks`"),
        ({"bounds": (0.0, 1.0)}, "^`bounds`.*span.*Widen"),
        ({"bounds": (0.0, torch.inf)}, "^`bounds`"),
        ({"bounds": (-torch.inf, torch.inf)}, "^`bounds`.*finite.*range of the data"),
        ({"bounds": None}, "^`bounds`.*finite"),
        ({"labels": torch.tensor([0, 9, 0])}, "^`labels`.*0 to 4, got 9 for sample 1"),
        ({"settings": {"deep fool": {"steps": 3}}}, r"^`settings`.*\['deep fool'\]"),
        ({"chunk_size": 0}, "^`chunk_size`"),
        ({"labels": torch.zeros(2).long()}, "^`labels`.*one whole number per sample, 3"),
        ({"labels": torch.zeros(3)}, "^`labels`.*float32"),
    ],
)
def test_bad_input_is_refused(settings, match):
    clf, x = Classifier(models.smooth_network()), models.inputs(3)
    with pytest.raises(InvalidArgumentError, match=match):
        minimum_norm_attacks(clf, x, **{"bounds": (-9.0, 9.0), **settings})


def test_spaces_and_modules_are_refused():
    net, x = nn.Sequential(nn.Identity(), models.smooth_network()), models.inputs(2)
    for clf in (Classifier(net, space=cr.Space(scale=2.0)), Classifier(net, module="0")):
        with pytest.raises(InvalidArgumentError, match=r"^`clf`.*plain inputs.*Classifier\(net\)"):
            minimum_norm_attacks(clf, x, bounds=(-9.0, 9.0))
    for other in (net, cr.bind(Classifier(net), x)):
        with pytest.raises(InvalidArgumentError, match=r"^`clf`.*Wrap"):
            minimum_norm_attacks(other, x, bounds=(-9.0, 9.0))


def test_without_foolbox_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "foolbox", None)
    with pytest.raises(cr.errors.MissingExtraError, match=r"credibly\[attacks\]"):
        minimum_norm_attacks(
            Classifier(models.smooth_network()), models.inputs(2), bounds=(-9.0, 9.0)
        )


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_is_not_finite_at_a_row_costs_the_others_nothing(name):
    clf, x, _ = affine_binary()
    bad = x[1, 0].clone()
    broken = Classifier(lambda u: clf.logits(u) + torch.where(u[:, :1] == bad, torch.nan, 0.0))
    settings = {"bounds": (-50.0, 50.0), "attacks": [name]}
    found = minimum_norm_attacks(broken, x, **settings)[name]
    assert torch.equal(found[1], x[1])
    rest = [0, 2, 3, 4, 5]
    alone = minimum_norm_attacks(clf, x[rest], **settings)[name]
    torch.testing.assert_close(found[rest], alone)


def test_where_no_row_is_finite_all_of_them_stand():
    clf, x, _ = affine_binary(2)
    x[:, 0] = torch.nan
    found = minimum_norm_attacks(clf, x, bounds=(-50.0, 50.0), attacks=["deepfool"])["deepfool"]
    assert torch.equal(found.nan_to_num(7.0), x.nan_to_num(7.0))


def test_a_network_in_training_mode_is_refused():
    net = nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5)).double().train()
    with pytest.raises(cr.errors.CrediblyError, match="eval"):
        minimum_norm_attacks(Classifier(net), torch.zeros(2, 5).double(), bounds=(-1.0, 1.0))
