"""Connections are bounded in number, and heads in size and time, whatever a client does."""

import json
import socket
import time

import httpx
import pytest
import torch

from credibly.serve import connections

ASK = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


def opened(asked):
    return socket.create_connection(("127.0.0.1", asked.port), timeout=20)


def read_all(raw):
    """What comes until the other side closes."""
    parts = []
    while part := raw.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def taken_apart(content):
    """Status, headers and JSON of an answer."""
    head, _, body = content.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, json.loads(body)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (1 << 17), 431),
        (b"GET /" + b"a" * (1 << 17), 431),
        (b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 101, 431),
        (b"\x16\x03\x01\x02\x00" * 20, 400),
        (b"GET\r\n\r\n", 400),
    ],
)
def test_heads_that_are_refused_are_answered_as_json(asked, sent, status):
    with opened(asked) as raw:
        raw.sendall(sent)
        found, headers, content = taken_apart(read_all(raw))
    assert found == status
    assert headers["content-type"] == "application/json"
    assert headers["connection"] == "close"
    assert content["error"]


def test_a_head_without_end_is_not_kept(asked, monkeypatch):
    """The parser keeps what is not whole: it must not be given much."""
    fed = []
    take = connections.HttpToolsProtocol.data_received
    monkeypatch.setattr(
        connections.HttpToolsProtocol, "data_received",
        lambda self, data: (fed.append(len(data)), take(self, data)),
    )  # fmt: skip
    with opened(asked) as raw:
        try:
            raw.sendall(b"GET /v2 HTTP/1.1\r\nX: ")
            for _ in range(20):
                raw.sendall(b"a" * (1 << 20))
        except OSError:
            pass  # it was closed
    assert sum(fed) <= connections.HEAD


def test_headers_behind_a_body_in_parts_are_bounded(asked):
    head = b"POST /v1/judge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with opened(asked) as raw:
        raw.sendall(
            head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: " + b"a" * (1 << 17)
        )
        assert taken_apart(read_all(raw))[0] == 431


def test_a_body_larger_than_a_head_comes_through(asked):
    x = torch.randn(64, 4, dtype=torch.float64)
    body = json.dumps({"inputs": x.tolist()}).encode() + b" " * (1 << 18)
    answer = asked.client.post(
        "/v1/judge", content=body, headers={"content-type": "application/json"}
    )
    assert len(answer.json()["rows"]) == 64


@pytest.mark.parametrize("sent", [b"", b"GET /v2 HTTP/1.1\r\nHo"])
def test_a_head_that_does_not_come_is_not_waited_for(asked, monkeypatch, sent):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    with opened(asked) as raw:
        raw.sendall(sent)
        found = read_all(raw)
    assert (taken_apart(found)[0] == 408) if sent else (found == b"")


def test_a_connection_is_kept_between_requests_and_not_for_ever(asked, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(connections, "IDLE_SECONDS", 1.5)
    with opened(asked) as raw:
        for _ in range(3):
            raw.sendall(ASK)
            assert raw.recv(1 << 16).startswith(b"HTTP/1.1 200")
            time.sleep(0.4)
        assert read_all(raw) == b""


def test_silent_connections_do_not_keep_others_out(judge, running_service):
    with running_service(judge, connections=8) as asked:
        silent = [opened(asked) for _ in range(30)]
        for _ in range(3):
            assert httpx.get(f"{asked.url}/v2/health/live").status_code == 200
            assert asked.judge(torch.zeros(1, 4)).status_code == 200
        for raw in silent:
            raw.close()


def test_bodies_that_do_not_come_do_not_keep_others_out(judge, running_service):
    head = b"POST /v1/judge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with running_service(judge, connections=4) as asked:
        slow = [opened(asked) for _ in range(8)]
        for raw in slow:
            raw.sendall(head + b"Content-Length: 1000\r\n\r\n{")
        assert asked.judge(torch.zeros(1, 4)).status_code == 200
        for raw in slow:
            raw.close()


def test_more_requests_than_connections_are_refused(
    held, held_judge, running_service, aside, wait_until
):
    with running_service(held_judge, connections=2) as asked:
        held.close()
        for _ in range(2):
            aside.ask(
                lambda: httpx.post(
                    f"{asked.url}/v1/judge", json={"inputs": [[0.0] * 4]}, timeout=30
                )
            )
        wait_until(lambda: len(asked.service._jobs) == 2)
        with opened(asked) as raw:
            status, headers, content = taken_apart(read_all(raw))
        assert (status, headers["retry-after"]) == (503, "1")
        assert "connections" in content["error"]
        held.open.set()
        assert [found.status_code for found in aside.done()] == [200, 200]
