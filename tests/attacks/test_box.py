from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import credibly as cr
from credibly.attacks.ball import Ball, outer

LOW, HIGH = (-1.5, -0.5, 0.0), (2.0, 0.25, 1.0)
BOX = (LOW, HIGH)
COMMON = {"eps": 0.2, "bounds": BOX, "steps": 4}
SYSTEM = cr.attacks.System.most_credible(gamma=20.0, solver=cr.solvers.LBFGS(steps=5))
ATTACKS = {
    "pgd": cr.attacks.PGD(**COMMON),
    "square": cr.attacks.Square(**COMMON),
    "inverse": cr.attacks.InverseMap(**COMMON, system=SYSTEM),
    "bpda": cr.attacks.BPDA(**COMMON, system=SYSTEM),
    "apgd": cr.attacks.TransferAPGD(**COMMON, targets=2),
}


def images(count=6, seed=0, dtype=torch.float64):
    """Images whose channels fill boxes of their own, edges included."""
    g = torch.Generator().manual_seed(seed)
    share = (1.4 * torch.rand(count, 3, 4, 4, generator=g, dtype=torch.float64) - 0.2).clamp(0, 1)
    low, high = (torch.tensor(v, dtype=dtype).reshape(3, 1, 1) for v in BOX)
    return torch.minimum(torch.maximum(low + (high - low) * share.to(dtype), low), high)


def classifier():
    g = torch.Generator().manual_seed(1)
    weight = torch.randn(48, 5, generator=g, dtype=torch.float64)
    return weight, cr.Classifier(lambda x: x.flatten(1) @ weight.to(x))


def channels_inside(x):
    """By a loop over channels."""
    return all(
        float(x[:, c].min()) >= torch.tensor(LOW[c]).to(x)
        and float(x[:, c].max()) <= torch.tensor(HIGH[c]).to(x)
        for c in range(3)
    )


