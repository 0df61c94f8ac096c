"""Under load: what is refused and how, what is answered early, and how the service ends."""

import json
import socket
import threading

import httpx
import pytest
import torch

import credibly as cr
from credibly.serve.service import Service
from credibly.serve.settings import Memory, Settings


def filled(asked, held, aside, wait_until, *, rows):
    """Hold the solver back with one row, and let others wait."""
    held.close()
    aside.ask(lambda: asked.judge(torch.zeros(1, 4)))
    assert held.entered.wait(20)
    aside.ask(lambda: asked.judge(torch.zeros(rows, 4)))
    wait_until(lambda: asked.service.waiting.rows == rows)


def test_a_full_queue_says_when_to_ask_again(held, held_judge, running_service, aside, wait_until):
    with running_service(held_judge, queue=8, rows=8) as asked:
        filled(asked, held, aside, wait_until, rows=8)
        answer = asked.judge(torch.zeros(1, 4))
        assert answer.status_code == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        held.open.set()
        assert [found.status_code for found in aside.done()] == [200, 200]
        assert asked.judge(torch.zeros(1, 4)).status_code == 200
        assert asked.service.held == 0


def test_what_would_come_too_late_is_refused_at_once(
    held, held_judge, running_service, aside, wait_until
):
    with running_service(held_judge) as asked:
        asked.service.solver.pace.note(2, 1000.0)  # two rows are said to take minutes
        filled(asked, held, aside, wait_until, rows=1)
        answer = asked.client.post(
            "/v1/judge", json={"inputs": [[0.0] * 4]}, headers={"x-deadline-ms": "100"}
        )
        held.open.set()
        aside.done()
    assert answer.status_code == 429


def test_bodies_of_all_requests_are_bounded(running_service, judge):
    with running_service(judge, bodies=2000) as asked:
        asked.service.held += 1990
        answer = asked.judge(torch.zeros(1, 4))
        asked.service.held -= 1990
        assert answer.status_code == 429
        assert asked.judge(torch.zeros(1, 4)).status_code == 200


def test_before_it_is_warm_it_is_alive_and_not_ready(held, held_judge, running_service, wait_until):
    held.close()
    with running_service(held_judge, warm=False) as asked:
        assert held.entered.wait(20)
        assert asked.client.get("/v2/health/live").status_code == 200
        for place in ("/v2/health/ready", "/v2/models/judge/ready"):
            answer = asked.client.get(place)
            assert answer.status_code == 503
            assert answer.json() == {"ready": False}
        answer = asked.judge(torch.zeros(1, 4))
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        held.open.set()
        wait_until(lambda: asked.service.ready)
        assert asked.judge(torch.zeros(1, 4)).status_code == 200


def test_a_model_that_fails_when_it_starts_is_never_ready(held_judge, running_service, wait_until):
    with running_service(held_judge, warm=False) as asked:
        wait_until(lambda: asked.service.ready)
    service = Service(held_judge, Settings())
    service.solver.forward = lambda *_, **__: 1 / 0
    service.start()
    service.stop()
    assert not service.ready
    assert isinstance(service.broken, ZeroDivisionError)
    assert b'credibly_failures_total{kind="ZeroDivisionError"} 1.0' in service.metrics.text()


def test_a_solver_that_is_stuck_is_not_alive(held, held_judge, running_service, aside, monkeypatch):
    with running_service(held_judge, deadline=0.001) as asked:
        held.close()
        aside.ask(lambda: asked.judge(torch.zeros(1, 4)))
        assert held.entered.wait(20)
        monkeypatch.setattr("credibly.serve.service.STUCK", 0.0)
        while asked.service.solver.busy < 0.02:
            pass
        assert asked.client.get("/v2/health/live").status_code == 503
        held.open.set()
        aside.done()


def test_what_was_accepted_is_finished_and_the_rest_is_told_to_go(
    held, held_judge, running_service, aside, wait_until
):
    with running_service(held_judge) as asked:
        filled(asked, held, aside, wait_until, rows=3)
        asked.service.drain()
        answer = asked.judge(torch.zeros(1, 4))
        assert answer.status_code == 503
        assert answer.headers["connection"] == "close"
        assert asked.client.get("/v2/health/ready").status_code == 503
        held.open.set()
        assert [found.status_code for found in aside.done()] == [200, 200]


