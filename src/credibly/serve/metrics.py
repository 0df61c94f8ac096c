"""What Prometheus is told; in a registry of its own, so that services do not share counts."""

from __future__ import annotations

import math
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from credibly.decide.drift import DriftWatch
from credibly.serve.answers import NO_TIME, Columns

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)

KIND = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The counts of one service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        own: dict[str, Any] = {"namespace": "credibly", "registry": self.registry}
        self.requests = Counter(
            "requests", "Requests, by place and status.", ["place", "status"], **own
        )
        self.seconds = Histogram(
            "request_seconds", "Time of a request.", ["place"], buckets=SECONDS, **own
        )
        self.queued = Gauge("queue_rows", "Rows that wait.", **own)
        self.pending = Gauge("pending_profiles", "Requests that wait for profiles.", **own)
        self.batches = Histogram("batch_rows", "Rows of a batch.", buckets=SIZES, **own)
        self.solving = Histogram("batch_seconds", "Time of a batch.", buckets=SECONDS, **own)
        self.passes = Counter("passes", "Passes through the model.", **own)
        self.verdicts = Counter("verdicts", "Rows, by verdict.", ["verdict"], **own)
        self.early = Counter(
            "incomplete_rows", "Rows answered by one forward for lack of time.", **own
        )
        self.cancelled = Counter("cancelled", "Requests whose client went away.", **own)
        self.failures = Counter("failures", "Exceptions of the model.", ["kind"], **own)
        self.ready = Gauge("ready", "Whether requests are taken.", **own)
        self.drift_seen = Gauge("drift_seen", "Inputs that were watched.", **own)
        self.drift_alarm = Gauge("drift_alarm", "Whether the stream drifted.", **own)
        self.drift_evidence = Gauge(
            "drift_log10_martingale", "Evidence that the stream changed.", **own
        )

    def answered(self, columns: Columns) -> None:
        """Count rows that are sent."""
        for verdict in set(columns["verdict"]):
            self.verdicts.labels(verdict).inc(columns["verdict"].count(verdict))
        known = [value for value in columns["passes"] if value == value]  # noqa: PLR0124  # no NaN
        self.passes.inc(sum(known))
        early = columns["incomplete"].count(NO_TIME)
        if early:
            self.early.inc(early)

    def drifted(self, watch: DriftWatch) -> None:
        """Show what a watch says."""
        self.drift_seen.set(watch.seen)
        self.drift_alarm.set(watch.alarm)
        self.drift_evidence.set(watch.log_martingale / math.log(10))

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self.registry)
