"""Bets on p-values, against a loop over all moments at which they may begin, and by simulation."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from credibly.decide.drift_bets import (
    POWERS,
    ROWS,
    SHARES,
    SMALLEST,
    Bets,
    Ranks,
    log_bets,
    staked,
    waiting,
)

RATE = 0.1


def uniform(*shape, seed=0):
    return 1 - np.random.default_rng(seed).random(shape)


@pytest.mark.parametrize("bet", range(len(SHARES)))
def test_every_bet_has_mean_one(bet):
    mean = integrate.quad(lambda p: np.exp(log_bets(np.array(p)))[bet], 0, 1)[0]
    assert mean == pytest.approx(1, abs=1e-6)


def test_the_capital_is_shared_out_once():
    assert sum(SHARES) == 1
    steps = np.arange(1.0, 2000)
    np.testing.assert_allclose(staked(steps), waiting(steps - 1) - waiting(steps), atol=1e-15)
    assert waiting(np.float64(0)) == 1


def naive(p):
    """The martingale after each p-value: capital that waits, and a product for every beginning."""
    powers = [(k, False) for k in POWERS] + [(k, True) for k in POWERS[1:]]
    found = []
    for t in range(1, len(p) + 1):
        worth = waiting(np.float64(t))
        for start in range(1, t + 1):
            share = waiting(np.float64(start - 1)) - waiting(np.float64(start))
            for weight, (k, large) in zip(SHARES, powers, strict=True):
                side = 1 - p[start - 1 : t] if large else p[start - 1 : t]
                worth += share * weight * np.prod(k * side ** (k - 1))
        found.append(worth)
    return np.array(found)


@pytest.mark.parametrize("cuts", [[], [1], [7, 8, 30], [39]])
def test_it_is_the_average_over_all_beginnings(cuts):
    p = uniform(40) ** 2
    bets, found = Bets.none(), []
    for part in np.split(p, cuts):
        bets, worth = bets.after(part)
        found.append(worth)
    np.testing.assert_allclose(np.exp(np.concatenate(found)), naive(p), rtol=1e-10)
    assert bets.log_martingale == pytest.approx(math.log(naive(p)[-1]))
    assert bets.count == 40


def test_nothing_is_bet_on_nothing():
    bets, worth = Bets.none().after(np.zeros(0))
    assert worth.shape == (0,)
    assert bets.log_martingale == 0


def test_extreme_p_values_give_finite_bets():
    assert np.isfinite(log_bets(np.array([0.0, SMALLEST / 4, 1.0]))).all()
    bets, worth = Bets.none().after(np.full(2000, 1e-9))
    assert np.isfinite(worth).all()
    assert worth[-1] > 10_000  # far beyond what a float can hold without the logarithm
    assert bets.log_martingale == worth[-1]


def test_after_a_long_ordinary_stream_a_change_is_still_found():
    bets, _ = Bets.none().after(uniform(200_000))
    assert bets.log_martingale > math.log(waiting(np.float64(200_000))) - 1e-9
    _, worth = bets.after(uniform(60, seed=1) ** 4)
    assert worth[-1] > math.log(100)


@pytest.mark.parametrize("between", [False, True])
def test_ranks_are_those_of_a_loop(between):
    random = np.random.default_rng(0)
    places, chances = random.integers(1, 32, 3 * ROWS // 2), uniform(3 * ROWS // 2)
    earlier = [k + 0.5 for k in range(1, 31)] if between else []
    expected = []
    for place, chance in zip(places.tolist(), chances, strict=True):
        below = sum(other < place for other in earlier)
        equal = sum(other == place for other in earlier)
        expected.append((below + chance * (equal + 1)) / (len(earlier) + 1))
        earlier.append(place)
    whole, cut = Ranks.none(30, between=between), Ranks.none(30, between=between)
    np.testing.assert_allclose(whole.of_new(places, chances), expected, rtol=1e-12)
    parts = zip(np.split(places, [1, 100, 640]), np.split(chances, [1, 100, 640]), strict=True)
    np.testing.assert_allclose(
        np.concatenate([cut.of_new(a, b) for a, b in parts]), expected, rtol=1e-12
    )
    assert whole.seen == len(places)


STREAMS, KNOWN, LENGTH = 800, 100, 500


@pytest.fixture(scope="module")
def streams():
    """P-values of exchangeable streams with many ties: online, and by the ordinary inputs alone."""
    random = np.random.default_rng(5)
    online, fixed = [], []
    for _ in range(STREAMS):
        places = np.ceil(51 * random.beta(1, 3, KNOWN + LENGTH)).astype(np.int64)
        chances = 1 - random.random(LENGTH)
        ranks = Ranks.none(50, between=False)
        ranks.add(places[:KNOWN])
        counts = ranks.counts.copy()
        online.append(ranks.of_new(places[KNOWN:], chances))
        below, equal = np.concatenate([[0], np.cumsum(counts)]), counts
        new = places[KNOWN:]
        fixed.append((below[new] + chances * (equal[new] + 1)) / (KNOWN + 1))
    return {"online": np.array(online), "fixed": np.array(fixed)}


def alarms(p):
    _, worth = Bets.none(len(p)).after(p)
    return int((worth.max(1) >= math.log(1 / RATE)).sum())


def test_online_ranks_are_independent_and_uniform(streams):
    p = streams["online"]
    assert stats.kstest(p.ravel(), "uniform").pvalue > 1e-3
    assert stats.kstest(p[:, -1], "uniform").pvalue > 1e-3
    means = p.mean(1)  # of independent ones they vary by this much
    assert means.std() == pytest.approx(1 / math.sqrt(12 * LENGTH), rel=0.1)
    assert abs(np.corrcoef(p[:, :-1].ravel(), p[:, 1:].ravel())[0, 1]) < 0.01


def test_false_alarms_are_at_most_the_rate(streams):
    """One-sided exact binomial test: that many alarms would be a chance of one in ten thousand."""
    assert stats.binom.sf(alarms(streams["online"]) - 1, STREAMS, RATE) > 1e-4


def test_ranks_among_fixed_inputs_break_the_promise(streams):
    """The trap: each p-value is valid, but they share the error of the inputs they rank among."""
    assert stats.binom.sf(alarms(streams["fixed"]) - 1, STREAMS, RATE) < 1e-6
