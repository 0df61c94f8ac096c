"""Metrics against plain loops, closed forms and scikit-learn."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

import credibly as cr
from credibly import metrics

TIED = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=25)
UNTIED = st.lists(st.booleans(), min_size=2, max_size=25)
GROUPS = st.tuples(
    st.lists(st.integers(-3, 3), min_size=1, max_size=15),
    st.lists(st.integers(-3, 3), min_size=1, max_size=15),
)


def split(pairs):
    score, correct = zip(*pairs, strict=True)
    return torch.tensor(score, dtype=torch.float64), torch.tensor(correct)


def falling(correct):
    """Scores without ties under which the samples come in the given order."""
    return -torch.arange(len(correct)).double(), torch.tensor(correct)


def naive_aurc(correct):
    """Samples in order of trust: the mean of the risks among the first k."""
    risks = [Fraction(sum(not c for c in correct[:k]), k) for k in range(1, len(correct) + 1)]
    return sum(risks) / len(risks)


def naive_augrc(correct):
    """Trapezoids under the share that is answered and wrong, from (0, 0)."""
    n = len(correct)
    wrong = [Fraction(sum(not c for c in correct[:k]), n) for k in range(n + 1)]
    return sum((a + b) / 2 / n for a, b in itertools.pairwise(wrong))


def naive_auroc(positive, negative):
    wins = [1.0 if p > q else 0.5 if p == q else 0.0 for p in positive for q in negative]
    return sum(wins) / len(wins)


@given(UNTIED)
def test_areas_are_those_of_a_plain_loop(order):
    score, correct = falling(order)
    assert cr.metrics.aurc(score, correct) == pytest.approx(float(naive_aurc(order)), abs=1e-12)
    assert cr.metrics.augrc(score, correct) == pytest.approx(float(naive_augrc(order)), abs=1e-12)
    best = float(naive_aurc(sorted(order, reverse=True)))
    assert cr.metrics.e_aurc(score, correct) == pytest.approx(
        float(naive_aurc(order)) - best, abs=1e-12
    )


@pytest.mark.parametrize("seed", range(4))
def test_ties_count_as_their_random_orders_do_on_average(seed):
    g = torch.Generator().manual_seed(seed)
    score = torch.randint(3, (6,), generator=g).double()
    correct = torch.rand(6, generator=g) < 0.5
    orders = [
        order
        for order in itertools.permutations(range(6))
        if all(score[a] >= score[b] for a, b in itertools.pairwise(order))
    ]
    assert len(orders) > 1
    for metric, naive in ((cr.metrics.aurc, naive_aurc), (cr.metrics.augrc, naive_augrc)):
        each = [float(naive([bool(correct[i]) for i in order])) for order in orders]
        assert metric(score, correct) == pytest.approx(sum(each) / len(each), abs=1e-12)


@given(TIED)
def test_augrc_is_a_function_of_auroc_and_accuracy(pairs):
    score, correct = split(pairs)
    accuracy = float(correct.double().mean())
    assume(0 < accuracy < 1)
    found = cr.metrics.augrc(score, correct)
    ranked = metrics.failure_auroc(score, correct)
    expected = (1 - ranked) * accuracy * (1 - accuracy) + (1 - accuracy) ** 2 / 2
    assert found == pytest.approx(expected, abs=1e-12)
    assert ranked == pytest.approx(cr.metrics.auroc(score[correct], score[~correct]), abs=1e-12)


def test_closed_forms_of_perfect_useless_and_reversed_scores():
    correct = torch.arange(1000) >= 100  # a tenth is wrong
    rank = torch.arange(1000).double()
    tail = sum(1 / k for k in range(901, 1001))
    assert cr.metrics.aurc(rank, correct) == pytest.approx((100 - 900 * tail) / 1000, abs=1e-12)
    assert cr.metrics.e_aurc(rank, correct) == pytest.approx(0.0, abs=1e-12)
    # the limit of the optimum for many samples, which others subtract
    assert cr.metrics.aurc(rank, correct) == pytest.approx(0.1 + 0.9 * math.log(0.9), abs=1e-4)
    assert cr.metrics.augrc(rank, correct) == pytest.approx(0.1**2 / 2, abs=1e-12)
    flat = torch.zeros(1000)
    assert cr.metrics.aurc(flat, correct) == pytest.approx(0.1, abs=1e-12)
    assert cr.metrics.augrc(flat, correct) == pytest.approx(0.05, abs=1e-12)
    assert cr.metrics.augrc(-rank, correct) == pytest.approx(0.1 * 0.9 + 0.1**2 / 2, abs=1e-12)


@given(TIED)
def test_the_curve_is_that_of_a_plain_count(pairs):
    score, correct = split(pairs)
    curve = cr.metrics.error_coverage(score, correct)
    torch.testing.assert_close(curve.generalised_error_rate, curve.error_rate * curve.coverage)
    torch.testing.assert_close(curve.accuracy, 1 - curve.error_rate)
    for level, coverage, accuracy in zip(
        sorted(set(score.tolist()), reverse=True), curve.coverage, curve.accuracy, strict=True
    ):
        kept = score >= level
        assert float(coverage) == pytest.approx(float(kept.double().mean()))
        assert float(accuracy) == pytest.approx(float(correct[kept].double().mean()))
    shares = [0.05, 0.3, 0.5, 0.7, 0.9, 1.0]
    found = metrics.accuracy_at_coverage(score, correct, shares)
    assert found.tolist() == pytest.approx([curve.accuracy_at(share) for share in shares])


@pytest.mark.parametrize("count", [10, 30, 1000])
def test_the_asked_share_is_met_by_as_few_samples_as_possible(count):
    correct = torch.arange(count) % 3 != 0
    curve = cr.metrics.error_coverage(-torch.arange(count).double(), correct)
    for tenths in range(1, 11):
        kept = count * tenths // 10
        expected = correct[:kept].double().mean().item()
        assert curve.accuracy_at(tenths / 10) == pytest.approx(expected, abs=1e-12)
    for coverage in (0.0, 1.5, -1.0):
        with pytest.raises(cr.errors.InvalidArgumentError, match="`coverage`"):
            curve.accuracy_at(coverage)


@given(TIED, st.sampled_from([0.5, 2 / 3, 0.8, 0.99, 1.0]))
def test_coverage_at_accuracy_is_the_largest_of_all_thresholds(pairs, target):
    score, correct = split(pairs)
    coverages = [0.0]
    for level in set(score.tolist()):
        kept = correct[score >= level]
        if float(kept.double().mean()) >= target - 1e-12:
            coverages.append(len(kept) / len(score))
    found = metrics.coverage_at_accuracy(score, correct, target)
    assert found == pytest.approx(max(coverages))


def test_coverage_at_accuracy_looks_past_an_early_failure():
    score, correct = falling([False] + [True] * 199)
    assert metrics.coverage_at_accuracy(score, correct) == 1.0
    assert metrics.coverage_at_accuracy(score, correct, 1.0) == 0.0


@given(GROUPS)
def test_auroc_and_aupr_are_those_of_scikit_learn_and_of_a_double_loop(groups):
    positive, negative = groups
    labels = np.array([1] * len(positive) + [0] * len(negative))
    scores = np.array(positive + negative, dtype=float)
    first, second = torch.tensor(positive).double(), torch.tensor(negative).double()
    found = cr.metrics.auroc(first, second)
    assert found == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert found == pytest.approx(naive_auroc(positive, negative), abs=1e-12)
    assert metrics.aupr(first, second) == pytest.approx(
        average_precision_score(labels, scores), abs=1e-12
    )
    assert metrics.aupr(-second, -first) == pytest.approx(
        average_precision_score(1 - labels, -scores), abs=1e-12
    )


@given(GROUPS, st.sampled_from([0.5, 0.8, 0.95, 1.0]))
def test_fpr_at_tpr_is_that_of_openood(groups, tpr):
    positive, negative = groups
    labels = np.array([1] * len(positive) + [0] * len(negative))
    scores = np.array(positive + negative, dtype=float)
    fprs, tprs, _ = roc_curve(labels, scores, drop_intermediate=False)
    found = cr.metrics.fpr_at_tpr(torch.tensor(positive), torch.tensor(negative), tpr)
    assert found == pytest.approx(fprs[np.argmax(tprs >= tpr - 1e-9)], abs=1e-12)


@given(TIED)
def test_failures_and_successes_are_two_sides_of_the_same_data(pairs):
    score, correct = split(pairs)
    right, wrong = score[correct], score[~correct]
    if len(right) == 0 or len(wrong) == 0:
        assert math.isnan(metrics.failure_auroc(score, correct))
        assert math.isnan(metrics.failure_fpr_at_tpr(score, correct))
        return
    for name in ("aupr", "fpr_at_tpr"):
        of_groups, of_failures = getattr(metrics, name), getattr(metrics, f"failure_{name}")
        assert of_failures(score, correct) == pytest.approx(of_groups(-wrong, -right))
        assert of_failures(score, correct, positive="successes") == pytest.approx(
            of_groups(right, wrong)
        )


def test_numbers_to_check_by_hand():
    score, correct = falling([True, True, False, True])
    assert cr.metrics.aurc(score, correct) == pytest.approx((0 + 0 + 1 / 3 + 1 / 4) / 4)
    assert cr.metrics.e_aurc(score, correct) == pytest.approx((1 / 3 + 1 / 4 - 1 / 4) / 4)
    assert cr.metrics.augrc(score, correct) == pytest.approx(1.5 / 16)
    assert metrics.failure_auroc(score, correct) == pytest.approx(2 / 3)
    assert metrics.failure_fpr_at_tpr(score, correct) == pytest.approx(1 / 3)
    assert metrics.failure_fpr_at_tpr(score, correct, positive="successes") == 1.0
    assert metrics.failure_aupr(score, correct) == pytest.approx(1 / 2)


def test_half_precision_counts_and_infinities_are_fine():
    correct = torch.tensor([1, 0, 1])
    score = torch.tensor([math.inf, -math.inf, 0.0], dtype=torch.float16)
    assert cr.metrics.e_aurc(score, correct) == pytest.approx(0.0, abs=1e-12)
    assert cr.metrics.aurc(score.numpy(), correct.numpy()) == cr.metrics.aurc(score, correct)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64])
def test_whole_numbers_are_scores_like_any_others(dtype):
    # minus of the smallest number would be itself, or wrap round
    values = torch.tensor([torch.iinfo(dtype).min, 3, 7, 3, 100]).to(dtype)
    correct = torch.tensor([False, True, True, False, True])
    for metric in (
        cr.metrics.aurc,
        metrics.failure_auroc,
        metrics.failure_aupr,
        metrics.failure_fpr_at_tpr,
    ):
        assert metric(values, correct) == metric(values.double(), correct)
    assert cr.metrics.auroc(values[:3], values[3:]) == cr.metrics.auroc(
        values[:3].double(), values[3:].double()
    )


def test_bad_input_is_refused():
    good, right = torch.tensor([1.0, 2.0]), torch.tensor([True, False])
    for metric in (
        cr.metrics.aurc,
        cr.metrics.e_aurc,
        cr.metrics.augrc,
        cr.metrics.error_coverage,
        metrics.failure_auroc,
    ):
        with pytest.raises(cr.errors.InvalidArgumentError, match=r"`score`.*1 NaN"):
            metric(torch.tensor([1.0, math.nan]), right)
        with pytest.raises(cr.errors.InvalidArgumentError, match="same length"):
            metric(good, torch.tensor([True]))
        with pytest.raises(cr.errors.InvalidArgumentError, match=r"predictions == labels"):
            metric(good, torch.tensor([3, 1]))
        with pytest.raises(cr.errors.InvalidArgumentError, match="at least one"):
            metric(torch.zeros(0), torch.zeros(0))
    for metric in (cr.metrics.auroc, metrics.aupr, cr.metrics.fpr_at_tpr):
        with pytest.raises(cr.errors.InvalidArgumentError, match=r"`negative_scores`.*NaN"):
            metric(good, torch.tensor([math.nan]))
        with pytest.raises(cr.errors.InvalidArgumentError, match="`positive_scores`"):
            metric(torch.zeros(2, 2), good)
    for share in (0.0, 1.5, "much", math.nan):
        with pytest.raises(cr.errors.InvalidArgumentError, match="`tpr`"):
            cr.metrics.fpr_at_tpr(good, good, share)
        with pytest.raises(cr.errors.InvalidArgumentError, match="`target`"):
            metrics.coverage_at_accuracy(good, right, share)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`coverages`"):
        metrics.accuracy_at_coverage(good, right, [0.5, 0.0])
    with pytest.raises(cr.errors.InvalidArgumentError, match="`positive`"):
        metrics.failure_aupr(good, right, positive="both")


@pytest.mark.parametrize("junk", [None, "words", [None, 1.0], ["a", "b"], object()])
def test_what_is_no_array_of_numbers_is_refused_by_name(junk):
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`score`"):
        cr.metrics.aurc(junk, [True, False])
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`correct`"):
        cr.metrics.aurc([1.0, 2.0], junk)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`negative_scores`"):
        cr.metrics.auroc([1.0, 2.0], junk)