@pytest.fixture
def slow(held):
    """A Judge that looks at every profile."""
    clf = cr.Classifier(held, dtype=torch.float32)
    return cr.Judge.fit(clf, torch.randn(200, 4), profile="always")


def test_without_time_for_a_profile_one_forward_answers_and_says_so(slow, running_service):
    x = torch.randn(3, 4)
    with running_service(slow) as asked:
        asked.service.solver.backlog.pace.note(1, 1e6)  # it is said to take days
        answer = asked.judge(x)
        text = asked.client.get("/metrics").text
    forward = asked.service.solver.forward(x)
    assert answer.status_code == 200
    assert answer.json()["complete"] is False
    assert {row["incomplete"] for row in answer.json()["rows"]} == {"no time"}
    for number, row in enumerate(answer.json()["rows"]):
        assert (row["stage"], row["complete"]) == ("forward", False)
        assert row["verdict"] == forward.verdicts[number].value
        assert row["p_ordinary"] == pytest.approx(float(forward.p_ordinary[number]))
    assert "credibly_incomplete_rows_total 3.0" in text


def test_a_profile_that_is_late_is_not_waited_for(slow, running_service):
    """The estimate was too short: the answer still comes at the deadline, by one forward."""
    with running_service(slow) as asked:
        backlog, solve = asked.service.solver.backlog, asked.service.solver.backlog._profiles
        begun, go = threading.Event(), threading.Event()

        def late(chosen):
            begun.set()
            assert go.wait(30)
            solve(chosen)

        backlog._profiles = late
        headers = {"x-deadline-ms": "300"}
        answer = asked.client.post("/v1/judge", json={"inputs": [[0.1] * 4]}, headers=headers)
        assert begun.is_set()
        go.set()
        backlog._profiles = solve
        assert asked.judge(torch.zeros(1, 4)).json()["complete"] is True
    assert answer.json()["complete"] is False
    assert answer.json()["rows"][0]["stage"] == "forward"


def test_a_profile_that_fails_leaves_the_verdict_of_one_forward(running_service, judge):
    with running_service(judge) as asked:
        asked.service.solver.backlog._profiles = lambda _: 1 / 0
        answer = asked.judge(torch.zeros(2, 4), profile=True)
    assert answer.status_code == 200
    assert answer.json()["complete"] is False
    assert answer.json()["rows"][0]["profile"] is None
    assert answer.json()["rows"][0]["incomplete"] == "failed"


def broken_profiles(backlog):
    """Profiles that fail for rows whose first number is 7."""
    solve = backlog._profiles

    def broken(chosen):
        if any(float(pending.job.rows[row][0]) == 7 for pending, row in chosen):
            raise MemoryError
        solve(chosen)

    backlog._profiles = broken


def test_a_row_whose_profile_fails_fails_alone(
    held, held_judge, running_service, aside, wait_until
):
    """Requests whose profiles are solved together do not lose theirs."""
    bad = [[7.0, 0.0, 0.0, 0.0]]
    with running_service(held_judge) as asked:
        solver = asked.service.solver
        broken_profiles(solver.backlog)
        for size in (1, 8, 64):
            solver.backlog.pace.note(size, 1e-6)  # all fit into a slice
        held.close()
        aside.ask(lambda: asked.judge(torch.zeros(1, 4)))
        assert held.entered.wait(20)
        for rows in ([[0.1] * 4], [[0.2] * 4, *bad, [0.3] * 4], bad, [[0.4] * 4]):
            aside.ask(lambda rows=rows: asked.judge(rows, profile=True))
        wait_until(lambda: asked.service.waiting.rows == 6)
        held.open.set()
        answers = [answer.json()["rows"] for answer in aside.done()]
        again = asked.judge(torch.zeros(1, 4), profile=True).json()
        text = asked.client.get("/metrics").text
    rows = [row for found in answers for row in found if "profile" in row]
    assert [row["profile"] is None for row in rows].count(True) == 2
    assert len(rows) == 6
    for row in rows:
        assert row["complete"] is (row["profile"] is not None)
        assert row["incomplete"] == (None if row["complete"] else "failed")
        assert row["stage"] == ("profile" if row["complete"] else "forward")
    assert again["complete"] is True
    assert 'credibly_failures_total{kind="MemoryError"} 2.0' in text
    assert "credibly_incomplete_rows_total 0.0" in text