@given(
    seed=st.integers(0, 500),
    eps=st.floats(1e-3, 3.0),
    kind=st.sampled_from(["linf", "l2"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_points_stay_in_the_box_of_their_channel(seed, eps, kind, dtype):
    x = images(3, seed, dtype)
    away = x + 3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    found = Ball.around(x, eps, kind, BOX).finished(away)
    shift = (found.double() - x.double()).flatten(1)
    length = shift.abs().amax(1) if kind == "linf" else shift.norm(dim=1)
    assert bool((length <= eps).all())
    assert channels_inside(found)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_keeps_them_and_still_works(name, norm):
    weight, clf = classifier()
    x = images(dtype=torch.float32)
    labels = (x.flatten(1) @ weight.float()).argmax(1)
    attack = replace(ATTACKS[name], norm=norm, eps=0.4 if norm == "linf" else 1.5)
    found = attack(clf, x, labels)
    shift = (found.double() - x.double()).flatten(1)
    length = shift.abs().amax(1) if norm == "linf" else shift.norm(dim=1)
    assert float(length.max()) <= attack.eps
    assert channels_inside(found)
    before, after = (clf.losses(v).gather(1, labels[:, None]).mean() for v in (x, found))
    assert float(after) > 1.5 * float(before)


def test_equal_boxes_of_channels_are_one_pair_of_numbers():
    weight, clf = classifier()
    x = images().clamp(0, 0.25)
    labels = (x.flatten(1) @ weight).argmax(1)
    for make in (
        cr.attacks.PGD,
        cr.attacks.Square,
        lambda **s: cr.attacks.TransferAPGD(**s, targets=2),
    ):
        one = make(eps=0.2, steps=4, bounds=(0.0, 0.25))(clf, x, labels)
        three = make(eps=0.2, steps=4, bounds=((0.0,) * 3, 0.25))(clf, x, labels)
        torch.testing.assert_close(one, three, rtol=0, atol=1e-12)


def test_auto_pgd_finds_the_corner_of_a_linear_model():
    weight, _ = classifier()
    two = weight[:, :2]
    clf = cr.Classifier(lambda x: x.flatten(1) @ two)
    x = images()
    labels = torch.zeros(len(x), dtype=torch.long)
    way = (two[:, 1] - two[:, 0]).sign().reshape(3, 4, 4)
    low, high = (torch.tensor(v, dtype=torch.float64).reshape(3, 1, 1) for v in BOX)
    corner = torch.minimum(torch.maximum(x + 0.2 * way, low), high)
    attack = cr.attacks.TransferAPGD(eps=0.2, bounds=BOX, steps=60, kinds=("ce",))
    best, found = (clf.losses(v)[:, 0] for v in (corner, attack(clf, x, labels)))
    assert bool((found <= best + 1e-9).all())
    torch.testing.assert_close(found, best, rtol=1e-3, atol=1e-4)


def strength(seed):
    """The loss that Auto-PGD reaches on a ReLU network in pixels, and in normalised units."""
    g = torch.Generator().manual_seed(seed)
    first = torch.randn(48, 32, generator=g, dtype=torch.float64)
    last = torch.randn(32, 5, generator=g, dtype=torch.float64) / 4
    mean = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64).reshape(3, 1, 1)
    std, eps = 0.25, 0.2

    def net(x):
        return ((x.flatten(1) - 0.5) @ first).relu() @ last

    shares = 2 * torch.rand(40, 3, 4, 4, generator=g, dtype=torch.float64) - 0.5
    x = shares.clamp(0, 1)  # half of the features lie on a bound
    labels = net(x).argmax(1)
    plain = cr.attacks.TransferAPGD(eps=eps, bounds=(0.0, 1.0), steps=20, kinds=("ce",))
    moved = replace(plain, eps=eps / std, bounds=(-mean / std, (1 - mean) / std))
    clf = cr.Classifier(lambda z: net(z * std + mean))
    found = plain(cr.Classifier(net), x, labels), moved(clf, (x - mean) / std, labels) * std + mean
    return [float(torch.nn.functional.cross_entropy(net(v), labels)) for v in found]


def test_auto_pgd_is_as_strong_in_normalised_units_as_in_pixels():
    pixels, normalised = (sum(values) for values in zip(*map(strength, range(4)), strict=True))
    assert normalised >= 0.98 * pixels


def test_the_outer_box_holds_for_all_channels():
    assert outer(BOX) == (-1.5, 2.0)
    assert outer((0.0, HIGH)) == (0.0, 2.0)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ((LOW[:2], HIGH), "3 of them, one per channel"),
        ((LOW, ("a", 1.0, 2.0)), "3 of them"),
        ((HIGH, LOW), "low < high"),
        ((LOW,), "low, high"),
        (((-1.0, 0.0, 0.0), HIGH), "inputs leave them"),
        ((0.0, 0.1), "inputs span"),
        ((torch.tensor(LOW[:2]), HIGH), "3 of them"),
        ((LOW, torch.ones(3, 4, 4)), "3 of them"),
        ((LOW, torch.tensor([True] * 3)), "3 of them"),
    ],
)
def test_bounds_that_cannot_be_are_refused(bounds, words):
    _, clf = classifier()
    with pytest.raises(cr.errors.InvalidArgumentError, match=words):
        cr.attacks.PGD(eps=0.1, bounds=bounds, steps=1)(
            clf, images(), torch.zeros(6, dtype=torch.long)
        )


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("array", [torch.tensor, np.array], ids=["tensor", "array"])
def test_tensors_and_arrays_of_one_number_per_channel_are_tuples(name, array):
    weight, clf = classifier()
    x = images()
    labels = (x.flatten(1) @ weight).argmax(1)
    box = (array(LOW).reshape(3, 1, 1), array(HIGH))
    attack = replace(ATTACKS[name], bounds=box, steps=2)
    assert attack == replace(ATTACKS[name], steps=2)
    assert torch.equal(attack(clf, x, labels), replace(ATTACKS[name], steps=2)(clf, x, labels))
    single = replace(ATTACKS[name], bounds=(array(-1.5), array(2.0)))
    assert single.bounds == (-1.5, 2.0)


def test_rows_without_numbers_do_not_break_the_bounds():
    _, clf = classifier()
    x = images()
    x[2, 0, 0, 0] = torch.nan
    found = cr.attacks.PGD(**COMMON)(clf, x, torch.zeros(6, dtype=torch.long))
    assert torch.equal(found[2].nan_to_num(7.0), x[2].nan_to_num(7.0))
    assert channels_inside(found[[0, 1, 3, 4, 5]])
