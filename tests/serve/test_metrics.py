"""Counts add up, and belong to one service."""

import re
from functools import partial

import torch

from credibly.serve.metrics import Metrics


def value(text, name):
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, flags=re.MULTILINE)
    return None if found is None else float(found[1])


def test_counts_add_up(running_service, judge, wait_until):
    x = torch.cat([torch.randn(7, 4), torch.full((1, 4), 50.0)])
    with running_service(judge) as asked:
        found = asked.judge(x).json()["rows"]
        asked.judge(x[:2])
        asked.judge([[0.0]])
        asked.client.get("/nothing")
        ask = partial(asked.client.get, "/metrics")
        wait_until(lambda: value(ask().text, "credibly_batch_rows_sum") == 10)
        answer = ask()
    text = answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    counts = {status: value(text, f'credibly_requests_total{{place="/v1/judge",status="{status}"}}')
              for status in (200, 422)}  # fmt: skip
    assert counts == {200: 2, 422: 1}
    assert value(text, 'credibly_requests_total{place="other",status="404"}') == 1
    verdicts = {v: value(text, f'credibly_verdicts_total{{verdict="{v}"}}') or 0
                for v in ("trust", "doubtful", "outlier", "tampered", "unusable")}  # fmt: skip
    assert sum(verdicts.values()) == 10
    assert verdicts["outlier"] >= sum(row["verdict"] == "outlier" for row in found) > 0
    assert abs(value(text, "credibly_passes_total") - 10 / 3) < 1e-9
    assert value(text, "credibly_batch_rows_count") == 2
    assert value(text, "credibly_queue_rows") == 0
    assert value(text, "credibly_ready") == 1
    assert value(text, "process_resident_memory_bytes") > 1e6


def test_services_do_not_share_counts():
    first, second = Metrics(), Metrics()
    first.cancelled.inc()
    assert b"credibly_cancelled_total 1.0" in first.text()
    assert b"credibly_cancelled_total 0.0" in second.text()
