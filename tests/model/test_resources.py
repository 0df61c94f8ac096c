"""Threads for the work at hand, and as many samples at a time as fit."""

import time
from threading import Thread

import numpy as np
import pytest
import torch
from torch import nn

import credibly as cr
from credibly.model import memory, threads
from credibly.model.memory import bytes_of_a_pass, in_chunks, is_out_of_memory, resolve_size
from tests.reference import models

OUT = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")


class Watching(nn.Module):
    """A network that notes how many threads it runs with, and on how many samples."""

    def __init__(self, most=None):
        super().__init__()
        self.inner = nn.Linear(3, 3).double()
        self.counts, self.sizes, self.most = [], [], most

    def forward(self, x):
        self.counts.append(torch.get_num_threads())
        self.sizes.append(len(x))
        if self.most is not None and len(x) > self.most:
            raise OUT
        return self.inner(x).tanh()


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def inputs(count):
    return torch.randn(count, 3, generator=models.generator(0), dtype=torch.float64)


@pytest.mark.usefixtures("two_threads")
def test_small_work_takes_one_thread_and_gives_the_others_back():
    net = Watching()
    judge = cr.Judge.fit(net, inputs(150))
    for call in (
        lambda: judge(inputs(20)),
        lambda: cr.credibility(
            cr.Classifier(net), inputs(3), gamma=5.0, solver=cr.solvers.FixedDescent(radius=0.3)
        ),
    ):
        net.counts.clear()
        call()
        assert net.counts[-1] == 1
        assert torch.get_num_threads() == 2
    with pytest.raises(ZeroDivisionError):
        _raise_inside(net)
    assert torch.get_num_threads() == 2


def _raise_inside(net):
    with _threads(net, 1.0):
        assert torch.get_num_threads() == 1
        raise ZeroDivisionError


def _threads(net, passes):
    variable = cr.bind(cr.Classifier(net), inputs(10))
    return threads.fitting_threads(variable, passes=passes)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("faster", "expected"), [(True, 2), (False, 1)])
def test_long_work_takes_what_is_faster(monkeypatch, faster, expected):
    net = Watching()
    monkeypatch.setitem(threads._SECONDS, net, 1.0)  # a forward of one sample takes a second
    monkeypatch.setattr(threads, "_faster", lambda *_: faster)
    with _threads(net, 10.0):
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == 2
    with _threads(net, 1.0):  # too few forwards to try anything first
        assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_which_is_faster_is_measured():
    variable = cr.bind(cr.Classifier(Watching()), inputs(10))
    work = threads._forward_of_some(variable)
    assert threads._faster(work, 2) in (True, False)
    assert variable.net.counts.count(1) == variable.net.counts.count(2) > 0
    assert set(variable.net.sizes) == {threads.TRIED}


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("slower", "expected"), [(1, 2), (2, 1)])
def test_a_run_keeps_the_threads_that_are_faster_at_its_first_rows(slower, expected, tmp_path):
    seen = []

    def net(x):
        seen.append(torch.get_num_threads())
        time.sleep(0.05 if seen[-1] == slower else 0.0)
        return x[:, :3]

    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(40, 4)).astype("f4"))
    judge = cr.Judge.fit(cr.Classifier(net), torch.randn(150, 4))
    seen.clear()
    cr.judge_file(judge, tmp_path / "x.npy", tmp_path / "v.parquet", chunk_size=8, fingerprint="x")
    assert set(seen[-5:]) == {expected}  # the chunks
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("most", [1, 3, 8, 100])
def test_chunks_are_halved_until_they_fit_and_nothing_is_lost(most):
    tried = []

    def work(rows):
        tried.append(rows.stop - rows.start)
        if tried[-1] > most:
            raise OUT
        return list(range(rows.start, rows.stop))

    found = [n for part in in_chunks(21, 10, work) for n in part]
    assert found == list(range(21))
    assert sum(size > most for size in tried) <= 4  # it does not grow again


def test_one_sample_that_does_not_fit_and_other_errors_are_raised():
    def out(_):
        raise OUT

    def wrong(_):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    for work, message in ((out, "allocate"), (wrong, "shapes")):
        with pytest.raises(RuntimeError, match=message):
            list(in_chunks(4, 2, work))
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory."))
    assert not is_out_of_memory(ValueError("out of memory"))
    assert list(in_chunks(0, 4, out)) == []


