"""Trust: confidence, and how much the agreement of neighbours counts beside it."""

import math

import pytest
import torch

import credibly as cr
from credibly.decide.recipe import AGREEMENT, DISAGREE, TrustRecipe, agreement_share
from tests.reference import models


def signals(count=200, *, seed=0, disagree=0.0):
    """Confidence and an agreement that is positive but for a share of the inputs."""
    g = models.generator(seed)
    draw = lambda: torch.randn(count, generator=g, dtype=torch.float64)  # noqa: E731
    agreement = 0.1 + draw().abs()
    agreement[: round(disagree * count)] *= -1
    return {"confidence": 4 + draw(), "agreement": agreement}


def quartiles(values):
    low, middle, high = values.quantile(torch.tensor([0.25, 0.5, 0.75]).double()).tolist()
    return middle, high - low


@pytest.mark.parametrize(
    ("disagree", "share"), [(0.0, 1.0), (0.075, 0.5), (DISAGREE, 0.0), (0.6, 0.0)]
)
def test_agreement_counts_where_neighbours_agree(disagree, share):
    assert agreement_share(signals(disagree=disagree)) == pytest.approx(AGREEMENT * share)


def test_inputs_whose_class_no_neighbour_has_do_not_agree():
    known = signals()
    known["agreement"][:15] = math.nan
    assert agreement_share(known) == pytest.approx(AGREEMENT / 2)
    assert agreement_share({"confidence": known["confidence"]}) == 0.0


def test_trust_is_the_sum_of_signals_in_units_of_their_spread():
    known = signals()
    recipe = TrustRecipe.fit(known)
    middle, unit = quartiles(known["agreement"])
    new = signals(7, seed=1)
    new["agreement"][3] = math.nan  # neither better nor worse than usual
    expected = new["confidence"] / quartiles(known["confidence"])[1] + AGREEMENT * (
        (new["agreement"] - middle) / unit
    ).nan_to_num(0.0)
    torch.testing.assert_close(recipe(new), expected)
    torch.testing.assert_close(TrustRecipe.from_json(recipe.as_json())(new), expected)


def test_views_stand_in_for_confidence():
    known = signals()
    known["views"] = known["confidence"].flip(0)
    recipe = TrustRecipe.fit(known)
    assert set(recipe.shares) == {"views", "agreement"}
    del known["agreement"]
    assert torch.equal(TrustRecipe.fit(known)(known).argsort(), known["views"].argsort())


@pytest.mark.parametrize("telling", ["confidence", "agreement"])
def test_labels_choose_the_recipe_that_ranks_better(telling):
    known = signals(disagree=0.5)
    right = known[telling] > known[telling].quantile(0.1)
    chosen = TrustRecipe.fit(known, right)
    expected = {"confidence"} | ({"agreement"} if telling == "agreement" else set())
    assert set(chosen.shares) == expected
    assert set(TrustRecipe.fit(known).shares) == {"confidence"}  # where they do not agree
    everything_right = TrustRecipe.fit(known, torch.ones(200, dtype=torch.bool))
    assert set(everything_right.shares) == {"confidence"}  # nothing speaks against it


def test_without_features_or_spread_confidence_ranks():
    known = signals()
    del known["agreement"]
    recipe = TrustRecipe.fit(known)
    assert set(recipe.shares) == {"confidence"}
    assert torch.equal(recipe(known).argsort(), known["confidence"].argsort())
    known["confidence"] = torch.ones(200, dtype=torch.float64)
    assert bool((TrustRecipe.fit(known)(known) == 0).all())


@pytest.mark.parametrize(
    "change",
    [
        {"units": {"confidence": 0.0}},
        {"units": {"confidence": -1.0}},
        {"units": {"confidence": math.nan}},
        {"units": {"confidence": "1"}},
        {"units": {"confidence": True}},
        {"units": {}},
        {"shares": {"agreement": 1.0}},
        {"units": {"other": 1.0}, "shares": {"other": 1.0}},
        {"centre": math.inf},
        {"centre": None},
    ],
)
def test_json_that_cannot_be_a_recipe_is_refused(change):
    good = {"units": {"confidence": 1.0}, "shares": {"confidence": 1.0}, "centre": 0.0}
    TrustRecipe.from_json(good)
    with pytest.raises(cr.errors.FileFormatError):
        TrustRecipe.from_json(good | change)
