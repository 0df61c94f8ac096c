"""Under load: what is refused and how, what is answered early, and how the service ends."""

import json
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


def test_memory_is_bounded_by_settings(judge):
    service = Service(judge, Settings(rows=10, queue=100, batch=20, connections=7, body=5000))
    found = service.memory()
    assert found.connections == 7 * (128 << 10)
    assert found.bodies == (64 << 20) + 24 * 5000
    assert found.queue == 16 * (100 + 2 * 20)
    assert found.batch > 0
    assert found.total == sum(vars(found).values())
    assert str(found).startswith("at most about ")
    assert Memory.of(Settings(), row=4, body=10, a_pass=0, batch=8, images=True).queue == 4 * (512 + 2 * 64)


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
