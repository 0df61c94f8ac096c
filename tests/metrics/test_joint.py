"""Failures and outliers together, against loops over all pairs of thresholds."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import trapezoid

import credibly as cr
from credibly.metrics import aurc, ds_aurc, ds_f1

streams = st.tuples(st.integers(1, 12), st.integers(1, 9), st.integers(0, 10**6))


def stream(known, foreign, seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 6, (2, known + foreign)).astype(float)  # ties are frequent
    correct = rng.random(known) < 0.7
    inside, outside = scores[:, :known], scores[:, known:]
    return inside[0], inside[1], correct, (outside[0], outside[1])


def every_pair(trust, belongs, correct, outliers):
    """Right, ordinary and all answers at each pair of thresholds."""
    for t in set(trust) | set(outliers[0]):
        for s in set(belongs) | set(outliers[1]):
            kept = (trust >= t) & (belongs >= s)
            foreign = ((outliers[0] >= t) & (outliers[1] >= s)).sum()
            yield (kept & correct).sum(), kept.sum(), kept.sum() + foreign


@given(streams)
def test_the_best_f1_over_all_pairs(shape):
    given_ = stream(*shape)
    total, best = len(given_[0]), 0.0
    for right, _, answered in every_pair(*given_):
        if right:
            precision, recall = right / answered, right / total
            best = max(best, 2 * precision * recall / (precision + recall))
    assert ds_f1(*given_) == pytest.approx(best)


@given(streams)
def test_the_smallest_error_at_each_coverage(shape):
    given_ = stream(*shape)
    total, bins = len(given_[0]), np.full(100, np.inf)
    for right, ordinary, answered in every_pair(*given_):
        if answered:
            place = min(int(ordinary / total * 100), 99)
            bins[place] = min(bins[place], 1 - right / answered)
    for k in range(98, -1, -1):
        bins[k] = bins[k] if np.isfinite(bins[k]) else bins[k + 1]
    assert ds_aurc(*given_) == pytest.approx(trapezoid(bins, dx=0.01))


def test_a_score_that_is_always_wrong_has_the_width_that_the_docstring_says():
    nobody = ([], [])
    assert ds_aurc([2.0, 1.0], [1.0, 1.0], [False, False], nobody) == pytest.approx(0.99)


@given(streams, st.booleans())
def test_only_the_order_of_scores_matters(shape, which):
    trust, belongs, correct, outliers = stream(*shape)
    other = [np.exp(part) if which else part**3 for part in (trust, outliers[0])]
    for metric in (ds_f1, ds_aurc):
        assert metric(other[0], belongs, correct, (other[1], outliers[1])) == pytest.approx(
            metric(trust, belongs, correct, outliers)
        )


def test_a_second_score_never_harms_and_helps_where_it_finds_the_outliers():
    torch.manual_seed(0)
    correct = torch.rand(1000) < 0.8
    trust, foreign = torch.randn(1000) + 2 * correct, torch.randn(300) + 2
    one, two = torch.zeros(1000), torch.zeros(300)
    perfect = torch.ones(1000), torch.zeros(300)
    blind, seeing = (
        (trust, one, correct, (foreign, two)),
        (trust, perfect[0], correct, (foreign, perfect[1])),
    )
    assert ds_f1(*seeing) > ds_f1(*blind) + 0.05
    assert ds_aurc(*seeing) < ds_aurc(*blind) - 0.05
    assert ds_aurc(*seeing) == pytest.approx(aurc(trust, correct), abs=0.02)  # no outlier is left


def test_many_thresholds_are_thinned_with_little_effect():
    torch.manual_seed(0)
    correct = torch.rand(3000) < 0.8
    trust, foreign = torch.randn(3000) + correct, (torch.randn(900), torch.randn(900) - 1)
    belongs = torch.randn(3000)
    full = ds_f1(trust, belongs, correct, foreign, levels=4000)
    assert ds_f1(trust, belongs, correct, foreign) == pytest.approx(full, abs=2e-3)


def test_a_score_that_is_not_a_number_is_answered_last():
    found = ds_f1([3.0, torch.nan], [1.0, 1.0], [True, False], ([2.0], [1.0]))
    assert found == pytest.approx(2 * 1 * 0.5 / 1.5)


@pytest.mark.parametrize(
    ("change", "words"),
    [({0: [1.0]}, "trust"), ({1: [1.0]}, "belongs"), ({3: ([1.0], [1.0, 2.0])}, "belongs")],
)
def test_numbers_of_other_inputs_are_refused(change, words):
    arguments = [[1.0, 2.0], [1.0, 2.0], [True, False], ([1.0], [2.0])]
    for place, value in change.items():
        arguments[place] = value
    with pytest.raises(cr.errors.InvalidArgumentError, match=words):
        ds_f1(*arguments)
