"""Several threads and one model: every answer is that of one thread alone."""

from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import pytest
import torch
from torch import nn

import credibly as cr
from benchmarks import threads
from benchmarks.thread_cases import CASES, FEW, ROUNDING
from credibly.model.generators import kept_generators, seeded_generators, watch_for_draws
from credibly.types import CPU
from tests.reference import models

NEEDS = {
    "exported": (), "nodes": ("torch_geometric",), "graphs": ("torch_geometric",),
    "distilbert": ("transformers",), "gpt2": ("transformers",), "skorch": ("skorch",),
    "jax": ("jax",), "sklearn": ("sklearn",), "deepfool": ("foolbox",),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_answers_are_those_of_one_thread(case):
    for library in NEEDS.get(case.__name__, ()):
        pytest.importorskip(library)
    if case.__name__ == "exported" and torch.__version__ < "2.13":
        pytest.skip("exported programs of older torch are not safe for threads by themselves")
    rounding = ROUNDING.get(case, 0.0)
    errors, different = threads.compare(case(), calls=16, threads=4, rounding=rounding)
    assert not errors
    assert different == 0


class Drawn(nn.Module):
    """Another thread draws whenever it runs; it draws itself if asked, with a fixed seed."""

    def __init__(self, *, draws=False):
        super().__init__()
        self.inner, self.draws, self.others = models.smooth_network(), draws, []

    def forward(self, x):
        thread = Thread(target=lambda: self.others.append(torch.rand(1)))
        thread.start()
        thread.join()
        if self.draws:
            torch.manual_seed(3)
            return self.inner(x) + 0 * torch.rand(1)
        return self.inner(x)


def drawn_beside():
    """What other threads drew while a profile was solved, and what came next."""
    net = Drawn().eval()
    torch.manual_seed(0)
    cr.credibility(cr.Classifier(net), models.inputs(1), gamma=9.0, solver=FEW)
    return torch.cat([*net.others, torch.rand(1)])


def test_draws_of_other_threads_are_not_undone():
    with ThreadPoolExecutor(1) as alone:  # nothing is kept around it, whatever ran here before
        drawn = alone.submit(drawn_beside).result()
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.cat([torch.rand(1) for _ in drawn]))


def test_draws_of_the_model_are():
    net, before = Drawn(draws=True).eval(), torch.get_rng_state()
    cr.credibility(cr.Classifier(net), models.inputs(1), gamma=9.0, solver=FEW)
    assert torch.equal(torch.get_rng_state(), before)


def attention(x, dropout):
    x = x.reshape(-1, 1, 2, 4)
    return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=dropout)


@pytest.mark.parametrize(
    ("run", "draws"),
    [
        (models.smooth_network(), False),
        (lambda x: x + torch.rand(8, generator=models.generator(0)), False),
        (lambda x: attention(x, 0.0), False),
        (lambda x: attention(x, 0.5), True),
        (lambda x: nn.functional.dropout(x, 0.5), True),
        (lambda x: x + torch.randn_like(x), True),
        (torch.jit.script(nn.Dropout(0.5)), True),
        (torch.jit.script(nn.Dropout(0.5).eval()), False),
    ],
)
def test_what_draws_is_seen(run, draws):
    x = models.inputs(2)
    assert watch_for_draws(lambda: run(x))[1] == draws


def test_what_cannot_be_watched_may_draw():
    runs = []

    def run():
        runs.append(torch._C._len_torch_dispatch_stack())
        if runs[-1]:
            raise RuntimeError
        return 5

    assert watch_for_draws(run) == (5, True)
    assert runs == [1, 0]


def test_seeded_draws_are_not_disturbed_by_those_who_keep_the_generators():
    with seeded_generators(3, CPU):
        expected = [torch.rand(1) for _ in range(50)]

    def draw(_):
        with seeded_generators(3, CPU):
            return [torch.rand(1) for _ in range(50)]

    def keep(_):
        with kept_generators(CPU):
            return expected

    before = torch.get_rng_state()
    with threads.switching_often(), ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: (draw if n % 2 else keep)(n), range(200)))
    assert all(entry == expected for entry in found)
    assert torch.equal(torch.get_rng_state(), before)
