"""Trust: which signals count, and how much, by how sharp the model is."""

import math

import pytest
import torch
from torch import nn

import credibly as cr
from credibly.decide.learn import trust_of
from credibly.decide.recipe import BEYOND, TrustRecipe, shares_of
from tests.reference import models


@pytest.mark.parametrize(
    ("sharpness", "p_norm", "ratio"),
    [
        (-3.0, 0.0, 0.0),
        (0.0, 0.0, 0.0),
        (1.7, 0.0, 0.0),
        (1.85, 0.25, 0.125),
        (2.0, 0.5, 0.25),
        (50.0, 0.5, 0.25),
        (math.inf, 0.5, 0.25),
    ],
)
def test_the_profile_counts_where_the_model_is_sharp(sharpness, p_norm, ratio):
    assert shares_of(sharpness) == {
        "confidence": 1.0, "p_norm": pytest.approx(p_norm), "predicted_ratio": pytest.approx(ratio),
    }  # fmt: skip


def signals(count=200, *, middle=4.0, seed=0):
    g = models.generator(seed)
    draw = lambda: torch.randn(count, generator=g, dtype=torch.float64)  # noqa: E731
    return {"confidence": middle + draw(), "p_norm": 3 * draw(), "predicted_ratio": 1 + draw()}


def quartiles(values):
    low, middle, high = values.quantile(torch.tensor([0.25, 0.5, 0.75]).double()).tolist()
    return middle, high - low


def test_trust_is_the_sum_of_signals_in_units_of_their_spread():
    known = signals()
    looked_at = torch.arange(200) % 4 == 0
    recipe = TrustRecipe.fit(known, looked_at)
    shares = shares_of(quartiles(known["confidence"])[0] / quartiles(known["confidence"])[1])
    assert all(share > 0 for share in shares.values())
    centre, unit = quartiles(known["predicted_ratio"][looked_at])
    new = signals(7, seed=1)
    new["predicted_ratio"][3] = math.nan  # was not looked at: neither better nor worse
    expected = (
        new["confidence"] / quartiles(known["confidence"])[1]
        + shares["p_norm"] * new["p_norm"] / quartiles(known["p_norm"])[1]
        + shares["predicted_ratio"] * ((new["predicted_ratio"] - centre) / unit).nan_to_num(0.0)
    )
    torch.testing.assert_close(recipe(new), expected)
    torch.testing.assert_close(TrustRecipe.from_json(recipe.as_json())(new), expected)


@pytest.mark.parametrize("telling", ["confidence", "p_norm"])
def test_labels_choose_the_recipe_that_ranks_better(telling):
    known = signals()  # without labels, something of everything
    right = known[telling] > known[telling].quantile(0.1)
    looked_at = torch.ones(200, dtype=torch.bool)
    chosen = TrustRecipe.fit(known, looked_at, right)
    expected = {"confidence"} if telling == "confidence" else set(shares_of(9.0))
    assert set(chosen.shares) == expected
    assert set(TrustRecipe.fit(known, looked_at).shares) == set(shares_of(9.0))
    everything_right = TrustRecipe.fit(known, looked_at, torch.ones(200, dtype=torch.bool))
    assert set(everything_right.shares) == {"confidence"}  # nothing speaks against it
    low, high = chosen(known).quantile(torch.tensor([0.05, 0.95]).double()).tolist()
    assert chosen.drop == pytest.approx(high - low)


def test_what_is_far_too_strange_is_trusted_less_and_keeps_its_order():
    known = signals()
    recipe = TrustRecipe.fit(known, torch.ones(200, dtype=torch.bool))
    strange = torch.tensor([1.0, 2.0 + BEYOND, 2.1 + BEYOND, 99.0]).double().repeat(50)
    found = recipe(known) - trust_of(recipe, known, strange, 2.0)
    torch.testing.assert_close(
        found, recipe.drop * torch.tensor([0.0, 0, 1, 1]).double().repeat(50)
    )


def test_without_a_profile_or_spread_confidence_ranks():
    known = signals()
    del known["predicted_ratio"]
    known["p_norm"] = torch.zeros(200, dtype=torch.float64)
    recipe = TrustRecipe.fit(known, torch.zeros(200, dtype=torch.bool))
    assert set(recipe.shares) == {"confidence"}
    assert torch.equal(recipe(known).argsort(), known["confidence"].argsort())
    known["confidence"] = torch.ones(200, dtype=torch.float64)
    same = TrustRecipe.fit(known, torch.zeros(200, dtype=torch.bool))
    assert bool((same(known) == 0).all())


@pytest.mark.parametrize(
    "change",
    [
        {"units": {"confidence": 0.0}},
        {"units": {"confidence": -1.0}},
        {"units": {"confidence": math.nan}},
        {"units": {"confidence": "1"}},
        {"units": {"confidence": True}},
        {"units": {}},
        {"shares": {"p_norm": 1.0}},
        {"units": {"other": 1.0}, "shares": {"other": 1.0}},
        {"centre": math.inf},
        {"centre": None},
        {"drop": -1.0},
        {"drop": math.nan},
    ],
)
def test_json_that_cannot_be_a_recipe_is_refused(change):
    good = {"units": {"confidence": 1.0}, "shares": {"confidence": 1.0}, "centre": 0.0, "drop": 2.0}
    TrustRecipe.from_json(good)
    with pytest.raises(cr.errors.FileFormatError):
        TrustRecipe.from_json(good | change)


def test_two_classes_do_not_rest_on_a_constant():
    """Of two classes, the largest logit over the p-norm of centred logits is always the same."""
    x = models.inputs(300)
    for net in (models.smooth_network(classes=2), models.smooth_network(classes=1)):
        judge = cr.Judge.fit(net, x)
        assert "p_norm" not in judge.recipe.shares
        found = judge(x)
        assert "p_norm" not in found.signals
        assert float(found.trust.std()) > 0
    many = cr.Judge.fit(models.smooth_network(classes=3), x)
    assert "p_norm" in many(x[:2]).signals


def test_a_small_calibrated_model_keeps_its_ranking():
    """Logistic regression on its own kind of data: nothing beats its confidence."""
    g = models.generator(0)
    net = nn.Linear(4, 2).double().eval()
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, 0.5, 0.2, 0.0], [0.0] * 4]))
        net.bias.zero_()
    x = torch.randn(800, 4, generator=g, dtype=torch.float64)
    found = cr.Judge.fit(net, x[:300])(x[300:])
    calm = found.codes <= 1  # an alarm takes trust away
    trust, sure = found.trust[calm], found.signals["confidence"][calm]
    ranks = torch.stack([trust.argsort().argsort(), sure.argsort().argsort()]).double()
    assert float(torch.corrcoef(ranks)[0, 1]) > 0.97
