"""The suite as a whole: transfers, defences that are known to be broken, tables, sanity."""

import sys
from functools import partial

import pytest
import torch

import credibly as cr
from credibly.data.sample import load_sample
from tests.reference import models


def rounded(x):
    """Denoising without a derivative."""
    return (x * 2).round() / 2


def setting(count=40):
    net = models.relu_network().float()
    x = models.inputs(count).float()
    return net, x, net(x).argmax(1).detach()


def success(clf, attack, x, labels, system=None):
    verdict = (system or cr.attacks.System()).judge(clf, attack(clf, x, labels), labels)
    return float(verdict.success.double().mean())


def test_masked_gradients_look_robust_and_are_broken():
    net, x, labels = setting()
    clf = cr.Classifier(lambda v: 1e4 * net(v))
    bounds = (-5.0, 5.0)
    settings = {"eps": 0.4, "bounds": bounds}
    assert success(clf, cr.attacks.PGD(**settings, steps=30), x, labels) < 0.35
    assert success(clf, cr.attacks.PGD(**settings, steps=30, loss="goal"), x, labels) > 0.7
    assert success(clf, cr.attacks.BPDA(**settings, steps=30), x, labels) > 0.7
    assert success(clf, cr.attacks.Square(**settings, steps=200), x, labels) > 0.6
    apgd = cr.attacks.TransferAPGD(**settings, steps=30, kinds=("dlr-targeted",), targets=4)
    assert success(clf, apgd, x, labels) > 0.7


def test_rounding_looks_robust_and_is_broken():
    net, x, _ = setting()
    defended, bare = cr.Classifier(net, preprocess=rounded), cr.Classifier(net)
    system = cr.attacks.System(transform=rounded)
    labels = system.judge(bare, x, torch.zeros(len(x), dtype=torch.long)).classes
    with pytest.warns(cr.errors.CrediblyWarning, match="flat"):
        masked = success(defended, cr.attacks.PGD(eps=0.4, steps=30), x, labels)
    knowing = success(bare, cr.attacks.BPDA(eps=0.4, steps=30, system=system), x, labels, system)
    blind = success(bare, cr.attacks.Square(eps=0.4, steps=200, system=system), x, labels, system)
    assert masked < 0.4
    assert knowing > masked + 0.3
    assert blind > masked + 0.3


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_apgd_stays_in_the_ball_and_beats_few_steps_of_pgd(norm):
    net, x, labels = setting()
    clf, bounds = cr.Classifier(net), (-4.0, 4.0)
    x = x.clamp(*bounds)
    settings = {"eps": 0.4 if norm == "linf" else 0.8, "norm": norm, "bounds": bounds}
    attack = cr.attacks.TransferAPGD(**settings, steps=20, targets=2, restarts=2)
    candidates = attack.all_restarts(clf, x, labels)
    assert candidates.shape == (2 * 3, *x.shape)
    found = attack(clf, x, labels)
    shift = (found.double() - x.double()).flatten(1)
    length = shift.abs().amax(1) if norm == "linf" else shift.norm(dim=1)
    assert float(length.max()) <= settings["eps"]
    assert float(found.abs().max()) <= 4.0
    assert success(clf, attack, x, labels) >= success(
        clf, cr.attacks.PGD(**settings, steps=3), x, labels
    )
    alone = attack(clf, x[5:7], labels[5:7])
    assert torch.allclose(alone, found[5:7], atol=1e-4)


def test_a_surrogate_of_ones_own_transfers_less_than_the_model_itself():
    net, x, labels = setting()
    clf, other = cr.Classifier(net), cr.Classifier(models.relu_network(seed=9).float())
    settings = {"eps": 0.4, "bounds": (-5.0, 5.0), "steps": 20, "kinds": ("ce",)}
    own = success(clf, cr.attacks.TransferAPGD(**settings), x, labels)
    borrowed = success(clf, cr.attacks.TransferAPGD(**settings, surrogate=other), x, labels)
    assert borrowed < own
    fewer = cr.Classifier(models.relu_network(classes=3).float())
    with pytest.raises(cr.errors.InvalidArgumentError, match="`surrogate`"):
        cr.attacks.TransferAPGD(**settings, surrogate=fewer)(clf, x, labels)


