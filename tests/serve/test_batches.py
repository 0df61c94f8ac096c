"""Batches form while the solver is busy; rows do not affect each other; who leaves is forgotten."""

import asyncio
import threading
import time

import pytest
import torch

from credibly.serve.jobs import Job, Waiting
from credibly.serve.pace import Pace


@pytest.fixture
def loop():
    found = asyncio.new_event_loop()
    yield found
    found.close()


def job(loop, rows, shape=(4,)):
    x = torch.zeros(rows, *shape)
    return Job(x, time.monotonic() + 9, False, loop.create_future(), loop.create_future())


def take(waiting, most, **more):
    return waiting.take(most, **{"enough": 0, "wait": 0.0, "block": False, **more})


def test_jobs_are_taken_in_order_up_to_a_batch(loop):
    waiting, jobs = Waiting(100), [job(loop, n) for n in (3, 4, 2, 9)]
    assert all(waiting.put(one) for one in jobs)
    assert waiting.rows == 18
    assert take(waiting, 8) == [jobs[0], jobs[1]]
    assert take(waiting, 8) == [jobs[2]]
    assert take(waiting, 8) == [jobs[3]]  # larger than a batch: alone
    assert (waiting.rows, len(waiting)) == (0, 0)
    assert take(waiting, 8) == []


def test_a_full_queue_takes_no_more(loop):
    waiting = Waiting(5)
    assert waiting.put(job(loop, 4))
    assert not waiting.put(job(loop, 2))
    assert waiting.put(job(loop, 1))
    waiting.close()
    assert not waiting.put(job(loop, 1))
    assert len(take(waiting, 8)) == 2


def test_only_rows_that_are_alike_are_solved_together(loop):
    waiting, jobs = Waiting(100), [job(loop, 1), job(loop, 1, (7,)), job(loop, 1)]
    for one in jobs:
        waiting.put(one)
    assert take(waiting, 8) == [jobs[0], jobs[2]]
    assert take(waiting, 8) == [jobs[1]]


def test_who_leaves_takes_no_room(loop):
    waiting, jobs = Waiting(4), [job(loop, 2), job(loop, 2)]
    for one in jobs:
        waiting.put(one)
    waiting.drop(jobs[0])
    waiting.drop(jobs[0])
    assert waiting.rows == 2
    assert jobs[0].dropped
    assert take(waiting, 8) == [jobs[1]]


def test_the_wait_ends_with_enough_rows(loop):
    """Whoever waits for an hour has not waited if enough rows are there."""
    waiting = Waiting(100)
    waiting.put(job(loop, 2))
    found = []
    thread = threading.Thread(target=lambda: found.extend(take(waiting, 8, enough=5, wait=3600.0)))
    thread.start()
    waiting.put(job(loop, 3))
    thread.join(20)
    assert len(found) == 2


def test_the_wait_is_bounded(loop):
    waiting = Waiting(100)
    waiting.put(job(loop, 2))
    assert len(take(waiting, 8, enough=5, wait=0.001)) == 1


def test_pace_knows_sizes_between_and_beyond():
    pace = Pace()
    assert pace.seconds(4) is None
    assert pace.ahead(100, 8) == 0
    pace.note(4, 0.1)
    assert pace.seconds(3) == 0.1
    assert pace.seconds(1) == 0.1  # not less than what is known
    assert pace.seconds(16) == pytest.approx(0.4)
    assert pace.ahead(9, 4) == pytest.approx(0.3)
    for _ in range(60):
        pace.note(4, 0.2)
    assert pace.seconds(4) == pytest.approx(0.2, rel=1e-3)


def test_requests_that_come_while_the_solver_is_busy_are_solved_together(
    held, held_judge, running_service, aside, wait_until
):
    x = torch.randn(9, 4)
    with running_service(held_judge) as asked:
        held.close()
        aside.ask(lambda: asked.judge(x[:1]))
        assert held.entered.wait(20)
        held.sizes.clear()
        for n in range(1, 9):
            aside.ask(lambda n=n: (n, asked.judge(x[n : n + 1])))
        wait_until(lambda: asked.service.waiting.rows == 8)
        held.open.set()
        answers = aside.done()
        sums = lambda: "credibly_batch_rows_sum 9.0" in asked.client.get("/metrics").text  # noqa: E731
        wait_until(sums)
    assert held.sizes == [8]
    trust = held_judge(x).trust.tolist()
    for found in answers:
        n, answer = found if isinstance(found, tuple) else (0, found)
        assert answer.json()["rows"][0]["trust"] == pytest.approx(trust[n], abs=1e-6)


def test_a_row_that_breaks_the_model_is_the_error_of_that_row(
    held, held_judge, running_service, aside, wait_until
):
    x = torch.randn(6, 4)
    x[3, 1] = 77.0
    with running_service(held_judge) as asked:
        held.close()
        aside.ask(lambda: asked.judge(x[:1]))
        assert held.entered.wait(20)
        aside.ask(lambda: (0, asked.judge(x[:2])))
        aside.ask(lambda: (2, asked.judge(x[2:5])))
        aside.ask(lambda: (5, asked.judge(x[5:])))
        wait_until(lambda: asked.service.waiting.rows == 6)
        held.open.set()
        answers = [found for found in aside.done() if isinstance(found, tuple)]
    rows = {first + n: row for first, answer in answers
            for n, row in enumerate(answer.json()["rows"])}  # fmt: skip
    assert [rows[n]["verdict"] == "unusable" for n in range(6)] == [n == 3 for n in range(6)]
    assert rows[3]["reason"] == "unusable: the model raised RuntimeError"
    good = [n for n in range(6) if n != 3]
    expected = held_judge(x[good]).trust.tolist()
    assert [rows[n]["trust"] for n in good] == pytest.approx(expected, abs=1e-6)


def test_a_client_that_goes_away_leaves_the_queue(
    held, held_judge, running_service, aside, wait_until
):
    import httpx

    with running_service(held_judge) as asked:
        held.close()
        aside.ask(lambda: asked.judge(torch.zeros(1, 4)))
        assert held.entered.wait(20)
        held.sizes.clear()
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"{asked.url}/v1/judge", json={"inputs": [[0.0] * 4] * 5},
                timeout=httpx.Timeout(20, read=0.5),
            )  # fmt: skip
        wait_until(lambda: asked.service.waiting.rows == 0)
        wait_until(lambda: asked.service.open == 1)
        held.open.set()
        aside.done()
        text = asked.client.get("/metrics").text
    assert held.sizes == []
    assert "credibly_cancelled_total 1.0" in text
    assert 'credibly_requests_total{place="/v1/judge",status="499"} 1.0' in text
