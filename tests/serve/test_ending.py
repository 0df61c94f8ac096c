"""The end of a service: within `--drain`, with an answer for all that was accepted."""

import json
import socket
import threading
import time

import pytest
import torch

from credibly.errors import ModelError
from credibly.serve.app import create_app
from credibly.serve.server import LOOPBACK, bound_socket, serve
from credibly.serve.service import Service
from credibly.serve.settings import Settings


def told_to_stop(asked):
    """Tell the server, and wait until it takes no more."""
    asked.server.should_exit = True
    while not asked.service.draining:
        time.sleep(0.01)
    return time.monotonic()


def test_a_profile_that_outlasts_the_drain_leaves_the_forward_answer(judge, running_service, aside):
    with running_service(judge, drain=2.0) as asked:
        backlog, begun, release = asked.service.solver.backlog, threading.Event(), threading.Event()
        backlog._profiles = lambda _: (begun.set(), release.wait(20))
        aside.ask(lambda: asked.judge(torch.zeros(2, 4), profile=True))
        assert begun.wait(20)
        stopped = told_to_stop(asked)
        answer = aside.done()[0]
        assert answer.status_code == 200
        assert [row["incomplete"] for row in answer.json()["rows"]] == ["no time"] * 2
        assert answer.headers["connection"] == "close"
        asked.thread.join(20)
        assert time.monotonic() - stopped < 3.0
        release.set()


def test_rows_that_were_not_judged_in_the_drain_are_refused(
    held, held_judge, running_service, aside
):
    with running_service(held_judge, drain=1.0) as asked:
        held.close()
        aside.ask(lambda: asked.judge(torch.zeros(1, 4)))
        assert held.entered.wait(20)
        told_to_stop(asked)
        answer = aside.done()[0]
        held.open.set()
    assert answer.status_code == 503
    assert answer.json()["error"].startswith("The service is ending")


def test_a_body_that_did_not_come_in_the_drain_is_counted(judge, running_service):
    head = b"POST /v1/judge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with running_service(judge, drain=1.0) as asked:
        with socket.create_connection(("127.0.0.1", asked.port), timeout=20) as raw:
            raw.sendall(head + b"Content-Length: 100\r\n\r\n{")
            while not asked.service.held:
                time.sleep(0.01)
            told_to_stop(asked)
            found = raw.recv(1 << 16)
        asked.thread.join(20)
        assert asked.service.open == 0
        text = asked.service.metrics.text().decode()
    assert found.startswith(b"HTTP/1.1 503")
    assert json.loads(found.partition(b"\r\n\r\n")[2])["error"]
    assert 'credibly_requests_total{place="/v1/judge",status="503"} 1.0' in text


def test_answers_during_the_drain_close_the_connection(held, held_judge, running_service, aside):
    with running_service(held_judge) as asked:
        held.close()
        aside.ask(lambda: asked.judge(torch.zeros(1, 4)))
        assert held.entered.wait(20)
        asked.service.drain()
        assert asked.client.get("/v2").headers["connection"] == "close"
        held.open.set()
        assert aside.done()[0].headers["connection"] == "close"


class Fussy(torch.nn.Module):
    """Has not enough memory for more than some rows."""

    most = 1000

    def forward(self, x):
        if len(x) > self.most:
            message = "no room"
            raise RuntimeError(message)
        return x @ torch.linspace(-1, 1, 12).reshape(4, 3)


@pytest.fixture
def fussy():
    import credibly as cr

    net = Fussy().eval()
    return net, cr.Judge.fit(net, torch.randn(200, 4))


def test_a_batch_that_fails_before_the_first_request_is_not_used(fussy, running_service):
    net, judge = fussy
    net.most = 10
    with running_service(judge) as asked:
        assert asked.service.solver.batch == 8
        assert asked.judge(torch.zeros(20, 4)).status_code == 200


def test_a_model_that_fails_before_the_first_request_ends_the_service(fussy):
    net, judge = fussy
    net.most = 0
    service = Service(judge, Settings())
    with pytest.raises(ModelError, match="RuntimeError"), bound_socket("127.0.0.1", 0) as listening:
        serve(create_app(service, hosts=LOOPBACK), service, listening)
    assert not service.solver.is_alive()