@pytest.mark.parametrize("classes", [1, 3])
def test_apgd_works_with_few_classes_and_with_targets(classes):
    net = models.relu_network(classes=classes).float()
    clf, x = cr.Classifier(net), models.inputs(6).float()
    labels = cr.attacks.System().judge(clf, x, torch.zeros(6, dtype=torch.long)).classes
    settings = {"eps": 2.0, "bounds": (-5.0, 5.0), "steps": 20}
    assert success(clf, cr.attacks.TransferAPGD(**settings), x, labels) > 0.5
    target = (labels + 1) % max(classes, 2)
    found = cr.attacks.TransferAPGD(**settings)(clf, x, labels, target=target)
    reached = cr.attacks.System().judge(clf, found, labels, target=target)
    assert bool(reached.success.any())
    assert torch.equal(reached.classes[reached.success], target[reached.success])


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    net, x, labels = setting(2)
    with pytest.raises(cr.errors.MissingExtraError, match="pyautoattack"):
        cr.attacks.TransferAPGD(eps=0.1, bounds=(-5.0, 5.0))(cr.Classifier(net), x, labels)


def test_the_worst_case_is_taken_image_by_image():
    clf = cr.Classifier(lambda v: v)
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    labels = torch.zeros(4, dtype=torch.long)
    first, second = x.clone(), x.clone()
    first[0], second[1] = torch.tensor([0.0, 3.0]), torch.tensor([0.0, 2.0])
    second[2] = torch.tensor([0.5, 0.0])  # nearer, but right
    worst = cr.attacks.worst_case(
        {"a": first, "b": second}, cr.attacks.System(), clf=clf, x=x, labels=labels
    )
    assert worst.success.tolist() == [True, True, False, True]
    assert worst.attack == ("a", "b", "b", "clean")
    assert torch.equal(worst.inputs, torch.stack([first[0], second[1], second[2], x[3]]))
    assert worst.alone["a"].tolist() == [True, False, False, True]
    with pytest.raises(cr.errors.InvalidArgumentError, match="`results`"):
        cr.attacks.worst_case({"a": first[:2]}, cr.attacks.System(), clf=clf, x=x, labels=labels)


def test_a_system_that_rejects_counts_only_answers():
    clf = cr.Classifier(lambda v: v)
    x = torch.tensor([[2.0, 0.0], [0.0, 2.0], [0.0, 0.2]])
    labels = torch.zeros(3, dtype=torch.long)
    sure = cr.attacks.System.ranked(
        score=lambda profile: (profile.credence[:, 0] - profile.credence[:, 1]).abs(), gamma=1.0,
        threshold=1.0,
    )  # fmt: skip
    verdict = sure.judge(clf, x, labels)
    assert verdict.accepted.tolist() == [True, True, False]
    assert verdict.success.tolist() == [False, True, False]
    assert verdict.classes.tolist() == [0, 1, 1]


def suite_table(radii=(0.1, 0.3, 6.0), steps=20):
    net, x, labels = setting()
    clf = cr.Classifier(net)
    attacks = {
        "pgd": partial(make_pgd, steps=steps),
        "square": lambda eps: cr.attacks.Square(eps=eps, steps=60),
    }
    return clf, x, labels, cr.attacks.run_attacks(
        clf, x, labels, attacks=attacks, radii=radii, system=cr.attacks.System()
    )  # fmt: skip


def make_pgd(eps, steps):
    return cr.attacks.PGD(eps=eps, steps=steps, loss="goal", keep="best", restarts=2)


def test_the_sanity_list_holds_for_an_undefended_model():
    clf, x, labels, table = suite_table()
    findings = cr.attacks.sanity_checks(table, white=["pgd"], black=["square"])
    assert [finding.holds for finding in findings] == [True, True, True], findings
    few, many = (
        cr.attacks.System().judge(clf, make_pgd(0.3, n)(clf, x, labels), labels).success
        for n in (30, 120)
    )
    assert cr.attacks.more_steps_do_not_help(few, many, slack=0.05).holds
    text = str(table)
    assert "worst case" in text
    assert "square" in text
    assert table.attacks == ("pgd", "square")
    assert table.worst(0.3) >= max(table.rate("pgd", 0.3), table.rate("square", 0.3))


