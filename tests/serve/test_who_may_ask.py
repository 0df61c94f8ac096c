"""Who may ask: loopback, or with a token; and what the logs say of it."""

import http.client
import io
import json
import logging

import pytest
import torch

from credibly.errors import InvalidArgumentError, OutputError
from credibly.serve import logs
from credibly.serve.server import bound_socket, check_who_may_ask, is_loopback, read_token

TOKEN = "0123456789abcdef0123"  # noqa: S105  # of a service that lives for a second
FORM = {"content-type": "multipart/form-data; boundary=x"}


@pytest.fixture
def guarded(judge, running_service):
    with running_service(judge, token=TOKEN) as asked:
        yield asked


def test_without_the_token_only_health_is_told(guarded):
    ask = guarded.client.get
    assert ask("/v2/health/live").status_code == 200
    assert ask("/v2/health/ready").status_code == 200
    for place in ("/v2", "/v2/models/judge", "/metrics", "/openapi.json", "/v1/drift", "/none"):
        answer = ask(place)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    assert guarded.judge(torch.zeros(1, 4)).status_code == 401


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", f"Bearer {TOKEN}0", f"Bearer {TOKEN[:-1]}", TOKEN, f"Basic {TOKEN}", "B \xe9"],
)
def test_a_wrong_token_is_refused(guarded, given):
    headers = {"authorization": given.encode("latin-1")}
    assert guarded.client.get("/v2", headers=headers).status_code == 401


def test_the_token_opens_everything(guarded):
    guarded.client.headers["authorization"] = f"Bearer {TOKEN}"
    assert guarded.judge(torch.zeros(1, 4)).status_code == 200
    assert guarded.client.get("/metrics").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil.example"])
def test_names_of_others_are_not_answered_on_loopback(asked, host):
    answer = asked.client.get("/v2/health/live", headers={"host": host})
    assert answer.status_code == 403


def test_names_of_this_machine_are_answered(asked):
    for host in ("localhost", f"localhost:{asked.port}", "127.0.0.1", "[::1]:80"):
        answer = asked.client.get("/v2/health/live", headers={"host": host})
        assert answer.status_code == 200


def test_open_to_a_network_needs_a_token_or_force():
    for host in ("127.0.0.1", "127.3.0.1", "localhost", "::1"):
        assert is_loopback(host)
        check_who_may_ask(host, None, forced=False)
    for host in ("0.0.0.0", "::", "192.168.0.7", "example.org"):  # noqa: S104
        assert not is_loopback(host)
        check_who_may_ask(host, TOKEN, forced=False)
        check_who_may_ask(host, None, forced=True)
        with pytest.raises(InvalidArgumentError, match="--token-file"):
            check_who_may_ask(host, None, forced=False)


def test_tokens_come_from_a_file_or_the_environment(tmp_path):
    file = tmp_path / "token"
    assert read_token(None, None) is None
    assert read_token(None, TOKEN) == TOKEN
    file.write_text(f"{TOKEN}9\n")
    assert read_token(file, TOKEN) == f"{TOKEN}9"
    for bad in ("", "short", "with a space in the middle", "é" * 20):
        file.write_text(bad)
        with pytest.raises(InvalidArgumentError, match="openssl rand") as caught:
            read_token(file, None)
        assert bad == "" or bad not in str(caught.value)
    with pytest.raises(OutputError, match="cannot be read"):
        read_token(tmp_path / "none", None)


def test_an_address_that_is_taken():
    first = bound_socket("127.0.0.1", 0)
    with pytest.raises(OutputError, match="--port"):
        bound_socket("127.0.0.1", first.getsockname()[1])
    first.close()


@pytest.fixture
def lines():
    stream = io.StringIO()
    root = logging.getLogger()
    before, level = root.handlers[:], logs.LOG.level
    logs.begin(stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:] = before
    logs.LOG.setLevel(level)


def test_every_request_is_a_line_of_json_with_its_id(lines, asked, wait_until):
    asked.client.headers["x-request-id"] = "mine-1"
    answer = asked.judge(torch.zeros(2, 4))
    asked.client.headers["x-request-id"] = "no good\u00a0id" * 9
    other = asked.client.get("/v2")
    del asked.client.headers["x-request-id"]
    assert answer.headers["x-request-id"] == "mine-1"
    wait_until(lambda: len(lines()) == 2)
    assert len(other.headers["x-request-id"]) == 16
    first, second = lines()
    assert first["id"] == "mine-1"
    assert (first["place"], first["status"], first["rows"]) == ("/v1/judge", 200, 2)
    assert sum(first["verdicts"].values()) == 2
    assert first["ms"] >= first["judged_ms"] > 0
    assert second["id"] == other.headers["x-request-id"]


def test_logs_hold_nothing_of_an_input(lines, asked, wait_until):
    """77 breaks the model, which tells it as a secret; 12345.678 is refused."""
    asked.judge([[0.5, 77.0, 0.25, 0.125]])
    asked.judge([[12345.678, 1.0]])
    asked.client.post("/v1/judge?secret=12345", content=b"12345.678")
    asked.client.get("/secret/12345")
    asked.client.post("/v1/judge", content=b"12345", headers=FORM)
    logging.getLogger("some.library").warning("got 12345")
    wait_until(lambda: sum(line["event"] == "request" for line in lines()) == 5)
    text = json.dumps(lines())
    assert "12345" not in text
    assert "secret" not in text
    broken = [line for line in lines() if line["event"] == "exception"]
    assert broken[0]["exception"] == "RuntimeError"
    assert any(line["event"] == "some.library" for line in lines())


def test_quiet_questions_are_not_logged(lines, asked, wait_until):
    for place in ("/v2/health/live", "/v2/health/ready", "/metrics"):
        asked.client.get(place)
    asked.client.get("/v2")
    wait_until(lines)
    assert [line["place"] for line in lines()] == ["/v2"]


def test_a_failure_of_the_service_is_500_with_the_id_of_its_log(
    lines, asked, monkeypatch, wait_until
):
    monkeypatch.setattr(asked.service, "check_room", lambda *_: 1 / 0)
    answer = asked.judge(torch.zeros(1, 4))
    assert answer.status_code == 500
    wait_until(lines)
    line = lines()[-1]
    assert (line["level"], line["exception"]) == ("error", "ZeroDivisionError")
    assert line["id"] in answer.json()["error"]


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost.evil.example"]
)
def test_pages_of_others_may_not_ask_on_loopback(asked, origin):
    answer = asked.client.post(
        "/v1/judge", json={"inputs": [[0.0] * 4]}, headers={"origin": origin}
    )
    assert answer.status_code == 403


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "http://[::1]:80"])
def test_pages_of_this_machine_may_ask(asked, origin):
    answer = asked.client.get("/v2", headers={"origin": origin})
    assert answer.status_code == 200


def test_two_names_of_a_host_are_refused(asked):
    connection = http.client.HTTPConnection("127.0.0.1", asked.port)
    connection.putrequest("GET", "/v2", skip_host=True)
    for name in ("evil.example", "localhost"):
        connection.putheader("Host", name)
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 400
    assert "Host" in json.loads(answer.read())["error"]
    connection.close()


def test_the_name_of_the_scheme_has_no_case(guarded):
    for scheme in ("bearer", "BEARER"):
        headers = {"authorization": f"{scheme} {TOKEN}"}
        assert guarded.client.get("/v2", headers=headers).status_code == 200
