import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import credibly as cr
from credibly.decide import scores
from credibly.decide.coverage import accuracy_against_coverage
from tests.reference import models


@pytest.fixture(scope="module")
def template():
    clf = cr.Classifier(models.smooth_network(classes=3))
    return cr.credibility(clf, models.inputs(1), gamma=30.0)


def with_values(template, credibility, fit):
    return replace(
        template,
        credibility=torch.tensor([credibility], dtype=torch.float64),
        fit=torch.tensor([fit], dtype=torch.float64),
    )


def test_the_ratio_is_the_papers_rule(template):
    profile = with_values(template, [-1.0, -4.0, -2.0], [-0.1, -3.0, -5.0])
    assert float(scores.ratio(profile)) == pytest.approx(0.5)
    assert float(scores.softmax_ratio(profile)) == pytest.approx(2.9)


def test_the_predicted_class_gets_a_negative_ratio_when_overtaken(template):
    kept = with_values(template, [-1.0, -4.0, -2.0], [-0.1, -3.0, -5.0])
    lost = with_values(template, [-4.0, -1.0, -2.0], [-0.1, -3.0, -5.0])
    assert float(scores.predicted_ratio(kept)) == pytest.approx(0.5)
    assert float(scores.predicted_ratio(lost)) == pytest.approx(-0.75)


def test_perfect_fits_to_two_classes_are_worth_nothing(template):
    tie = with_values(template, [0.0, 0.0, -2.0], [0.0, 0.0, -5.0])
    assert float(scores.ratio(tie)) == 0.0
    assert float(scores.predicted_ratio(tie)) == 0.0


def test_unsolved_samples_have_no_score(template):
    broken = with_values(template, [math.nan] * 3, [math.nan] * 3)
    for score in (scores.ratio, scores.predicted_ratio, scores.softmax_ratio):
        assert bool(score(broken).isnan().all())


def naive_curve(values, correct):
    points = []
    for level in sorted(set(values), reverse=True):
        kept = [c for v, c in zip(values, correct, strict=True) if v >= level]
        points.append((len(kept) / len(values), sum(kept) / len(kept)))
    return points


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=30))
def test_accuracy_against_coverage_is_that_of_a_plain_count(pairs):
    values, correct = [float(v) for v, _ in pairs], [c for _, c in pairs]
    curve = accuracy_against_coverage(torch.tensor(values), torch.tensor(correct))
    expected = naive_curve(values, correct)
    assert curve.coverage.tolist() == pytest.approx([c for c, _ in expected])
    assert curve.accuracy.tolist() == pytest.approx([a for _, a in expected])
    assert curve.at(1.0) == pytest.approx(sum(correct) / len(correct))


@pytest.mark.parametrize("count", [10, 30, 1000])
def test_the_asked_share_is_met_by_as_few_samples_as_possible(count):
    correct = torch.arange(count) % 3 != 0
    curve = accuracy_against_coverage(-torch.arange(count).double(), correct)
    for tenths in range(1, 11):
        kept = count * tenths // 10
        expected = correct[:kept].double().mean().item()
        assert curve.at(tenths / 10) == pytest.approx(expected, abs=1e-12)


def test_bad_scores_and_coverages_are_refused():
    good = accuracy_against_coverage(torch.tensor([1.0, 2.0]), torch.tensor([True, False]))
    for coverage in (0.0, 1.5, -1.0):
        with pytest.raises(cr.InvalidArgumentError, match="`coverage`"):
            good.at(coverage)
    with pytest.raises(cr.InvalidArgumentError, match=r"`score`.*1 NaN"):
        accuracy_against_coverage(torch.tensor([1.0, math.nan]), torch.tensor([True, False]))
    with pytest.raises(cr.InvalidArgumentError, match="same length"):
        accuracy_against_coverage(torch.tensor([1.0]), torch.tensor([True, False]))
