import warnings

import pytest
import torch
from torch import nn

import credibly as cr
from credibly.attacks.ball import Ball
from credibly.attacks.noise import sample_keys, with_stream
from tests.reference import models


def setting(count=6, dtype=torch.float64):
    net = models.relu_network().to(dtype)
    x = models.inputs(count).to(dtype)
    return net, cr.Classifier(net), x, net(x).argmax(1).detach()


def naive(net, x0, label, start, *, eps, step, steps, norm, bounds):
    """PGD for ONE sample, as written in textbooks."""
    x = start.clone()
    for _ in range(steps):
        leaf = x.clone().requires_grad_(True)
        loss = nn.functional.cross_entropy(net(leaf[None]), label[None])
        (g,) = torch.autograd.grad(loss, leaf)
        if norm == "linf":
            x = torch.clamp(x + step * g.sign(), x0 - eps, x0 + eps).clamp(*bounds)
        else:
            x = x + step * g / g.norm()
            shift = x - x0
            x = x0 + shift * min(1.0, eps / float(shift.norm()))
    return x


@pytest.mark.parametrize(("norm", "bounds"), [("linf", (-2.5, 3.0)), ("l2", (-100.0, 100.0))])
def test_it_equals_a_naive_loop(norm, bounds):
    net, clf, x, labels = setting()
    x = x.clamp(-2.5, 3.0)
    attack = cr.attacks.PGD(
        eps=0.3, norm=norm, bounds=bounds, steps=12, step_size=0.07, restarts=2, seed=5
    )
    found = attack.all_restarts(clf, x, labels)
    keys = with_stream(sample_keys(x, 5), torch.zeros(1, dtype=torch.long))
    ball = Ball.around(x, 0.3, norm, bounds)
    for restart in range(2):
        starts = ball.start(with_stream(keys, torch.tensor([restart])))
        for n in range(len(x)):
            expected = naive(
                net, x[n], labels[n], starts[n], eps=0.3, step=0.07, steps=12, norm=norm,
                bounds=bounds,
            )  # fmt: skip
            assert torch.allclose(found[restart, n], expected, atol=1e-10)


def test_it_equals_foolbox_from_the_same_start():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import foolbox
    net, clf, x, labels = setting(20, torch.float32)
    bounds = (-4.0, 4.0)
    ours = cr.attacks.PGD(eps=0.2, bounds=bounds, steps=9, step_size=0.05, random_start=False)
    theirs = foolbox.attacks.LinfPGD(abs_stepsize=0.05, steps=9, random_start=False)
    model = foolbox.PyTorchModel(net, bounds=bounds, device="cpu")
    expected, _, _ = theirs(model, x, labels, epsilons=0.2)
    assert torch.allclose(ours(clf, x, labels), expected, atol=1e-6)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_neither_batch_mates_nor_chunks_change_the_result(norm):
    _, clf, x, labels = setting(7)
    attack = cr.attacks.PGD(eps=0.4, norm=norm, steps=8, restarts=3)
    together = attack.all_restarts(clf, x, labels)
    for size in (1, 2, 5):
        other = cr.attacks.PGD(eps=0.4, norm=norm, steps=8, restarts=3, chunk_size=size)
        assert torch.allclose(other.all_restarts(clf, x, labels), together, atol=1e-9)
    turned = attack.all_restarts(clf, x.flip(0), labels.flip(0)).flip(1)
    assert torch.allclose(turned, together, atol=1e-9)
    assert torch.allclose(attack.all_restarts(clf, x[3:4], labels[3:4]), together[:, 3:4])


def test_restarts_differ_and_the_worst_is_returned():
    _, clf, x, labels = setting(8)
    attack = cr.attacks.PGD(eps=0.15, steps=3, restarts=4)
    found = attack.all_restarts(clf, x, labels)
    assert not torch.equal(found[0], found[1])
    margins = torch.stack([cr.attacks.System().judge(clf, v, labels).margin for v in found])
    worst = cr.attacks.System().judge(clf, attack(clf, x, labels), labels).margin
    assert torch.allclose(worst, margins.amin(0))


def test_a_target_is_reached():
    _, clf, x, labels = setting(6)
    target = (labels + 1) % 5
    found = cr.attacks.PGD(eps=3.0, steps=60, keep="best")(clf, x, labels, target=target)
    reached = clf.logits(found).argmax(1) == target
    assert float(reached.double().mean()) > 0.6
    verdict = cr.attacks.System().judge(clf, found, labels, target=target)
    assert torch.equal(verdict.success, reached)


def test_the_best_iterate_is_no_worse_than_the_last():
    _, clf, x, labels = setting(8)
    settings = {"eps": 0.3, "steps": 9, "step_size": 0.3, "loss": "goal"}
    last, best = (cr.attacks.PGD(keep=k, **settings)(clf, x, labels) for k in ("last", "best"))
    margin = cr.attacks.System().judge
    assert bool((margin(clf, best, labels).margin <= margin(clf, last, labels).margin).all())


def test_rows_that_are_not_finite_come_back_as_they_are():
    _, clf, x, labels = setting(4)
    x[2, 1] = torch.nan
    found = cr.attacks.PGD(eps=0.3, steps=4, restarts=2)(clf, x, labels)
    assert torch.equal(found[2].isnan(), x[2].isnan())
    clean = cr.attacks.PGD(eps=0.3, steps=4, restarts=2)(clf, x[:2], labels[:2])
    assert torch.allclose(found[:2], clean)


def test_the_generator_and_the_model_are_left_alone():
    net, clf, x, labels = setting(4)
    before = torch.random.get_rng_state()
    cr.attacks.PGD(eps=0.3, steps=3)(clf, x, labels)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(p.grad is None for p in net.parameters())
    with torch.inference_mode():
        cr.attacks.PGD(eps=0.3, steps=3)(clf, x.clone(), labels)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"eps": -1.0}, "eps"),
        ({"eps": float("nan")}, "eps"),
        ({"eps": 0.1, "norm": "l1"}, "norm"),
        ({"eps": 0.1, "steps": 0}, "steps"),
        ({"eps": 0.1, "step_size": 0.0}, "step_size"),
        ({"eps": 0.1, "restarts": 1.5}, "restarts"),
        ({"eps": 0.1, "seed": -1}, "seed"),
        ({"eps": 0.1, "loss": "ce"}, "loss"),
        ({"eps": 0.1, "keep": "all"}, "keep"),
        ({"eps": 0.1, "system": "bare"}, "system"),
    ],
)
def test_bad_settings_are_refused(settings, name):
    with pytest.raises(cr.errors.InvalidArgumentError, match=f"`{name}`"):
        cr.attacks.PGD(**settings)


def test_bad_inputs_are_refused():
    _, clf, x, labels = setting(4)
    attack = cr.attacks.PGD(eps=0.1, steps=2)
    for bad in (labels[:2], labels.double(), ["a"] * 4, None, labels[:, None]):
        with pytest.raises(cr.errors.InvalidArgumentError, match="`labels`"):
            attack(clf, x, bad)
    one = torch.tensor([1, 0, 0, 0])
    for bad in (labels.where(one == 0, 5), labels.where(one == 0, -1)):
        with pytest.raises(cr.errors.InvalidArgumentError, match="`labels`"):
            attack(clf, x, bad)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`target`"):
        attack(clf, x, labels, target=labels)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`bounds`"):
        cr.attacks.PGD(eps=0.1, bounds=(0.0, 1.0))(clf, x, labels)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`clf`"):
        attack(cr.Classifier(clf.net, space=cr.Space()), x, labels)
