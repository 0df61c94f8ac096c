"""The windows of the random search: their schedule, their places and their shape."""

import pytest
import torch

import credibly as cr
from credibly.attacks.square import _Window


def published_share(first, query, budget):
    """Share of the features, as the authors' own code has it, for a number of queries."""
    scaled = query / budget * 10_000
    table = [(10, 1), (50, 2), (200, 4), (500, 8), (1000, 16), (2000, 32), (4000, 64), (6000, 128),
             (8000, 256), (10_000, 512)]  # fmt: skip
    return first / next(part for last, part in table if scaled <= last)


@pytest.mark.parametrize("budget", [200, 10_000])
def test_windows_shrink_as_published(budget):
    attack = cr.attacks.Square(eps=0.1, steps=budget, share=0.4)
    found = [attack._area(query) for query in range(budget)]
    assert found == [published_share(0.4, query, budget) for query in range(budget)]


def test_a_start_on_which_the_model_gives_no_numbers_is_left_behind():
    ahead = torch.tensor([5.0, 0.0, 0.0], dtype=torch.float64)  # no class changes, only margins do
    clf = cr.Classifier(lambda v: torch.where(v[:, :1] > 0.05, torch.nan, v + ahead))
    x = 0.01 * torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.zeros(20, dtype=torch.long)
    first, found = (cr.attacks.Square(eps=0.1, steps=n)(clf, x, labels) for n in (1, 40))
    broken = [int(clf.logits(v).isnan().any(1).sum()) for v in (first, found)]
    assert broken[0] > 3
    assert broken[1] == 0


def test_windows_lie_inside_and_reach_every_place():
    drawn = torch.cartesian_prod(*[torch.linspace(0, 1 - 1e-12, 41, dtype=torch.float64)] * 2)
    mask = _Window.at(drawn, (3, 2), (5, 4)).mask[:, 0]
    corners = set()
    for found in mask:
        rows, columns = found.any(1).nonzero().flatten(), found.any(0).nonzero().flatten()
        assert int(found.sum()) == 6  # none is cut by an edge
        assert rows.tolist() == list(range(int(rows[0]), int(rows[0]) + 3))
        assert columns.tolist() == list(range(int(columns[0]), int(columns[0]) + 2))
        corners.add((int(rows[0]), int(columns[0])))
    assert corners == {(i, j) for i in range(3) for j in range(3)}


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("size", [(4, 4), (6, 6), (1, 4)])
def test_a_bump_is_two_opposite_hills_of_length_one(size, turned):
    window = _Window.at(torch.full((1, 2), 0.5, dtype=torch.float64), size, (size[0] + 3, 9))
    bump = window.bump(torch.tensor([turned]))[0, 0]
    assert float(bump.norm()) == pytest.approx(1.0)
    assert not bool(bump[~window.mask[0, 0]].any())
    inside = bump[window.mask[0, 0]].reshape(size)
    if turned and size[0] > 1:
        inside = inside.T
    half = inside.shape[1] // 2
    if not turned or size[0] > 1:
        assert bool((inside[:, :half] > 0).all())
        torch.testing.assert_close(inside.flip(1), -inside)
    hill = inside.abs()
    torch.testing.assert_close(hill, hill.flip(0))
    middle = (hill.shape[0] - 1) // 2, half - 1
    assert float(hill[middle]) == float(hill.max())
    assert float(hill[0, 0]) == float(hill.min())
    assert float(hill.max()) > float(hill.min())


def test_length_moves_between_windows_and_none_is_lost():
    g = torch.Generator().manual_seed(0)
    attack = cr.attacks.Square(eps=2.0, norm="l2")
    shift = torch.randn(3, 2, 6, 6, generator=g, dtype=torch.float64)
    lengths = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    shift = shift / shift.flatten(1).norm(dim=1)[:, None, None, None] * lengths[:, None, None, None]
    places = torch.rand(2, 3, 2, generator=g, dtype=torch.float64)
    window, other = (_Window.at(place, (2, 2), (6, 6)) for place in places)
    signs = torch.ones(3, 2, 1, 1, dtype=torch.float64)
    moved = attack._moved_mass(shift, window, other, signs, torch.tensor([True, False, True]))
    first, second = (w.mask.expand_as(shift) for w in (window, other))
    torch.testing.assert_close(moved[~first & ~second], shift[~first & ~second])
    assert not bool(moved[second & ~first].any())
    # what was short of the radius is used, too
    torch.testing.assert_close(moved.flatten(1).norm(dim=1), torch.full((3,), 2.0).double())
