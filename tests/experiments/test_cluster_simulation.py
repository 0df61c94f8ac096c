"""The simulated cluster against closed forms, and what must hold of any run of it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cluster_simulation import HOUR, Job, Setting, expected_time, simulate

QUIET = {"driver": 0.0, "per_shard": 0.5, "start": 20.0, "speed": 100.0}


@pytest.mark.parametrize(("gpus", "shards"), [(1, 5), (4, 8), (4, 9), (7, 3)])
def test_without_trouble_it_is_the_start_and_the_rounds(gpus, shards):
    setting = Setting(gpus=gpus, rows=shards * 1000, shard=1000, **QUIET)
    found = Job(setting, 0).run()
    assert found.hours * HOUR == pytest.approx(20.0 + math.ceil(shards / gpus) * 10.5)
    assert found.lost == found.losses == 0


def test_a_driver_that_is_too_slow_is_what_takes_the_time():
    setting = Setting(gpus=50, rows=1_000_000, shard=100, **{**QUIET, "driver": 0.2})
    found = Job(setting, 0).run()
    assert found.hours * HOUR == pytest.approx(0.2 * setting.shards, rel=0.02)


def test_time_and_loss_of_a_worker_that_fails_are_those_of_the_closed_form():
    """Each try of a shard fails at a constant rate: exp(f t) - 1 failures per shard."""
    setting = Setting(gpus=1, rows=400_000, shard=10_000, failures=20.0, restart=30.0, **QUIET)
    runs = [Job(setting, seed).run() for seed in range(300)]
    hours = np.array([run.hours * HOUR - 20.0 for run in runs]) / setting.shards
    losses = np.array([run.losses for run in runs]) / setting.shards
    lost = np.array([run.lost * HOUR for run in runs]) / setting.shards
    time = setting.shard / setting.speed + setting.per_shard
    rate = 20.0 / HOUR
    for got, wanted in (
        (hours, expected_time(setting)),
        (losses, math.expm1(rate * time)),
        (lost, math.expm1(rate * time) / rate - time),
    ):
        assert abs(got.mean() - wanted) < 4 * got.std() / math.sqrt(len(got))


def test_the_best_shard_is_near_that_of_young():
    """For one worker that often fails, sqrt(2 x cost of a shard / rate of failures) seconds."""
    base = {"gpus": 1, "rows": 1_000_000, "failures": 2.0, "restart": 30.0, **QUIET}
    best = math.sqrt(2 * 0.5 / (2.0 / HOUR)) * 100.0  # rows
    per_row = {
        factor: expected_time(Setting(shard=int(factor * best), **base)) / int(factor * best)
        for factor in (0.25, 1.0, 4.0)
    }
    assert per_row[1.0] == min(per_row.values())


def test_stragglers_cost_what_their_share_of_the_speed_is_worth():
    setting = Setting(gpus=200, rows=4_000_000, shard=100, slow=0.1, **{**QUIET, "per_shard": 0.0})
    found = simulate(setting, 5)
    speed = 100.0 * (180 + 20 / 3)
    assert found.hours * HOUR - 20 == pytest.approx(4_000_000 / speed, rel=0.05)


@settings(max_examples=30, deadline=None)
@given(
    st.builds(
        Setting,
        gpus=st.integers(1, 20),
        shard=st.integers(50, 5000),
        failures=st.floats(0, 30),
        node_failures=st.floats(0, 5),
        slow=st.floats(0, 1),
        rows=st.just(20_000),
        spread=st.just(0.2),
        restart=st.just(10.0),
        **{name: st.just(value) for name, value in QUIET.items()},
    ),
    st.integers(0, 99),
)
def test_every_run_ends_and_accounts_for_all_time(setting, seed):
    job = Job(setting, seed)
    found = job.run()
    assert job.left == 0
    assert found.lost >= 0
    spent = 20_000 / 100.0 + setting.shards * 0.5
    slack = 0.5 * spent  # shards of random length
    assert found.hours * setting.gpus * HOUR + slack >= spent + found.lost * HOUR
    assert Job(setting, seed).run() == found
