"""Intervals against resamples drawn row by row, and against the known spread of a mean."""

import math
from functools import partial

import pytest
import torch

import credibly as cr
from credibly import metrics
from credibly.metrics import intervals as machine

ONE_SAMPLE = {
    "aurc": cr.metrics.aurc,
    "e_aurc": cr.metrics.e_aurc,
    "augrc": cr.metrics.augrc,
    "failure_auroc": metrics.failure_auroc,
    "failure_aupr": metrics.failure_aupr,
    "failure_aupr of successes": partial(metrics.failure_aupr, positive="successes"),
    "failure_fpr_at_tpr": metrics.failure_fpr_at_tpr,
    "failure_fpr_at_tpr .8": partial(metrics.failure_fpr_at_tpr, tpr=0.8, positive="successes"),
    "accuracy_at_coverage": partial(metrics.accuracy_at_coverage, coverages=0.7),
    "coverage_at_accuracy": partial(metrics.coverage_at_accuracy, target=0.8),
}
TWO_GROUPS = {
    "auroc": cr.metrics.auroc,
    "aupr": metrics.aupr,
    "fpr_at_tpr": cr.metrics.fpr_at_tpr,
    "fpr_at_tpr .7": partial(cr.metrics.fpr_at_tpr, tpr=0.7),
}


def data(count=40, seed=0, levels=12):
    g = torch.Generator().manual_seed(seed)
    correct = torch.rand(count, generator=g) < 0.7
    score = torch.randint(levels, (count,), generator=g) + 3 * correct
    return score.double(), correct


def drawn(sizes, n, seed):
    return torch.cat([torch.cat(parts) for parts in machine.draws(sizes, n, seed)], dim=1).T


def slow(metric):
    """The same metric, hidden from the fast way."""
    return lambda *arrays: float(metric(*arrays))


@pytest.mark.parametrize("name", ONE_SAMPLE)
def test_counting_gives_what_resampling_the_rows_gives(name):
    metric, arrays = ONE_SAMPLE[name], data()
    fast = cr.metrics.bootstrap(metric, *arrays, n=60, seed=3)
    rows = cr.metrics.bootstrap(slow(metric), *arrays, n=60, seed=3)
    for part in ("value", "low", "high"):
        assert getattr(fast, part) == pytest.approx(getattr(rows, part), abs=1e-12)
    assert fast.low < fast.high
    assert fast.value == pytest.approx(float(metric(*arrays)), abs=1e-12)


@pytest.mark.parametrize("name", TWO_GROUPS)
def test_two_groups_are_drawn_one_by_one(name):
    metric = TWO_GROUPS[name]
    (first, _), (second, _) = data(30, 1), data(30, 2)  # of the same size, yet not paired
    fast = cr.metrics.bootstrap(metric, first + 2, second, n=60, seed=5)
    rows = cr.metrics.bootstrap(slow(metric), first + 2, second, n=60, seed=5, paired=False)
    for part in ("value", "low", "high"):
        assert getattr(fast, part) == pytest.approx(getattr(rows, part), abs=1e-12)
    assert fast.low < fast.high


@pytest.mark.parametrize("name", ONE_SAMPLE)
def test_a_difference_is_taken_on_the_same_resamples(name):
    metric, (score, correct) = ONE_SAMPLE[name], data()
    other = -score + 20 * correct
    fast = cr.metrics.paired_difference(metric, score, other, correct, n=50, seed=2)
    rows = cr.metrics.bootstrap(
        lambda a, b, c: metric(a, c) - metric(b, c), score, other, correct, n=50, seed=2
    )
    for part in ("value", "low", "high"):
        assert getattr(fast, part) == pytest.approx(getattr(rows, part), abs=1e-12)
    same = cr.metrics.paired_difference(metric, score, 2 * score + 1, correct, n=20)
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("coverage_at_accuracy", 310 / 400), ("failure_fpr_at_tpr", 325 / 395)],  # 3 of 310; all five
)
def test_settings_that_are_left_out_are_those_of_the_metric(name, expected):
    score = torch.arange(400, 0, -1).double()
    correct = torch.arange(400) % 80 != 70  # one error in eighty
    metric = getattr(metrics, name)
    assert metric(score, correct) == pytest.approx(expected, abs=1e-12)
    assert cr.metrics.bootstrap(metric, score, correct, n=2).value == pytest.approx(
        expected, abs=1e-12
    )


def test_a_difference_of_any_function_is_that_of_the_fast_way():
    (score, correct), (other, _) = data(), data(seed=7)
    fast = cr.metrics.paired_difference(cr.metrics.aurc, score, other, correct, n=20, seed=4)
    rows = cr.metrics.paired_difference(slow(cr.metrics.aurc), score, other, correct, n=20, seed=4)
    for part in ("value", "low", "high"):
        assert getattr(fast, part) == pytest.approx(getattr(rows, part), abs=1e-12)
    assert fast.low < fast.high


def test_a_thousand_resamples_are_drawn_unless_told_otherwise():
    score, correct = data(5)
    calls = []

    def counting(values, right):
        calls.append(len(values))
        return float(values[right].sum())

    cr.metrics.bootstrap(counting, score, correct)
    assert calls == [5] * 1001  # once as they are
    cr.metrics.paired_difference(counting, score, score, correct)
    assert len(calls) == 3 * 1001


