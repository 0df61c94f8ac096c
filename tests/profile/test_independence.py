"""Samples never meet: whoever else is in the batch, and however it is cut, nothing changes."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

import credibly as cr
from tests.reference import models

CLF = cr.Classifier(models.smooth_network(seed=2))
X0 = models.inputs(8, seed=3)
ALONE = [cr.credibility(CLF, X0[n : n + 1], gamma=30.0) for n in range(8)]


@given(company=st.lists(st.integers(0, 7), min_size=1, max_size=10), chunk=st.integers(1, 12))
def test_company_and_chunks_change_nothing(company, chunk):
    profile = cr.credibility(CLF, X0[company], gamma=30.0, chunk_size=chunk)
    for row, n in enumerate(company):
        assert torch.allclose(profile.perturbed[row], ALONE[n].perturbed[0], atol=1e-7)
        assert torch.allclose(profile.credibility[row], ALONE[n].credibility[0], atol=1e-7)


@given(
    bad=st.dictionaries(
        st.integers(0, 7),
        st.tuples(st.integers(0, 7), st.sampled_from([math.nan, math.inf, -math.inf])),
        max_size=8,
    )
)
def test_rows_that_are_not_finite_affect_only_themselves(bad):
    x = X0.clone()
    for row, (feature, value) in bad.items():
        x[row, feature] = value
    profile = cr.credibility(CLF, x, gamma=30.0)
    for n in range(8):
        if n in bad:
            assert profile.status[n] is cr.Status.NON_FINITE_INPUT
            assert bool(profile.credibility[n].isnan().all())
        else:
            assert profile.status[n] is ALONE[n].status[0]
            assert torch.allclose(profile.perturbed[n], ALONE[n].perturbed[0], atol=1e-7)