def test_profiles_and_verdicts_survive_a_full_memory():
    net, x = Watching(), inputs(40)
    clf = cr.Classifier(net)
    judge = cr.Judge.fit(net, inputs(150))
    decide = cr.solvers.FixedDescent(radius=0.3)
    calls = (
        lambda: judge(x, keep=False).trust,
        lambda: cr.credibility(clf, x, gamma=5.0).credibility,
        lambda: cr.credibility(clf, x, gamma=5.0, solver=decide).credibility,
    )
    expected = [call() for call in calls]
    net.most = 7
    for call, values in zip(calls, expected, strict=True):
        net.sizes.clear()
        torch.testing.assert_close(call(), values)
        assert max(net.sizes) > 7


def test_a_pass_tells_what_fits(monkeypatch):
    net = nn.Sequential(nn.Linear(3, 1000), nn.Tanh(), nn.Linear(1000, 3)).double()
    variable = cr.bind(cr.Classifier(net), inputs(100))
    one = bytes_of_a_pass(variable.select(slice(0, 1)))
    assert 8 * 1000 <= one <= 4 * 8 * 1000  # what Tanh gives, and little else; no weights
    assert bytes_of_a_pass(variable.select(slice(0, 10))) == pytest.approx(10 * one, rel=0.3)
    needed = memory.BESIDE * one / memory.SHARE
    for free, size in ((20.5 * needed, 20), (0.0, 1), (1e15, 128), (float("inf"), 128)):
        monkeypatch.setattr(memory, "free_bytes", lambda _, free=free: free)
        assert resolve_size("auto", variable) == size
    assert resolve_size(7, variable) == 7
    assert resolve_size("auto", variable, {"cpu": 256}) == 256


def test_free_memory_is_known_or_infinite(monkeypatch):
    assert memory.free_bytes(torch.device("cpu")) > 2**20

    def unknown(_):
        raise ValueError

    monkeypatch.setattr(memory.os, "sysconf", unknown)
    assert memory.free_bytes(torch.device("cpu")) == float("inf")


@pytest.mark.parametrize("size", [0, 1.5, "many", None])
def test_sizes_are_whole_numbers_or_auto(size):
    clf = cr.Classifier(nn.Linear(3, 2).double())
    with pytest.raises(cr.errors.InvalidArgumentError, match="chunk_size"):
        cr.credibility(clf, inputs(3), gamma=1.0, chunk_size=size)
    with pytest.raises(cr.errors.InvalidArgumentError, match="chunk_size"):
        cr.Judge.fit(clf, inputs(120), chunk_size=size)


@pytest.mark.usefixtures("two_threads")
def test_threads_that_begin_while_another_one_works_have_the_number_of_before():
    found = []

    def begin():
        found.append(torch.get_num_threads())

    with _threads(Watching(), 1.0):
        assert torch.get_num_threads() == 1
        late = Thread(target=begin)
        late.start()
        late.join()
        assert torch.get_num_threads() == 1
    assert found == [2]
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_a_thread_that_works_leaves_those_beside_it_alone():
    inside = []

    def work():
        with _threads(Watching(), 1.0):
            inside.append(torch.get_num_threads())

    beside = Thread(target=work)
    beside.start()
    beside.join()
    assert inside == [1]
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda net, x: torch.tensor(cr.auto_gamma(cr.Classifier(net), x)),
        lambda net, x: cr.credibility(cr.Classifier(net), x, gamma="auto").credibility,
        lambda net, x: cr.credibility(cr.Classifier(net), x, gamma=5.0, top=1).credibility,
        lambda net, x: cr.bind(cr.Classifier(net), x, top=1).kept,
        lambda net, x: cr.Judge.fit(net, x).ordinary_trust,
        lambda net, x: cr.Judge.fit(net, x, profile="always")(x).trust,
    ],
)
def test_every_step_takes_fewer_where_memory_runs_out(call):
    small, large = Watching(most=6), Watching()
    large.inner = small.inner
    torch.testing.assert_close(call(small, inputs(150)), call(large, inputs(150)))


@pytest.mark.parametrize("gamma", ["auto", 5.0])
def test_the_size_of_chunks_is_kept_by_all_that_a_call_does(gamma):
    for settings in ({"top": 1}, {"effort": "decide"}, {}):
        net = Watching()
        cr.credibility(cr.Classifier(net), inputs(40), gamma=gamma, chunk_size=3, **settings)
        assert max(net.sizes) == 3