def test_two_systems_may_have_predictions_of_their_own():
    score, correct = data()
    found = cr.metrics.paired_difference(
        cr.metrics.aurc, score, score, correct, correct_b=~correct, n=50
    )
    expected = cr.metrics.aurc(score, correct) - cr.metrics.aurc(score, ~correct)
    assert found.value == pytest.approx(expected, abs=1e-12)


def test_the_interval_of_a_mean_is_that_of_theory():
    g = torch.Generator().manual_seed(0)
    values = torch.randn(400, generator=g, dtype=torch.float64)
    found = cr.metrics.bootstrap(lambda v: v.mean(), values, n=4000, level=0.9, seed=1)
    half = 1.6449 * float(values.std(correction=0)) / 20
    assert found.low == pytest.approx(float(values.mean()) - half, abs=0.08 * half)
    assert found.high == pytest.approx(float(values.mean()) + half, abs=0.08 * half)
    assert found.level == 0.9


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    g = torch.Generator().manual_seed(4)
    truth = float(torch.special.ndtr(torch.tensor(1 / math.sqrt(2))))  # of N(1, 1) against N(0, 1)
    hits = 0
    for trial in range(100):
        first = 1 + torch.randn(80, generator=g, dtype=torch.float64)
        second = torch.randn(80, generator=g, dtype=torch.float64)
        hits += cr.metrics.bootstrap(cr.metrics.auroc, first, second, n=200, seed=trial).contains(
            truth
        )
    assert 86 <= hits <= 100


def test_draws_keep_sizes_and_repeat(monkeypatch):
    monkeypatch.setattr(machine, "_DRAWN", 100)
    monkeypatch.setattr(machine, "_AT_A_TIME", 30)
    draws = drawn([7, 4], 50, 1)
    assert draws.shape == (50, 11)
    assert bool((draws[:, :7].sum(1) == 7).all())
    assert bool((draws[:, 7:].sum(1) == 4).all())
    assert torch.equal(draws, drawn([7, 4], 50, 1))
    assert not torch.equal(draws, drawn([7, 4], 50, 2))
    state = torch.get_rng_state()
    drawn([3], 2, 0)
    assert torch.equal(state, torch.get_rng_state())


def test_the_draws_of_large_sets_are_the_same_for_ever():
    # several pieces, and a smaller last one: published intervals depend on the order of draws
    sizes, count = [2500, 1700], 600
    generator = torch.Generator().manual_seed(3)
    most = 2**20 // sum(sizes)
    pieces = []
    for piece in [most] * (count // most) + [count % most]:
        rows = [torch.randint(size, (piece, size), generator=generator) for size in sizes]
        weights = [
            torch.stack([row.bincount(minlength=size) for row in group])
            for group, size in zip(rows, sizes, strict=True)
        ]
        pieces.append(torch.cat(weights, dim=1))
    assert torch.equal(drawn(sizes, count, 3), torch.cat(pieces).float())


def test_resamples_without_a_failure_are_left_out():
    score, correct = torch.arange(12).double(), torch.arange(12) > 0
    found = cr.metrics.bootstrap(metrics.failure_auroc, score, correct, n=200)
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)
    nothing = cr.metrics.bootstrap(
        metrics.failure_auroc, score, torch.ones(12, dtype=torch.bool), n=5
    )
    assert math.isnan(nothing.low)


def test_an_interval_reads_well():
    interval = cr.metrics.Interval(0.25, 0.125, 0.5)
    assert str(interval) == "0.25 [0.125, 0.5]"
    assert interval.contains(0.5)
    assert not interval.contains(0.0)


def test_bad_settings_are_refused():
    score, correct = data()
    for settings, name in (
        ({"n": 0}, "n"), ({"n": 1.5}, "n"), ({"level": 1.0}, "level"), ({"level": "95"}, "level"),
        ({"paired": False}, "paired"),
    ):  # fmt: skip
        with pytest.raises(cr.errors.InvalidArgumentError, match=f"`{name}`"):
            cr.metrics.bootstrap(cr.metrics.aurc, score, correct, **settings)
    with pytest.raises(cr.errors.InvalidArgumentError, match="paired=False"):
        cr.metrics.bootstrap(lambda a, b: a.mean() - b.mean(), score, score[:5])
    with pytest.raises(cr.errors.InvalidArgumentError, match="one number"):
        cr.metrics.bootstrap(
            partial(metrics.accuracy_at_coverage, coverages=[0.5, 0.9]), score, correct
        )
    with pytest.raises(cr.errors.InvalidArgumentError, match="failure_auroc"):
        cr.metrics.paired_difference(cr.metrics.auroc, score, score, correct)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`score`.*NaN"):
        cr.metrics.paired_difference(cr.metrics.aurc, score, score * math.nan, correct)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`arrays`"):
        cr.metrics.bootstrap(cr.metrics.aurc)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`arrays`"):
        cr.metrics.bootstrap(len)


@pytest.mark.parametrize("seed", [2**64, 1.5, "a", None])
def test_a_seed_that_torch_cannot_take_is_refused(seed):
    score, correct = data()
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`seed`"):
        cr.metrics.bootstrap(cr.metrics.aurc, score, correct, n=5, seed=seed)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`seed`"):
        cr.metrics.paired_difference(cr.metrics.aurc, score, score, correct, n=5, seed=seed)
