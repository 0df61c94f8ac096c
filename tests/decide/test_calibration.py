"""Venn-Abers against two refits of isotonic regression for every new input."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from credibly.decide.calibration import STEPS, VennAbers
from tests.reference import models


def refitted(scores, wrong, new):
    """Both chances of one input: isotonic regression with it, once right and once wrong."""
    found = []
    for label in (0.0, 1.0):
        fit = IsotonicRegression(increasing=False).fit([*scores, new], [*wrong, label])
        found.append(float(fit.predict([new])[0]))
    return found


def combined(low, high):
    return high / (1 - low + high)


@given(
    st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=40),
    st.integers(-1, 26),
)
def test_it_is_two_refits_also_with_ties(pairs, place):
    scores, wrong = [float(s) for s, _ in pairs], [float(bad) for _, bad in pairs]
    known = VennAbers.fit(torch.tensor(scores), torch.tensor(wrong).bool())
    low, high = refitted(scores, wrong, place / 2)
    assert low <= high + 1e-9
    asked = torch.tensor([place / 2])
    assert float(known(asked)) == pytest.approx(combined(low, high), abs=1e-9)


def test_it_is_two_refits_for_real_scores():
    g = models.generator(0)
    scores = torch.randn(60, generator=g, dtype=torch.float64)
    wrong = torch.rand(60, generator=g, dtype=torch.float64) < torch.sigmoid(-2 * scores)
    known = VennAbers.fit(scores, wrong)
    new = torch.cat([scores[:30], torch.linspace(-3, 3, 30, dtype=torch.float64)])
    for score, chance in zip(new.tolist(), known(new).tolist(), strict=True):
        low, high = refitted(scores.tolist(), wrong.double().tolist(), score)
        assert chance == pytest.approx(combined(low, high), abs=1e-9)


@given(st.integers(0, 10_000), st.integers(1, 300))
def test_more_trust_is_never_a_larger_chance_of_being_wrong(seed, count):
    g = models.generator(seed)
    scores = torch.randn(count, generator=g, dtype=torch.float64).mul(3).round() / 3
    wrong = torch.rand(count, generator=g) < 0.3
    found = VennAbers.fit(scores, wrong)(torch.linspace(-5, 5, 201, dtype=torch.float64))
    assert bool((found.diff() <= 1e-12).all())
    assert bool(((found > 0) & (found < 1)).all())  # never quite sure


def test_many_labels_are_grouped_into_steps():
    scores = torch.randn(5000, generator=models.generator(2), dtype=torch.float64)
    wrong = torch.rand(5000, generator=models.generator(3)) < torch.sigmoid(-scores)
    known = VennAbers.fit(scores, wrong)
    assert len(known.scores) == STEPS
    assert len(known.low) == len(known.high) == 2 * STEPS + 1
    np.testing.assert_allclose(known(scores), torch.sigmoid(-scores), atol=0.12)


def test_scores_without_a_number_have_no_chance():
    known = VennAbers.fit(torch.arange(30.0), torch.arange(30) < 10)
    assert known(torch.tensor([math.nan, 29.0])).isnan().tolist() == [True, False]


@pytest.mark.parametrize("count", [40, 120])
def test_chances_are_right_on_average(count):
    """Over the draw of the labels, of inputs for which it says p, the share p is wrong."""
    told, happened = [], []
    for seed in range(150):
        g = models.generator(seed)
        scores = 2 * torch.randn(count + 200, generator=g, dtype=torch.float64)
        wrong = torch.rand(count + 200, generator=g, dtype=torch.float64) < torch.sigmoid(-scores)
        told.append(VennAbers.fit(scores[:count], wrong[:count])(scores[count:]))
        happened.append(wrong[count:].double())
    told, happened = torch.cat(told), torch.cat(happened)
    assert float(told.mean()) == pytest.approx(float(happened.mean()), abs=0.012)
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        rows = (told >= low) & (told < low + 0.2)
        gap = float(told[rows].mean() - happened[rows].mean())
        assert abs(gap) < (0.04 if count == 120 else 0.08), (low, gap)
