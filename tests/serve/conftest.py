"""A service on loopback, with a model that can be held back."""

import threading
from contextlib import contextmanager

import httpx
import pytest
import torch

import credibly as cr
from credibly.serve.app import create_app
from credibly.serve.server import LOOPBACK, bound_socket, server_of
from credibly.serve.service import Service
from credibly.serve.settings import Settings

NAMES = ["cat", "dog", "owl"]


class Held:
    """Lets a model wait, and breaks it on some rows."""

    def __init__(self):
        self.open, self.entered = threading.Event(), threading.Event()
        self.sizes, self.weight = [], torch.linspace(-1, 1, 12).reshape(4, 3)
        self.open.set()

    def __call__(self, x):
        self.sizes.append(len(x))
        self.entered.set()
        assert self.open.wait(30)
        if bool((x == 77).any()):
            message = "a row with the secret number 77"
            raise RuntimeError(message)
        return x @ self.weight

    def close(self):
        self.entered.clear()
        self.open.clear()


@pytest.fixture
def held():
    found = Held()
    yield found
    found.open.set()


def judge_of(net, **settings):
    clf = cr.Classifier(net, classes=NAMES, dtype=torch.float32)
    return cr.Judge.fit(clf, torch.randn(200, 4), **settings)


@pytest.fixture(scope="session")
def judge():
    """For tests that hold nothing back."""
    torch.manual_seed(0)
    return judge_of(Held())


@pytest.fixture
def held_judge(held):
    return judge_of(held)


class Running:
    """A service, and a client for it."""

    def __init__(self, service, port, server, thread):
        self.service, self.port, self.server, self.thread = service, port, server, thread
        self.url = f"http://127.0.0.1:{port}"
        self.client = httpx.Client(base_url=self.url, timeout=30)

    def judge(self, rows, **more):
        asked = {"inputs": rows.tolist() if hasattr(rows, "tolist") else rows, **more}
        return self.client.post("/v1/judge", json=asked)


@contextmanager
def running(judge, *, watching=None, token=None, warm=True, **settings):
    service = Service(judge, Settings(**{"deadline": 20.0, **settings}), watching)
    listening = bound_socket("127.0.0.1", 0)
    server = server_of(create_app(service, token=token, hosts=LOOPBACK), service)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    found = Running(service, listening.getsockname()[1], server, thread)
    try:
        while warm and found.client.get("/v2/health/ready").status_code != 200:
            pass
        yield found
    finally:
        found.client.close()
        server.should_exit = True
        thread.join(30)
        listening.close()
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def running_service():
    return running


@pytest.fixture(scope="session")
def asked(judge):
    with running(judge) as found:
        yield found


class Aside:
    """Requests from other threads."""

    def __init__(self):
        self.threads, self.answers = [], []

    def ask(self, work):
        thread = threading.Thread(target=lambda: self.answers.append(work()), daemon=True)
        thread.start()
        self.threads.append(thread)

    def done(self):
        for thread in self.threads:
            thread.join(30)
            assert not thread.is_alive()
        return self.answers


@pytest.fixture
def aside():
    return Aside()


def until(condition):
    """Wait for something that is sure to come."""
    event = threading.Event()
    for _ in range(3000):
        if condition():
            return
        event.wait(0.01)
    message = "it did not come"
    raise AssertionError(message)


@pytest.fixture
def wait_until():
    return until