def test_what_cannot_be_solved_in_time_is_answered_at_once(
    held, held_judge, running_service, aside, wait_until
):
    """Ten requests of profiles that take ten seconds each, and 45 seconds: six do not wait."""
    with running_service(held_judge) as asked:
        backlog, release = asked.service.solver.backlog, threading.Event()
        backlog.pace._known = {0: 10.0}
        backlog._profiles = lambda _: release.wait(20)
        headers = {"x-deadline-ms": "45000"}
        held.close()
        aside.ask(lambda: asked.judge(torch.zeros(1, 4)))
        assert held.entered.wait(20)
        for _ in range(10):
            aside.ask(
                lambda: asked.client.post(
                    "/v1/judge", json={"inputs": [[0.0] * 4], "profile": True}, headers=headers
                )
            )
        wait_until(lambda: asked.service.waiting.rows == 10)
        held.open.set()
        wait_until(lambda: len(aside.answers) == 7)
        assert len(backlog) == 4
        release.set()
        answers = aside.done()
    assert {answer.status_code for answer in answers} == {200}
    early = [answer.json()["rows"][0]["incomplete"] for answer in answers]
    assert early.count("no time") >= 6


def test_rows_that_wait_for_profiles_fill_the_queue(judge, running_service, aside, wait_until):
    with running_service(judge, queue=8, rows=8) as asked:
        backlog, release = asked.service.solver.backlog, threading.Event()
        solve = backlog._profiles
        backlog._profiles = lambda chosen: (release.wait(20), solve(chosen))
        aside.ask(lambda: asked.judge(torch.zeros(8, 4), profile=True))
        wait_until(lambda: backlog.rows == 8)
        answer = asked.judge(torch.zeros(1, 4), profile=True)
        assert answer.status_code == 429
        assert "8 rows wait" in answer.json()["error"]
        release.set()
        assert aside.done()[0].json()["complete"] is True
        assert asked.judge(torch.zeros(1, 4), profile=True).json()["complete"] is True
        assert backlog.rows == 0


def test_who_leaves_during_a_profile_is_counted(judge, running_service, wait_until):
    with running_service(judge) as asked:
        backlog, begun, release = asked.service.solver.backlog, threading.Event(), threading.Event()
        backlog._profiles = lambda _: (begun.set(), release.wait(20))
        body = json.dumps({"inputs": [[0.0] * 4], "profile": True}).encode()
        head = f"POST /v1/judge HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        with socket.create_connection(("127.0.0.1", asked.port)) as raw:
            raw.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
            assert begun.wait(20)
        wait_until(lambda: asked.service.open == 0)
        text = asked.client.get("/metrics").text
        release.set()
    assert "credibly_cancelled_total 1.0" in text
    assert 'credibly_requests_total{place="/v1/judge",status="499"} 1.0' in text


def test_memory_is_bounded_by_settings(judge):
    service = Service(judge, Settings(rows=10, queue=100, batch=20, connections=7, body=5000))
    found = service.memory()
    assert found.connections == 7 * (128 << 10)
    assert found.bodies == (64 << 20) + 24 * 5000
    assert found.queue == 16 * (100 + 2 * 20)
    assert found.batch > 0
    assert found.images == 0
    assert found.total == sum(vars(found).values())
    assert str(found).startswith("at most about ")
    assert (
        Memory.of(Settings(), row=4, body=10, a_pass=0, batch=8, images=True).images
        == 12 * 16_000_000
    )


def test_a_thousand_requests_get_their_own_answers(asked, judge):
    """Eight clients at once, each row different: nothing is lost or mixed up."""
    x = torch.randn(960, 4)
    trust, wrong = judge(x).trust.tolist(), []

    def client(first):
        with httpx.Client(base_url=asked.url, timeout=30) as own:
            for n in range(first, len(x), 8):
                body = json.dumps({"inputs": x[n : n + 1].tolist()})
                kind = {"content-type": "application/json", "x-request-id": f"n{n}"}
                answer = own.post("/v1/judge", content=body, headers=kind)
                found = answer.json()["rows"][0]["trust"]
                good = answer.headers["x-request-id"] == f"n{n}" and abs(found - trust[n]) < 1e-5
                wrong.extend([] if good else [n])

    threads = [threading.Thread(target=client, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert asked.service.open == 0
