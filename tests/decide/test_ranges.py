"""Values beyond those of the ordinary inputs, against plain loops and against leaving one out."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import credibly as cr
from credibly.decide.ranges import IMPOSSIBLE, LEAST, Ranges
from tests.reference import models

NAMES = ("a", "b", "c", "d")


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=models.generator(seed), dtype=torch.float64)


def without(values, row):
    return torch.cat([values[:row], values[row + 1 :]])


def skewness(values):
    """Of a list of numbers, whichever way."""
    return abs(scipy.stats.skew(values))


def excess(row, others, ranges):
    """How far the worst column of a row lies outside the others; units are those of a fit."""
    worst = 0.0
    for k, name in enumerate(ranges.names):
        value, known = float(row[k]), others[:, k].tolist()
        low, high = min(known), max(known)
        beyond = max(low - value, value - high)
        if ranges.in_logs[k]:
            log = math.log(max(value, LEAST * float(ranges.low[0][k])))
            beyond = max(math.log(low) - log, log - math.log(high))
        worst = max(worst, beyond / ranges.unit[k])
        whole = not name.startswith("its ") and all(v == round(v) for v in known)
        if whole and abs(value - round(value)) > 1e-3:
            worst = max(worst, IMPOSSIBLE)
    return math.log1p(worst)


def mixed(count, seed=0):
    """A column of any numbers, of positive ones, of whole ones, and of positive whole ones."""
    x = drawn(count, 4, seed=seed)
    x[:, 1] = x[:, 1].exp()
    x[:, 2] = x[:, 2].round()
    x[:, 3] = 1 + (3 * x[:, 3].exp()).round()
    return x


@pytest.mark.parametrize("odd", [None, "negative", "fraction"])
def test_ranges_are_those_of_a_loop_and_leave_one_out(odd):
    columns, new = mixed(30), torch.cat([2 * drawn(20, 4, seed=1), mixed(10, seed=2)])
    columns[5] = columns[6] = torch.tensor([9.0, 9.0, 9.0, 40.0])  # two are the largest
    if odd == "negative":
        columns[7, 1] = -1.0  # one row spoils what all others have
    if odd == "fraction":
        columns[7, 2] = 0.5
    ranges = Ranges.fit(columns, NAMES)
    expected = [excess(row, columns, ranges) for row in new]
    np.testing.assert_allclose(ranges.of_new(new), expected, atol=1e-12)
    own = [excess(columns[k], without(columns, k), ranges) for k in range(30)]
    np.testing.assert_allclose(ranges.of_own(columns), own, atol=1e-12)
    assert bool(ranges.in_logs[1]) is (odd != "negative")


def test_positive_columns_are_measured_in_logarithms_where_these_are_less_skewed():
    columns = mixed(50)
    columns = torch.cat([columns, 10 - columns[:, 1:2].clamp(max=9)], 1)  # skewed the other way
    ranges = Ranges.fit(columns, (*NAMES, "e"))
    for k in range(5):
        values = columns[:, k].tolist()
        logs = [math.log(v) for v in values] if min(values) > 0 else None
        expected = logs is not None and skewness(logs) < skewness(values)
        assert bool(ranges.in_logs[k]) == expected
        assert float(ranges.unit[k]) == pytest.approx(np.std(logs if expected else values, ddof=1))
    assert ranges.in_logs.tolist() == [False, True, False, True, False]


def test_statistics_of_images_are_measured_as_they_are():
    """They may be whole numbers or positive, and that means nothing."""
    columns = mixed(30)
    ranges = Ranges.fit(columns, tuple(f"its {name}" for name in NAMES))
    new = columns[:1].clone()
    new[0, 2] += 0.25
    assert float(ranges.of_new(new)) == 0.0


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([40.0, 0.2], ""),
        ([30.5, 0.2], "age, 30.5, is not a whole number, as all ordinary ones are"),
        ([2.0, 0.2], "age, 2, lies outside 20 to 60"),
        ([2.5, 0.2], "age, 2.5, lies outside 20 to 60"),
        ([70.0, 99.0], "share, 99, lies outside 0.1 to 0.9"),
    ],
)
def test_what_lies_furthest_out_is_named(row, words):
    columns = torch.tensor([[20.0, 0.1], [60.0, 0.9], [33.0, 0.4]], dtype=torch.float64)
    ranges = Ranges.fit(columns, ("age", "share"))
    assert ranges.outside(torch.tensor(row, dtype=torch.float64)) == words


def test_a_column_says_more_than_a_statistic():
    columns = torch.tensor([[0.0, 10.0], [1.0, 30.0], [0.5, 20.0]], dtype=torch.float64)
    ranges = Ranges.fit(columns, ("age", "its mean"))
    far = torch.tensor([[1.1, 9e9], [0.5, 9e9]], dtype=torch.float64)
    assert [ranges.outside(one).partition(",")[0] for one in far] == ["age", "its mean"]


@given(st.integers(4, 12), st.integers(0, 10_000), st.sampled_from(["plain", "whole", "positive"]))
def test_one_more_input_never_makes_ordinary_ones_stranger(count, seed, kind):
    """Else the p-values of new inputs could be too small."""
    values = 2 * drawn(count + 1, 3, seed=seed)
    values = {"plain": values, "whole": values.round(), "positive": values.abs()}[kind]
    odd = 0.001 if kind == "positive" else -0.5
    values[seed % (count + 1), 1] = odd  # one value, anywhere, that the others do not have
    ordinary, new = values[:count], values[count:]
    assume(bool((ordinary != ordinary[0]).any(0).all()))  # others are measured another way
    alone, among = (Ranges.fit(v, NAMES[:3]) for v in (ordinary, values))
    among = replace(among, unit=alone.unit, in_logs=alone.in_logs)
    assert bool((alone.of_own(ordinary) >= among.of_own(values)[:count] - 1e-9).all())
    # the new one is measured as if it were one of them
    assert float(alone.of_new(new)) == pytest.approx(float(among.of_own(values)[-1]))


def test_a_column_in_another_unit_is_found_whichever_way_it_is_wrong():
    """Hundredths of positive columns and fractions of whole ones, which deviations hardly show."""
    random = np.random.default_rng(0)
    wealth, age = np.exp(random.normal(10, 0.5, 900)), random.integers(18, 90, 900).astype(float)
    table = np.stack([wealth, age, random.normal(size=900)], 1)
    classes = (np.log(wealth) + 0.03 * age > 11.6).astype(int)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(table[:300], classes[:300])
    judge = cr.Judge.fit(model, table[300:600])
    fresh = table[600:]
    alarms = lambda x: np.mean([v.value == "outlier" for v in judge(x).verdicts])  # noqa: E731
    assert alarms(fresh) <= 0.03
    assert alarms(fresh * [0.01, 1, 1]) >= 0.9
    assert alarms(fresh * [1, 1 / 12, 1]) >= 0.9
    reason = judge(fresh[:1] * [1, 1 / 7, 1]).reasons[0]
    assert "column 1" in reason


def test_a_change_of_what_never_changed_is_as_far_out_as_the_only_ordinary_exception():
    count = 300
    columns = drawn(count, 3)
    columns[:, 2] = 1.0
    single = columns.clone()
    single[7, 2] = 5.0
    alone = Ranges.fit(single, ("a", "b", "c")).of_own(single)[7]
    ranges = Ranges.fit(columns, ("a", "b", "c"))
    new = torch.zeros(4, 3, dtype=torch.float64)
    new[:, 2] = torch.tensor([2.0, 1e6, 1.0 + 1e-9, 1.0])
    found = ranges.of_new(new)
    torch.testing.assert_close(found[:2], alone.expand(2), rtol=2e-3, atol=0)
    assert found[2:].tolist() == [0.0, 0.0]


def test_a_column_that_varies_by_rounding_alone_is_constant():
    x = torch.ones(200, 3, dtype=torch.float64)
    x[:, 0] = 100 + 1e-6 * torch.exp(drawn(200, 1)[:, 0])  # less skewed in logarithms
    x[:, 1] = drawn(200, 1, seed=1)[:, 0]
    ranges = Ranges.fit(x, ("a", "b", "c"))
    assert ranges.in_logs[0]
    assert ranges.of_own(x)[1:-1].max() < 1.0
    far = x[:2].clone()
    far[1, 0] = 7.0
    inside, outside = ranges.of_new(far).tolist()
    assert inside == 0.0
    assert outside > 2.0


def test_constant_columns_catch_every_change_and_alarm_on_nothing_else():
    x = torch.cat([drawn(1300, 5), torch.ones(1300, 1)], 1)
    judge = cr.Judge.fit(torch.nn.Linear(6, 2).double().eval(), x[:300])
    assert (judge(x[300:]).p_ordinary > 0.01).float().mean() > 0.97
    x[300:, 5] = 2.0
    assert (judge(x[300:]).p_ordinary <= 0.01).all()


def test_energies_of_log_probabilities_are_no_signal():
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LogSoftmax(1)).eval()
    x = torch.randn(200, 4, generator=models.generator(0))
    judge = cr.Judge.fit(net, x)
    assert judge(x).signals["energy"].abs().max() == 0
    assert "energy" not in judge.alarm.whole.strange
