"""Promises about thresholds, tried on distributions whose true risk is known."""

import math
import re
from functools import cache

import pytest
import torch
from scipy import stats

import credibly as cr
from credibly.decide import thresholds

DRAWS = 1000


def rate(kind, u):
    """Chance of an error where the score is u (or its group): the truth of each simulation."""
    return {
        "monotone": lambda: 0.3 * (1 - u) ** 2,
        "uninformative": lambda: torch.full_like(u, 0.1),
        "worse at the top": lambda: torch.where(u > 0.9, 0.3, 0.04),
        "waves": lambda: 0.1 + 0.1 * torch.sin(25 * u),
        "two groups": lambda: torch.where(u > 0.9, 0.3, 0.001),
        "ties": lambda: 0.3 * (1 - (5 * u).floor() / 5) ** 2,
    }[kind]()


def score_of(kind, u):
    if kind == "two groups":  # the smaller and worse one has the larger score
        return (u > 0.9).double()
    return (5 * u).floor() if kind == "ties" else u


GRID = (torch.arange(20000, dtype=torch.float64) + 0.5) / 20000


@cache
def suffix_means(kind):
    """Scores of the grid from below, and the true risk of accepting from each upwards."""
    rates, left = rate(kind, GRID).flip(0), torch.arange(1, len(GRID) + 1)
    return score_of(kind, GRID).contiguous(), (rates.cumsum(0) / left).flip(0)


def true_risk(kind, threshold):
    values, risks = suffix_means(kind)  # every score here rises with u
    first = int(torch.searchsorted(values, torch.tensor(threshold, dtype=torch.float64)))
    return float(risks[first]), 1 - first / len(GRID)


def simulate(kind, count, risk, confidence, draws=DRAWS):
    generator = torch.Generator().manual_seed(0)
    broken, coverages = 0, []
    for _ in range(draws):
        u, chance = torch.rand(2, count, generator=generator, dtype=torch.float64)
        try:
            threshold = thresholds.for_error_rate(
                score_of(kind, u), chance >= rate(kind, u), risk, confidence
            )
        except cr.errors.InvalidArgumentError:
            continue
        true, coverage = true_risk(kind, threshold)
        broken += true > risk
        coverages.append(coverage)
    return broken / draws, coverages


@pytest.mark.parametrize(
    "kind", ["monotone", "uninformative", "worse at the top", "waves", "two groups", "ties"]
)
def test_the_promised_risk_is_kept_as_often_as_promised(kind):
    confidence = 0.8  # low, so that a promise that is too weak would show
    share, _ = simulate(kind, 300, 0.09, confidence)
    error = 3 * math.sqrt(confidence * (1 - confidence) / DRAWS)
    assert share <= 1 - confidence + error


def test_the_promise_is_not_empty():
    # monotone: the selective risk at coverage c is 0.1 c^2, so 0.05 allows coverage 0.71
    share, coverages = simulate("monotone", 2000, 0.05, 0.95, draws=100)
    assert share <= 0.05
    assert len(coverages) == 100
    assert 0.4 < sorted(coverages)[50] < 0.71


def test_a_worthless_score_is_found_out():
    _, coverages = simulate("uninformative", 1000, 0.05, 0.95, draws=100)
    assert len(coverages) <= 5


def test_ties_are_accepted_or_not_as_they_were_tested():
    # 20 bad samples share the top score; the others are right. Nothing but everything is safe.
    score = torch.cat([torch.ones(20), torch.zeros(980)]).double()
    correct = torch.cat([torch.zeros(20), torch.ones(980)]).bool()
    assert thresholds.for_error_rate(score, correct, 0.05, 0.95) == thresholds.EVERYTHING
    with pytest.raises(cr.errors.InvalidArgumentError, match="enough labelled samples"):
        thresholds.for_error_rate(score, correct, 0.02, 0.95)


def test_a_threshold_lies_just_above_a_score_that_is_left_out():
    score = torch.arange(1000.0, dtype=torch.float64)
    correct = score >= 200
    threshold = thresholds.for_error_rate(score, correct, 0.01, 0.95)
    below = math.nextafter(threshold, -math.inf)
    assert below in score.tolist()
    assert below >= 190


