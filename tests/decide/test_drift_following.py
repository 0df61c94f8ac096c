"""A watch that is fed batch by batch, as in a service: what is counted, and what is read."""

import math

import pytest
import torch

import credibly as cr
from credibly.errors import InvalidArgumentError
from tests.reference import models


@pytest.fixture(scope="module")
def judge():
    return cr.Judge.fit(models.smooth_network(classes=3), models.inputs(150, seed=0))


@pytest.fixture(scope="module")
def calm(judge):
    return judge(models.inputs(600, seed=1))


@pytest.fixture(scope="module")
def moved(judge):
    return judge(3 * models.inputs(300, seed=3))


def test_inputs_without_a_judgement_are_unusable(judge, calm):
    """The model raised on them: the watch goes on as if they had been judged unusable."""
    watch, nan = cr.DriftWatch.fit(judge), torch.full_like(models.inputs(2, seed=0), math.nan)
    other = cr.DriftWatch.fit(judge)
    watch.follow(calm[:50])
    watch.skip(2)
    watch.follow(calm[50:])
    for part in (calm[:50], judge(nan), calm[50:]):
        other.update(part)
    assert (watch.seen, watch.state.unusable) == (602, 2)
    assert watch.state == other.state
    with pytest.raises(InvalidArgumentError, match="`rows`"):
        watch.skip(0)


def test_what_is_read_at_every_batch_is_that_of_the_state(judge, calm, moved):
    watch = cr.DriftWatch.fit(judge)
    for part in (calm, moved):
        state = watch.update(part)
        found = (watch.seen, watch.alarm, watch.since, watch.log_martingale, watch.martingale)
        told = (state.seen, state.alarm, state.since, state.log_martingale, state.martingale)
        assert found == told
    assert watch.alarm


def test_classes_that_are_not_in_a_batch_cost_nothing(judge, calm):
    """With a thousand classes the evidence of each took longer than a batch."""
    watch = cr.DriftWatch.fit(judge)
    watch.follow(calm)
    for stream in watch._engine.classes.values():
        stream.bets.log_martingale  # noqa: B018  # known from now on
        stream.bets.__dict__["logs"] = None  # it cannot be computed again
    assert watch.state.by_class.keys() == watch._engine.classes.keys()
