"""Hostile bodies get refusals; a small slice of `python -m benchmarks.serve_fuzz`."""

import io
import json

import httpx
import numpy as np
import pytest
import torch
from PIL import Image
from schemathesis.checks import not_a_server_error
from schemathesis.openapi import from_url
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from benchmarks.serve_fuzz import ask_all, broken, right

CHECKS = [
    not_a_server_error, content_type_conformance, response_schema_conformance,
    status_code_conformance,
]  # fmt: skip


@pytest.fixture(scope="module")
def pictures(running_service):
    """A service of pictures of 2 x 2 pixels."""
    import credibly as cr

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
    judge = cr.Judge.fit(net, torch.rand(200, 1, 2, 2))
    with running_service(judge) as found:
        yield found


def test_broken_bodies_never_fail_the_service(pictures):
    requests = right(np.full((1, 1, 2, 2), 0.5, np.float32))
    good = ask_all(pictures.client, iter(requests))
    assert set(good) == {200}
    statuses = ask_all(pictures.client, broken(requests, 1500, seed=1))
    assert set(statuses) <= {200, 413, 415, 422, 429}
    assert statuses[422] > 300
    assert pictures.service.held == 0
    assert set(ask_all(pictures.client, iter(requests))) == {200}


def test_pictures_that_end_early_or_lie_are_refused(pictures):
    file = io.BytesIO()
    Image.new("L", (2, 2), 90).save(file, "PNG")
    whole = file.getvalue()
    for content in (whole[:-24], whole[:30], b"GIF89a" + whole, whole.replace(b"IHDR", b"IHDX")):
        answer = pictures.client.post(
            "/v1/judge", content=content, headers={"content-type": "image/png"}
        )
        assert answer.status_code == 422, content


def test_postscript_is_not_read(pictures):
    """Pillow would start Ghostscript for it."""
    file = io.BytesIO()
    Image.new("L", (2, 2)).save(file, "EPS")
    answer = pictures.client.post(
        "/v1/judge", content=file.getvalue(), headers={"content-type": "image/eps"}
    )
    assert answer.status_code == 422


def test_the_description_holds_for_what_it_allows_and_forbids(pictures):
    """Schemathesis makes requests of the description, in a fixed order."""
    import hypothesis

    schema = from_url(f"{pictures.url}/openapi.json")
    seen = []
    for result in schema.get_all_operations():
        operation = result.ok()

        @hypothesis.given(case=operation.as_strategy())
        @hypothesis.settings(
            max_examples=15, deadline=None, derandomize=True, database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )  # fmt: skip
        def ask(case):
            answer = case.call(base_url=pictures.url)
            seen.append(answer.status_code)
            case.validate_response(answer, checks=CHECKS)

        ask()
    assert 200 in seen
    assert max(seen) < 500
    assert len(seen) > 25


def test_the_description_has_examples_that_are_answered(asked):
    description = asked.client.get("/openapi.json").json()
    tried = 0
    for place, operations in description["paths"].items():
        content = operations.get("post", {}).get("requestBody", {}).get("content", {})
        example = content.get("application/json", {}).get("example")
        if example is not None:
            path = place.replace("{name}", "judge")
            answer = asked.client.post(path, json=example)
            assert answer.status_code == 200, answer.text
            tried += 1
    assert tried == 2
    assert description["openapi"].startswith("3.")


def test_clients_that_stop_in_the_middle_are_forgotten(asked, wait_until):
    import socket

    head = b"POST /v1/judge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", asked.port)) as half:
            half.sendall(head + b"Content-Length: 1000\r\n\r\n" + b'{"inputs": [[')
            wait_until(lambda: asked.service.held > 0)
        wait_until(lambda: asked.service.held == 0)
    wait_until(lambda: asked.service.open == 0)


def test_noise_on_the_socket_is_refused_by_the_server(asked):
    import socket

    for noise in (b"\x16\x03\x01\x02\x00" * 20, b"GET\r\n\r\n", b"\r\n" * 100 + b"\x00" * 100):
        with socket.create_connection(("127.0.0.1", asked.port), timeout=20) as raw:
            raw.sendall(noise)
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(4096):
                pass
    assert httpx.get(f"{asked.url}/v2/health/live").json() == {"live": True}
    assert json.loads(asked.judge(torch.zeros(1, 4)).content)["complete"]