def made_up(**rates):
    """A table of ten images in which each attack succeeds on the first of them."""
    success = {("clean", 0.0): torch.zeros(10, dtype=torch.bool)}
    for name, values in rates.items():
        for eps, count in values.items():
            success[name, eps] = torch.arange(10) < count
    return cr.attacks.AttackTable(success)


@pytest.mark.parametrize(("gap", "holds"), [(0, True), (2, True), (3, False)])
def test_two_in_a_hundred_are_within_the_slack(gap, holds):
    def first(count):
        return torch.arange(100) < count

    success = {("clean", 0.0): first(1), ("white", 0.1): first(50), ("black", 0.1): first(50 + gap)}
    table = cr.attacks.AttackTable(success)
    found = cr.attacks.white_box_beats_black_box(table, white=["white"], black=["black"])
    assert found.holds == holds
    assert cr.attacks.more_steps_do_not_help(first(50), first(50 + gap)).holds == holds
    falling = cr.attacks.AttackTable(
        {**success, ("white", 0.2): first(50), ("black", 0.2): first(50)}
    )
    assert cr.attacks.accuracy_falls_with_eps(falling).holds == holds
    assert not cr.attacks.large_eps_breaks_everything(table).holds


def test_each_item_of_the_sanity_list_can_fail():
    good = made_up(white={0.1: 3, 0.2: 6, 0.9: 10}, black={0.1: 1, 0.2: 4, 0.9: 8})
    assert all(f.holds for f in cr.attacks.sanity_checks(good, white=["white"], black=["black"]))
    masked = made_up(white={0.1: 1, 0.2: 2}, black={0.1: 3, 0.2: 4})
    assert not cr.attacks.white_box_beats_black_box(masked, white=["white"], black=["black"]).holds
    assert not cr.attacks.large_eps_breaks_everything(masked).holds
    odd = made_up(white={0.1: 5, 0.2: 2})
    assert not cr.attacks.accuracy_falls_with_eps(odd).holds
    assert "DOES NOT HOLD" in str(cr.attacks.accuracy_falls_with_eps(odd))
    weak, strong = torch.arange(10) < 3, torch.arange(10) < 8
    assert not cr.attacks.more_steps_do_not_help(weak, strong).holds
    once = made_up(white={0.1: 5, 0.2: 5}, black={0.1: 1, 0.2: 9})
    assert not cr.attacks.white_box_beats_black_box(once, white=["white"], black=["black"]).holds
    mixed = made_up(white={0.1: 7, 0.2: 6}, black={0.1: 7, 0.2: 7})
    for slack, holds in ((0.02, [True, False, False]), (0.15, [True, True, False]),
                         (0.35, [True, True, True])):  # fmt: skip
        found = cr.attacks.sanity_checks(mixed, white=["white"], black=["black"], slack=slack)
        assert [finding.holds for finding in found] == holds
    falls = made_up(white={0.1: 7, 0.2: 5}, black={0.1: 1, 0.2: 1})
    for slack, holds in ((0.15, False), (0.25, True)):
        assert (
            cr.attacks.sanity_checks(falls, white=["white"], black=["black"], slack=slack)[0].holds
            == holds
        )
    with pytest.raises(cr.errors.InvalidArgumentError, match="`attack`"):
        good.rate("white", 0.5)


def test_the_embedded_network_falls_and_the_most_credible_class_with_it():
    sample = load_sample()
    clf, x, labels = cr.Classifier(sample.net), sample.images[:4], sample.labels[:4]
    system = cr.attacks.System.most_credible(gamma=200.0, solver=cr.solvers.LBFGS(steps=15))
    settings = {"eps": 0.05, "bounds": (0.0, 1.0), "steps": 5, "system": system}
    clean = system.judge(clf, x, labels)
    results = {
        "bpda": cr.attacks.BPDA(**settings, solver=cr.solvers.LBFGS(steps=8))(clf, x, labels),
        "gauss-newton": cr.attacks.Surrogate(**settings)(clf, x, labels),
    }
    worst = cr.attacks.worst_case(results, system, clf=clf, x=x, labels=labels)
    assert float(worst.success.double().mean()) > float(clean.success.double().mean())
    assert float((worst.inputs - x).abs().max()) <= 0.05 + 1e-7
    assert int(worst.success.sum()) >= 3
