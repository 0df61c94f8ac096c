"""Recorded work: the same numbers, in pieces of a few sizes, and what cannot be recorded runs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import credibly as cr
from credibly.model.memory import in_chunks
from credibly.model.recorded import (
    COMPILED_SIZES,
    KEPT,
    NOTED,
    REMEMBERED,
    SIZES,
    Recorder,
    padded_to,
    pieces,
)
from tests.reference import models


class Tape:
    """In the place of a CUDA graph: it runs the work, and notes what was recorded and replayed."""

    def __init__(self, fails=()):
        self.made, self.played, self.fails = [], [], fails

    def __call__(self, work, given):
        self.made.append(len(given[0]))
        if len(given[0]) in self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")

        def replay(given):
            self.played.append(len(given[0]))
            return work(given)

        return replay


@given(count=st.integers(0, 5000), sizes=st.sampled_from([SIZES, COMPILED_SIZES, (3, 7)]))
def test_pieces_cover_every_row_once_and_fit_their_sizes(count, sizes):
    found = list(pieces(count, sizes))
    rows = [n for place, _ in found for n in range(place.start, place.stop)]
    assert rows == list(range(count))
    assert all(place.stop - place.start <= size and size in sizes for place, size in found)
    padding = sum(size - (place.stop - place.start) for place, size in found)
    assert padding <= max(0.45 * count, 32)  # what is computed for nothing


def test_padding_repeats_the_last_row():
    x = torch.arange(6.0).reshape(3, 2)
    assert torch.equal(padded_to(x, 5), x[[0, 1, 2, 2, 2]])
    assert padded_to(x, 3) is x


def test_a_size_is_recorded_when_it_comes_again_and_gives_the_same():
    tape = Tape()
    recorder = Recorder(sizes=(1, 4), record=tape)
    work = lambda given, _: (given[0] * 2, given[0].sum(1))  # noqa: E731
    x = torch.randn(7, 3, generator=models.generator(0))
    for _ in range(3):
        double, total = recorder.run("key", work, (x,))
        assert torch.equal(double, 2 * x)
        assert torch.allclose(total, x.sum(1))
    assert tape.made == [4]  # the second piece of the first run has the size of the first one
    assert tape.played == [4] * 5
    recorder.run("another key", work, (x[:4],))
    assert tape.played == [4] * 5


def test_what_cannot_be_recorded_runs_as_it_is():
    tape = Tape(fails=(4,))
    recorder = Recorder(sizes=(4,), record=tape)
    work = lambda given, _: (given[0] + 1,)  # noqa: E731
    for _ in range(3):
        (found,) = recorder.run("key", work, (torch.zeros(4, 1),))
        assert torch.equal(found, torch.ones(4, 1))
    assert tape.made == [4]
    assert tape.played == []
    assert recorder.failures == ["RuntimeError: operation not permitted when stream is capturing"]


def test_only_so_many_recordings_are_kept():
    tape = Tape()
    recorder = Recorder(sizes=(1,), record=tape)
    for _ in range(2):
        for key in range(KEPT + 3):
            recorder.run(key, lambda given, _: given, (torch.zeros(1, 1),))
    assert len(tape.made) == KEPT + 3
    assert len(recorder._made) == KEPT
    recorder.run(KEPT, lambda given, _: given, (torch.zeros(1, 1),))
    assert len(tape.made) == KEPT + 3  # still there
    recorder.run(0, lambda given, _: given, (torch.zeros(1, 1),))
    assert len(tape.made) == KEPT + 4  # made again


@pytest.mark.parametrize("top", [None, 3])
def test_a_descent_with_a_recorder_is_the_descent(top):
    net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 5)).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=models.generator(1)))
    plain, tape = cr.Classifier(net), Tape()
    quick = cr.Classifier(net)
    quick.recorder = Recorder(sizes=(1, 4, 16), record=tape)
    x = torch.randn(21, 6, generator=models.generator(2), dtype=torch.float64)
    x[3, 2] = torch.nan
    solver = cr.solvers.FixedDescent(radius=0.5)
    settings = {"gamma": 5.0, "solver": solver, "top": top, "bounds": (-3.0, 3.0)}
    expected = cr.credibility(plain, x, **settings)
    for _ in range(2):
        found = cr.credibility(quick, x, **settings)
        for name in ("credibility", "credence", "perturbed", "risk", "codes"):
            one, other = getattr(found, name), getattr(expected, name)
            assert torch.allclose(one, other, atol=1e-12, equal_nan=True), name
        assert torch.allclose(found.certificate.objective, expected.certificate.objective,
                              equal_nan=True)  # fmt: skip
    assert tape.played
    cr.credibility(quick, x, **{**settings, "gamma": 6.0})  # another question is not replayed
    other = cr.credibility(quick, x, **{**settings, "gamma": 6.0})
    assert torch.allclose(
        other.credibility, cr.credibility(plain, x, **{**settings, "gamma": 6.0}).credibility,
        atol=1e-12, equal_nan=True,
    )  # fmt: skip


@pytest.mark.parametrize("solver", [cr.solvers.Hybrid(), cr.solvers.GaussNewton(steps=4)])
def test_a_full_solve_with_a_recorder_is_the_full_solve(solver):
    net, tape = models.smooth_network(), Tape()
    plain, quick = cr.Classifier(net), cr.Classifier(net)
    quick.recorder = Recorder(sizes=(1, 4, 16), record=tape)
    x = models.inputs(9)
    settings = {"gamma": 30.0, "solver": solver, "chunk_size": 5}
    one, other = (cr.credibility(clf, x, **settings) for clf in (plain, quick))
    assert tape.played
    assert torch.allclose(one.credibility, other.credibility, atol=1e-9)
    assert one.passes.tolist() == other.passes.tolist()
    harder = cr.credibility(quick, x, **{**settings, "gamma": 60.0})
    again = cr.credibility(plain, x, **{**settings, "gamma": 60.0})
    assert torch.allclose(harder.credibility, again.credibility, atol=1e-9)


def test_a_recording_keeps_what_its_graph_reads_and_no_samples():
    """A graph reads the weights where they were: were they freed, it would read something else."""
    kept = []

    def record(work, _):
        kept.append(work.args[0])  # what is called with other samples
        return work

    clf = cr.Classifier(models.smooth_network())
    clf.recorder = Recorder(sizes=(4,), record=record)
    for solver in (cr.solvers.FixedDescent(radius=0.5), cr.solvers.LBFGS(steps=3)):
        for _ in range(2):
            cr.credibility(clf, models.inputs(4), gamma=30.0, solver=solver)
    assert len(kept) == 2
    for work in kept:
        assert work.args[0].weights.tolist() == [30.0] * 5
        assert len(work.args[0]) == 0
        assert work.args[0].x0.untyped_storage().nbytes() == 0


def test_networks_run_as_the_recorder_gives_them():
    seen = []
    recorder = Recorder(sizes=(4,), record=Tape(), compiles=True)
    recorder.faster = lambda net: lambda x: seen.append(len(x)) or net(x)
    net = nn.Linear(3, 2)
    clf = cr.Classifier(net)
    clf.recorder = recorder
    x = torch.randn(4, 3, generator=models.generator(3))
    for _ in range(2):
        cr.credibility(clf, x, gamma=5.0, solver=cr.solvers.FixedDescent(radius=0.5))
    assert seen == [4] * 18  # those of the recording and of its trial, none of the first run


def test_another_network_has_no_recordings_of_this_one():
    clf = cr.Classifier(nn.Linear(2, 2))
    clf.recorder = Recorder(record=Tape())
    assert clf.with_net(nn.Linear(2, 2)).recorder is None


DESCENT = cr.solvers.FixedDescent(radius=0.5)


def stale(work, given):
    """A recording on another stream than its inputs are copied on: it gives what it was made of."""
    found = work(given)
    return lambda _: found


def test_a_recording_that_replays_stale_numbers_is_not_trusted():
    recorder = Recorder(sizes=(4,), record=stale)
    work = lambda given, _: (given[0] * 2, given[0].sum(1))  # noqa: E731
    for seed in range(4):
        x = torch.randn(4, 3, generator=models.generator(seed))
        double, total = recorder.run("key", work, (x,))
        assert torch.equal(double, 2 * x)
        assert torch.equal(total, x.sum(1))
    assert recorder.failures == ["RuntimeError: a replay gave other numbers than the work itself"]


@pytest.mark.parametrize("value", [0.0, torch.nan, torch.inf])
def test_numbers_that_are_the_same_are_trusted_whatever_they_are(value):
    tape = Tape()
    recorder = Recorder(sizes=(2,), record=tape)
    for _ in range(2):
        recorder.run("key", lambda given, _: (given[0] * 0 + value,), (torch.ones(2, 3),))
    assert recorder.failures == []
    assert tape.played == [2]


@pytest.mark.parametrize(
    ("changes", "made"),
    [
        ({"effort": "decide"}, 1),
        ({"solver": DESCENT}, 1),
        ({"solver": DESCENT, "gamma": "auto"}, 0),
        ({"solver": cr.solvers.LBFGS(steps=2), "gamma": "auto"}, 0),
    ],
)
def test_what_is_found_from_the_inputs_is_not_recorded(changes, made):
    clf, tape = cr.Classifier(models.smooth_network()), Tape()
    clf.recorder = Recorder(sizes=(16,), record=tape)
    for _ in range(3):
        cr.credibility(clf, models.inputs(16), **{"gamma": 30.0, **changes})
    assert len(tape.made) == made


def test_what_is_kept_is_bounded():
    def refuse(*_):
        raise RuntimeError(f"reason {len(recorder._made)} {sum(seen)}")

    seen = []
    recorder = Recorder(sizes=(1,), record=refuse)
    x = torch.zeros(1, 1)
    for key in range(REMEMBERED + 50):
        for _ in range(2):
            seen.append(key)
            recorder.run(key, lambda given, _: given, (x,))
    assert len(recorder._met) == REMEMBERED
    assert len(recorder._made) == KEPT
    assert len(recorder.failures) == NOTED
    assert str(sum(seen)) in recorder.failures[-1]


def test_recordings_are_dropped_where_memory_runs_out():
    tape = Tape()
    recorder = Recorder(sizes=(4,), record=tape)
    double = lambda given, _: (2 * given[0],)  # noqa: E731
    ask = lambda: recorder.run("key", double, (torch.ones(4, 1),))  # noqa: E731
    ask(), ask()
    kept = []

    def work(rows):
        kept.append(len(recorder._made))
        if rows.stop - rows.start > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    list(in_chunks(4, 4, work))
    assert kept == [1, 0, 0]
    assert torch.equal(ask()[0], 2 * torch.ones(4, 1))
    assert tape.made == [4, 4]
