"""On a CPU x+ is the same whatever is solved beside it, also where rounding is amplified."""

import math

import pytest
import torch
from torch import nn

import credibly as cr
from credibly.data.sample import load_sample
from credibly.problem.rows import filled_up
from credibly.solve.loop import batch_size
from tests.reference import models

GAMMA = 455.0
SAMPLE = load_sample()
CLF = cr.Classifier(SAMPLE.net)
X = SAMPLE.images[300:363]  # a ReLU network in float32: many kinks


def solved(x, solver, **settings):
    return cr.credibility(CLF, x, gamma=GAMMA, solver=solver, **settings)


@pytest.mark.parametrize(
    "solver",
    [cr.solvers.FixedDescent(), cr.solvers.LBFGS(steps=16), cr.solvers.Hybrid()],
    ids=["fixed", "lbfgs", "hybrid"],
)
def test_an_input_alone_ends_where_it_ends_in_a_batch(solver):
    together = solved(X, solver)
    rows = (17, 62)
    for rest, size in ((1, 128), (2, 128), (5, 128), (63, 20)):
        for first in rows if rest < 63 else (0,):
            part = slice(first, min(first + rest, len(X)))
            one = solved(X[part], solver, chunk_size=size)
            assert torch.equal(one.perturbed, together.perturbed[part]), (rest, first)
            gap = (one.credibility - together.credibility[part]).abs().max()
            assert float(gap) <= 1e-5
            assert torch.equal(one.codes, together.codes[part])
            assert torch.equal(one.passes, together.passes[part])


def test_inputs_in_a_space_are_the_same_in_any_batch_too():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 6)
    )
    clf = cr.Classifier(net.eval(), space=cr.Space(scale=torch.rand(20) + 0.5))
    x = torch.randn(30, 20)
    for solver in (cr.solvers.FixedDescent(), cr.solvers.LBFGS(steps=20)):
        together = cr.credibility(clf, x, gamma=5.0, solver=solver)
        for row in (0, 13, 29):
            one = cr.credibility(clf, x[row : row + 1], gamma=5.0, solver=solver)
            assert torch.equal(one.perturbed[0], together.perturbed[row])


def test_a_broken_row_leaves_the_others_as_they_are_to_the_bit():
    broken = X[:9].clone()
    broken[3] = math.nan
    kept = torch.tensor([0, 1, 2, 4, 5, 6, 7, 8])
    for solver in (cr.solvers.FixedDescent(), cr.solvers.LBFGS(steps=8)):
        clean, mixed = solved(X[:9], solver), solved(broken, solver)
        assert torch.equal(clean.perturbed[kept], mixed.perturbed[kept])


def test_copies_are_of_the_last_row_and_few():
    for count in range(1, 20):
        rows = filled_up(count, torch.device("cpu"))
        assert rows[:count].tolist() == list(range(count))
        assert set(rows[count:].tolist()) <= {count - 1}
        assert len(rows) % 4 == 0
        assert len(rows) - count < 4


def sizes_seen(x, **settings):
    seen = []

    class Watching(nn.Module):
        def forward(self, x):
            if x.requires_grad:
                seen.append(len(x))
            return x.flatten(1)[:, :3] * 2.0

    cr.credibility(cr.Classifier(Watching()), x, gamma=1.0, **settings)
    return seen


def test_copies_that_end_elsewhere_count_for_nothing():
    """In a wide layer with few outputs the last bits depend on the place among four as well."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 1000), nn.ReLU(), nn.Linear(1000, 2)).eval()
    clf = cr.Classifier(net)
    settings = {"gamma": 20.0, "solver": cr.solvers.LBFGS()}
    for x in torch.randn(60, 1, 5):
        alone = cr.credibility(clf, x, **settings)
        four = cr.credibility(clf, x.repeat(4, 1), **settings)  # what the batch really holds
        assert torch.equal(alone.perturbed[0], four.perturbed[0])
        assert (int(alone.steps[0]), int(alone.codes[0])) == (
            int(four.steps[0]),
            int(four.codes[0]),
        )
        # a pass for each step, one at x0, and the evaluation of x0 and x+ with a certificate
        assert float(alone.passes) == pytest.approx(float(alone.steps) + 1 + 5 / 3)


def test_passes_and_batches_with_copies():
    seen = []

    def net(x):
        if x.requires_grad:
            seen.append(len(x))
        return smooth(x)

    smooth, x = models.smooth_network(), models.inputs(21)
    found = cr.credibility(cr.Classifier(net), x, gamma=30.0, solver=cr.solvers.LBFGS())
    sizes = [n for n in seen if n not in (1, 2, 21)]  # without the looks before and after
    assert {size % 4 for size in sizes} == {0}
    assert max(sizes) == 24
    assert len(set(found.steps.tolist())) > 1
    counted = float((found.passes - 5 / 3).sum())  # of the solve
    assert counted <= sum(sizes)
    assert counted == float(found.steps.sum()) + 21
    seen.clear()
    cr.credibility(cr.Classifier(net), x, gamma=30.0, solver=cr.solvers.LBFGS(), chunk_size=7)
    assert max(seen) <= 7


@pytest.mark.parametrize(("left", "size"), [(1, 4), (4, 4), (5, 8), (9, 12), (33, 40), (64, 64)])
def test_batches_shrink_to_multiples_of_four(left, size):
    assert batch_size(left, least=4) == size


def test_neither_large_inputs_nor_small_chunks_are_copied():
    steps = {"solver": cr.solvers.FixedDescent(steps=2)}
    assert max(sizes_seen(torch.rand(1, 4096), **steps)) == 4
    assert max(sizes_seen(torch.rand(1, 4097), **steps)) == 2  # the check of the model
    assert max(sizes_seen(torch.rand(7, 8), chunk_size=3, **steps)) == 3
    assert max(sizes_seen(torch.rand(7, 8), chunk_size=3)) == 3
