"""With profile='doubtful', inputs that one forward shows to be outliers get no profile."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import credibly as cr
from credibly.decide.alarm import Scales
from credibly.decide.knowledge import Knowledge
from credibly.decide.recipe import FROM_PROFILE
from tests.reference import models

ORDINARY = models.inputs(300, seed=1)
SETS = {
    "ordinary": models.inputs(200, seed=2),
    "wider": 3 * models.inputs(200, seed=3),
    "far": 30 * models.inputs(200, seed=4),
    "shifted": models.inputs(200, seed=5) + 2.0,
}


@pytest.fixture(scope="module")
def judge():
    return cr.Judge.fit(models.relu_network(), ORDINARY, profile="doubtful", false_alarms=0.02)


@pytest.fixture(scope="module")
def pairs(judge):
    """What is found, and what is found if every doubtful input is looked at."""

    def nobody(_, signals):
        return torch.zeros_like(signals["confidence"], dtype=torch.bool)

    found = {name: judge(x) for name, x in SETS.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Knowledge, "_certain", nobody)
        return {name: (one, judge(SETS[name])) for name, one in found.items()}


@pytest.mark.parametrize("name", SETS)
def test_no_verdict_changes_and_no_alarm_becomes_surer(pairs, name):
    found, looked = pairs[name]
    assert torch.equal(found.codes, looked.codes)
    assert torch.equal(found.trust, looked.trust)
    assert bool((found.p_outlier >= looked.p_outlier).all())
    assert bool((found.p_tampered >= looked.p_tampered).all())
    assert bool((found.passes <= looked.passes).all())


def test_outliers_cost_one_forward(pairs):
    found, looked = pairs["far"]
    spared = found.passes < looked.passes
    assert float(spared.double().mean()) > 0.9
    assert found.passes[spared].tolist() == pytest.approx([1 / 3] * int(spared.sum()))
    outlier = torch.tensor([v == cr.Verdict.OUTLIER for v in found.verdicts])
    assert bool(outlier[spared].all())


def test_every_input_is_looked_at_where_that_was_asked_for():
    judge = cr.Judge.fit(models.relu_network(), ORDINARY, profile="always", false_alarms=0.02)
    assert judge(SETS["far"]).passes.tolist() == pytest.approx([9 + 1 / 3] * 200)


def test_the_profile_of_a_spared_input_is_solved_when_it_is_asked_for(judge, pairs):
    found, looked = pairs["far"]
    row = int((found.passes < looked.passes).nonzero()[0])
    profile = judge(SETS["far"]).profile_of(row)
    assert bool(profile.credibility.isfinite().all())


@given(st.integers(0, 10_000))
def test_a_profile_only_adds_to_what_is_strange(seed):
    g = models.generator(seed)
    names = ("confidence", "energy", "inputs", *sorted(FROM_PROFILE))
    known = {n: torch.randn(120, generator=g, dtype=torch.float64) for n in names}
    used = {*names, "unusual confidence", "unusual together"}
    scales = Scales.fit(known, "doubtful", used)
    new = {n: 3 * torch.randn(50, generator=g, dtype=torch.float64) for n in names}
    blind = {n: v * (math.nan if n in FROM_PROFILE else 1.0) for n, v in new.items()}
    before, after = scales.strangeness(blind), scales.strangeness(new)
    for question, values in after.items():
        assert bool((values >= before[question] - 1e-12).all()), question