@pytest.mark.parametrize("count", [1, 7, 100, 5000, 200000])
@pytest.mark.parametrize("risk", [0.001, 0.05, 0.5, 0.97])
def test_the_binomial_test_is_exact(count, risk):
    expected_errors = int(count * risk)
    for errors in {0, 1, expected_errors // 2, expected_errors, min(count, expected_errors + 2)}:
        if errors <= count:
            ours = thresholds._binomial_cdf(errors, count, risk)
            expected = stats.binom.cdf(errors, count, risk)
            assert ours == pytest.approx(expected, rel=1e-6, abs=1e-300)


@pytest.mark.parametrize("risk", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_as_many_samples_as_named_are_enough_and_one_less_is_not(risk, confidence):
    needed = thresholds.samples_needed(risk, confidence)
    right = torch.ones(needed, dtype=torch.bool)
    scores = torch.arange(needed, dtype=torch.float64)
    assert thresholds.for_error_rate(scores, right, risk, confidence) == thresholds.EVERYTHING
    with pytest.raises(cr.errors.InvalidArgumentError, match=f"At least {needed} accepted"):
        thresholds.for_error_rate(scores[1:], right[1:], risk, confidence)


@pytest.mark.parametrize("kind", ["monotone", "waves", "ties"])
@pytest.mark.parametrize("unknown", [0, 100])
def test_the_error_names_the_smallest_risk_that_can_be_promised(kind, unknown):
    u, chance = torch.rand(2, 400, generator=torch.Generator().manual_seed(3)).double()
    score, correct = score_of(kind, u), chance >= rate(kind, u)
    score[:unknown] = math.nan
    with pytest.raises(cr.errors.InvalidArgumentError, match="smallest error rate") as caught:
        thresholds.for_error_rate(score, correct, 1e-3, 0.9)
    named = float(re.findall(r"is ([\d.]+)\.$", str(caught.value))[0])
    assert math.isfinite(thresholds.for_error_rate(score, correct, named, 0.9))
    digits = 10.0 ** (math.floor(math.log10(named)) - 1)
    with pytest.raises(cr.errors.InvalidArgumentError, match="smallest error rate"):
        thresholds.for_error_rate(score, correct, named - digits, 0.9)


@pytest.mark.parametrize(("errors", "count"), [(0, 400), (1, 400), (30, 400), (380, 400), (0, 530)])
def test_the_named_risk_is_the_bound_of_clopper_and_pearson(errors, count):
    # one score for all: everything or nothing is accepted, by a test at nine tenths of 0.1
    correct = torch.arange(count) >= errors
    bound = stats.binomtest(errors, count).proportion_ci(1 - 2 * 0.09, "exact").high
    with pytest.raises(cr.errors.InvalidArgumentError, match="smallest error rate") as caught:
        thresholds.for_error_rate(torch.zeros(count).double(), correct, 1e-3, 0.9)
    unit = 10 ** (math.floor(math.log10(bound)) - 1)
    expected = math.ceil(bound / unit) * unit
    assert f"confidence is {expected:.2g}." in str(caught.value)


def test_where_nothing_can_be_promised_the_error_says_so():
    wrong = torch.zeros(200, dtype=torch.bool)
    with pytest.raises(cr.errors.InvalidArgumentError, match="can promise no error rate"):
        thresholds.for_error_rate(torch.arange(200.0), wrong, 0.05, 0.95)


def test_samples_without_a_score_promise_nothing():
    score = torch.full((500,), math.nan, dtype=torch.float64)
    with pytest.raises(cr.errors.InvalidArgumentError, match="0 samples"):
        thresholds.for_error_rate(score, torch.ones(500, dtype=torch.bool), 0.05, 0.95)
    half = torch.where(torch.arange(500) % 2 == 0, math.nan, torch.arange(500.0)).double()
    right = ~half.isnan()  # those without a score are wrong, and must not count
    assert thresholds.for_error_rate(half, right, 0.05, 0.95) == thresholds.EVERYTHING


@pytest.mark.parametrize(("count", "alarms"), [(9, 0.1), (19, 0.1), (4, 0.5), (30, 0.07)])
def test_false_alarms_come_at_the_exact_rate(count, alarms):
    generator = torch.Generator().manual_seed(1)
    draws = 4000
    sample = torch.rand(draws, count + 1, generator=generator, dtype=torch.float64)
    flagged = sum(float(row[0]) < thresholds.for_false_alarms(row[1:], alarms) for row in sample)
    exact = math.floor(alarms * (count + 1) + 1e-9) / (count + 1)
    assert exact <= alarms + 1e-12
    assert abs(flagged / draws - exact) < 4 * math.sqrt(exact * (1 - exact) / draws)


def test_ties_can_only_lower_the_rate_of_false_alarms():
    generator = torch.Generator().manual_seed(2)
    sample = torch.randint(3, (3000, 20), generator=generator).double()
    flagged = sum(float(row[0]) < thresholds.for_false_alarms(row[1:], 0.25) for row in sample)
    assert flagged / 3000 <= 0.25


@pytest.mark.parametrize(("count", "alarms", "holes"), [(39, 0.1, 0.02), (99, 0.1, 0.05)])
def test_unsolved_inputs_that_are_flagged_count_as_false_alarms(count, alarms, holes):
    generator = torch.Generator().manual_seed(4)
    draws, flagged, left_out, tried = 3000, 0, 0, 0
    sample = torch.rand(draws, count + 1, generator=generator, dtype=torch.float64)
    sample[torch.rand(sample.shape, generator=generator) < holes] = math.nan
    for row in sample:
        known = row[1:][~row[1:].isnan()]
        try:
            border = thresholds.for_false_alarms(row[1:], alarms, unsolved_are_flagged=True)
        except cr.errors.InvalidArgumentError:
            continue
        tried += 1
        flagged += not float(row[0]) >= border
        left_out += not float(row[0]) >= thresholds.for_false_alarms(known, alarms)
    error = 4 * math.sqrt(alarms * (1 - alarms) / tried)
    assert tried > 0.97 * draws
    assert abs(flagged / tried - alarms) < error
    assert left_out > flagged


def test_more_unsolved_inputs_than_the_rate_allows_are_refused():
    score = torch.arange(99.0)
    score[:9] = math.nan
    assert thresholds.for_false_alarms(score, 0.1, unsolved_are_flagged=True) == 9.0
    assert thresholds.for_false_alarms(score, 0.1) == 17.0
    score[9] = math.nan
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"at most 9 of 99 samples .* got 10"):
        thresholds.for_false_alarms(score, 0.1, unsolved_are_flagged=True)


def test_a_percentage_is_told_as_a_share():
    for value, words in [(80, r"80 % is 0\.8"), (2.5, r"2\.5 % is 0\.025"), (-1, "one in twenty")]:
        with pytest.raises(cr.errors.InvalidArgumentError, match=words):
            thresholds.for_coverage(torch.arange(3.0), value)


def test_too_few_ordinary_samples_for_a_rate_are_refused():
    with pytest.raises(cr.errors.InvalidArgumentError, match="at least 99 ordinary samples"):
        thresholds.for_false_alarms(torch.arange(98.0), 0.01)
    assert thresholds.for_false_alarms(torch.arange(99.0), 0.01) == 0.0
    assert thresholds.for_false_alarms(torch.arange(3.0), 1 - 1e-13) == 2.0


@pytest.mark.parametrize("coverage", [1e-12, 0.1, 0.25, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("different", [1, 3, 10, 1000])
def test_a_coverage_is_met_by_as_few_samples_as_ties_allow(coverage, different):
    values = (torch.arange(40) * 7 % 40 % different).double()
    threshold = thresholds.for_coverage(values, coverage)
    accepted = int((values >= threshold).sum())
    assert accepted >= max(1, math.ceil(40 * coverage - 1e-9))
    assert int((values > threshold).sum()) < max(1, math.ceil(40 * coverage - 1e-9))


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, 2, True, "0.5", None, math.nan])
def test_shares_outside_of_their_range_are_refused(bad):
    score, right = torch.arange(10.0), torch.ones(10, dtype=torch.bool)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`error_rate`"):
        thresholds.for_error_rate(score, right, bad, 0.95)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`confidence`"):
        thresholds.for_error_rate(score, right, 0.05, bad)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`false_alarms`"):
        thresholds.for_false_alarms(score, bad)
    if bad != 1.0 or bad is True:
        with pytest.raises(cr.errors.InvalidArgumentError, match="`coverage`"):
            thresholds.for_coverage(score, bad)
    with pytest.raises(cr.errors.InvalidArgumentError, match="none of them"):
        thresholds.for_coverage(torch.full((3,), math.nan), 0.5)


def test_a_sample_with_foreign_inputs_at_its_end_is_doubted():
    ordinary = torch.linspace(-2, 2, 300).double()
    thresholds.for_false_alarms(ordinary, 0.01)  # no warning, which would be an error here
    ordinary[:6] = -1e4
    with pytest.warns(cr.errors.CrediblyWarning, match="-1e\\+04, lies far below what is usual"):
        assert thresholds.for_false_alarms(ordinary, 0.01) == -1e4
    thresholds.for_false_alarms(ordinary, 0.05)  # the strange ones raise an alarm themselves


def test_two_hundred_labels_are_enough_for_a_network_of_94_percent():
    """Refused in at most 5 % of the draws, broken in at most 10 %: 5 %, confidence 90 %."""
    g = torch.Generator().manual_seed(0)
    score = 2 * torch.randn(100_000, generator=g, dtype=torch.float64) + 4.2
    right = torch.rand(100_000, generator=g, dtype=torch.float64) < torch.sigmoid(score)
    refused = broken = 0
    for _ in range(300):
        drawn = torch.randint(len(score), (200,), generator=g)
        try:
            threshold = thresholds.for_error_rate(score[drawn], right[drawn], 0.05, 0.9)
        except cr.errors.InvalidArgumentError:
            refused += 1
            continue
        broken += float((~right[score >= threshold]).double().mean()) > 0.05
    assert refused <= 15
    assert broken <= 30
