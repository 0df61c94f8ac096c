"""Agreement of neighbours: by a plain loop, and where it cannot be told."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from credibly.decide.agreement import FLOOR, ORDERS, Agreement
from credibly.decide.typicality import nearest
from tests.reference import models


def points(count, seed):
    return normalize(torch.randn(count, 6, generator=models.generator(seed)), dim=1)


def by_loop(point, known, classes, asked, skipped=None):
    """Mean log ratio of the distances to the first and third neighbour of other and same class."""
    apart, beside = [], []
    for row, (other, its) in enumerate(zip(known, classes, strict=True)):
        if row != skipped:
            far = math.dist(point.tolist(), other.tolist())
            (beside if its == asked else apart).append(max(far, FLOOR))
    if not apart or not beside:
        return math.nan
    pick = lambda found: [sorted(found)[min(n, len(found)) - 1] for n in ORDERS]  # noqa: E731
    ratios = [math.log(a / b) for a, b in zip(pick(apart), pick(beside), strict=True)]
    return sum(ratios) / len(ratios)


@pytest.mark.parametrize("count", [600, 30, 4])
def test_agreement_is_that_of_a_loop(count):
    known, new = points(count, 0), points(9, 1)
    classes = torch.arange(count) % 3
    asked = torch.arange(9) % 4  # no ordinary input has the last class
    found = Agreement(known, classes)
    expected = [
        by_loop(p, known, classes.tolist(), k) for p, k in zip(new, asked.tolist(), strict=True)
    ]
    np.testing.assert_allclose(found.of_new(new, asked).numpy(), expected, rtol=1e-4, atol=1e-5)
    assert math.isnan(expected[3])
    own = [
        by_loop(known[k], known, classes.tolist(), int(classes[k]), skipped=k)
        for k in range(min(count, 20))
    ]
    np.testing.assert_allclose(found.of_own()[:20].numpy(), own, rtol=1e-4, atol=1e-5)


def test_where_all_have_the_class_nothing_can_be_told():
    known = points(10, 0)
    found = Agreement(known, torch.zeros(10, dtype=torch.long))
    assert bool(found.of_own().isnan().all())
    assert bool(found.of_new(points(3, 1), torch.tensor([0, 0, 1])).isnan().all())


def test_copies_of_an_ordinary_input_agree_but_not_without_end():
    known = points(12, 0)
    classes = torch.arange(12) % 2
    found = Agreement(known, classes).of_new(known[:1], classes[:1])
    assert 0 < float(found) < -math.log(FLOOR)


def test_nearest_counts_only_what_is_allowed():
    known, new = points(20, 0), points(5, 1)
    allowed = torch.zeros(5, 20, dtype=torch.bool)
    allowed[:, :2] = True
    found = nearest(new, known, 3, allowed)
    expected = torch.cdist(new.double(), known[:2].double()).sort(1).values
    torch.testing.assert_close(found[:, :2], expected, rtol=1e-5, atol=1e-6)
    assert bool(found[:, 2].isinf().all())
