"""Recording on a GPU, with a stand-in for it: devices, streams and what is left after a failure."""

from contextlib import contextmanager
from threading import Thread

import pytest
import torch

from credibly.model import cuda_graphs
from credibly.model.cuda_graphs import GraphMaker, Turns

SECOND = torch.device("cuda:1")


class OnSecond:
    """A tensor that says it is on the second GPU."""

    def __init__(self, value):
        self.value, self.device = value, SECOND

    def clone(self):
        return OnSecond(self.value)

    def copy_(self, other):
        self.value = other.value


class Event:
    def __init__(self, stream):
        self.stream = stream

    def synchronize(self):
        self.stream.gpu.log.append(("over", self.stream))


class Stream:
    def __init__(self, gpu, device):
        self.gpu, self.device = gpu, device

    def wait_stream(self, other):
        self.gpu.log.append(("wait", self, other))

    def wait_event(self, event):
        self.gpu.log.append(("wait for", self, event.stream))

    def record_event(self):
        return Event(self)


class Gpu:
    """What torch.cuda keeps: a current device, and a current stream of each."""

    def __init__(self):
        self.device, self.log, self.capturing = torch.device("cuda:0"), [], 0
        self.streams = {n: Stream(self, torch.device("cuda", n)) for n in (0, 1)}
        self.graphs, self.pools, self.fails = [], 0, False

    @contextmanager
    def on(self, device):
        before, self.device = self.device, torch.device(device)
        try:
            yield
        finally:
            self.device = before

    def current(self, device=None):
        return self.streams[(self.device if device is None else torch.device(device)).index]

    @contextmanager
    def within(self, stream):
        before = self.streams[stream.device.index]
        self.streams[stream.device.index] = stream
        try:
            yield
        finally:
            self.streams[stream.device.index] = before

    def pool(self):
        self.pools += 1
        return self.pools

    @contextmanager
    def capture(self, graph, pool, stream, *, capture_error_mode):
        assert capture_error_mode == "thread_local"  # others may allocate meanwhile
        assert stream.device == self.device
        self.capturing += 1
        assert self.capturing == 1
        self.streams[stream.device.index] = stream  # torch leaves it there if the end fails
        graph.pool, graph.stream, graph.device = pool, stream, self.device
        self.graphs.append(graph)
        before = self.current()
        try:
            yield
        finally:
            self.capturing -= 1
        if self.fails:
            raise RuntimeError("operation failed due to a previous error during capture")
        self.streams[stream.device.index] = before


class Graph:
    def __init__(self, gpu):
        self.gpu = gpu

    def replay(self):
        assert self.gpu.device == self.device  # it runs on the current stream of its device
        self.gpu.log.append("replay")


@pytest.fixture
def gpu(monkeypatch):
    found = Gpu()
    for name, value in {
        "device": found.on, "current_stream": found.current, "stream": found.within,
        "Stream": lambda device: Stream(found, device), "graph_pool_handle": found.pool,
        "graph": found.capture, "CUDAGraph": lambda: Graph(found),
    }.items():  # fmt: skip
        monkeypatch.setattr(cuda_graphs.torch.cuda, name, value)
    return found


def seen_by(gpu, log):
    """Work that notes where it runs."""

    def work(given):
        log.append((gpu.device, gpu.current()))
        return tuple(OnSecond(2 * part.value) for part in given)

    return work


def test_work_is_recorded_and_replayed_on_the_gpu_of_its_tensors(gpu):
    log, here = [], gpu.streams[1]
    made = GraphMaker()(seen_by(gpu, log), (OnSecond(3),))
    assert {device for device, _ in log} == {SECOND}
    assert {stream.device for _, stream in log} == {SECOND}
    assert here not in [stream for _, stream in log]
    gpu.log.clear()
    made((OnSecond(5),))
    assert gpu.log == ["replay"]
    assert made.given[0].value == 5
    assert gpu.device == torch.device("cuda:0")
    assert gpu.streams[1] is here


def test_recordings_of_one_maker_share_memory_and_a_stream(gpu):
    maker = GraphMaker()
    for _ in range(2):
        maker(seen_by(gpu, []), (OnSecond(3),))
    assert len({graph.pool for graph in gpu.graphs}) == 1
    assert len({graph.stream for graph in gpu.graphs}) == 1


def test_a_capture_that_fails_leaves_the_stream_of_the_caller_and_no_pool(gpu):
    maker, before = GraphMaker(), dict(gpu.streams)
    gpu.fails = True
    with pytest.raises(RuntimeError, match="previous error"):
        maker(seen_by(gpu, []), (OnSecond(3),))
    assert gpu.streams == before
    gpu.fails = False
    maker(seen_by(gpu, []), (OnSecond(3),))
    assert gpu.graphs[0].pool != gpu.graphs[1].pool


@pytest.mark.usefixtures("gpu")
def test_makers_of_two_threads_capture_one_after_the_other():
    failed = []

    def work(given):
        torch.zeros(100, 100) @ torch.zeros(100, 100)  # lets the other thread run
        return given

    def make():
        try:
            for _ in range(20):
                GraphMaker()(work, (OnSecond(3),))
        except AssertionError as error:
            failed.append(error)

    threads = [Thread(target=make) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_the_next_thread_waits_for_what_the_last_one_left_on_its_stream(gpu):
    turns, first = Turns(), gpu.streams[1]
    with turns.on(SECOND):
        pass
    assert gpu.log == []
    second = Stream(gpu, SECOND)
    with gpu.within(second), turns.on(SECOND):
        assert gpu.log == [("wait for", second, first)]
    with turns.on(SECOND):
        assert gpu.log[-1] == ("wait for", first, second)
    with turns.over():
        assert gpu.log[-1] == ("over", first)
