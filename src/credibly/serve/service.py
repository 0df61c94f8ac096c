"""A Judge behind a queue: what it takes, how long that may last, and whether it is well."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

import torch
from torch import Tensor

from credibly.decide.judge import Judge
from credibly.decide.judgement import Judgement
from credibly.errors import CrediblyError
from credibly.model.bind import bind
from credibly.model.derivatives import trackable
from credibly.model.memory import BESIDE, bytes_of_a_pass
from credibly.serve.answers import Answer, Columns
from credibly.serve.intake import Intake
from credibly.serve.jobs import Job, Waiting
from credibly.serve.logs import note, of_exception
from credibly.serve.metrics import Metrics
from credibly.serve.refusal import RefusedError
from credibly.serve.settings import Memory, Settings
from credibly.serve.solver import MOST_BATCH, Hooks, Solver
from credibly.serve.watching import Watching
from credibly.types import CPU

STUCK = 60.0
"""Seconds of one batch, or ten times the deadline, after which the solver is not well."""

FASTER = 0.8
"""Share of the time that more threads must save to be used."""

Gone = Callable[[], Coroutine[Any, Any, None]]
"""Returns when the client has gone away."""


class GoneError(Exception):
    """Nobody waits for the answer."""


class Service:
    """Judges rows for many at once.

    Args:
        judge: whose verdicts are given.
        settings: the limits.
        watching: over the stream; None for none.

    Attributes:
        intake: how requests become rows.
        waiting: the queue.
        solver: the thread that judges.
        metrics: counts.
        draining: whether no more requests are taken.
    """

    def __init__(self, judge: Judge, settings: Settings, watching: Watching | None = None) -> None:
        self.judge, self.settings, self.watching = judge, settings, watching
        self.intake, self.metrics = Intake.of(judge, settings), Metrics()
        self.waiting = Waiting(settings.queue)
        self.solver = Solver(
            judge, self.waiting,
            batch=settings.batch or min(MOST_BATCH, judge.examiner.chunk_size),
            wait=settings.wait,
            hooks=Hooks(solved=self._solved, judged=self._judged, answered=self._answered,
                        failed=self.failed),
        )  # fmt: skip
        self.solver.prepare = self._prepare
        self.body = settings.body_of(self.intake.shape)
        self.warm = self.draining = False
        self.held = self.open = 0
        self.metrics.queued.set_function(lambda: self.waiting.rows)
        self.metrics.pending.set_function(lambda: len(self.solver.pending))
        self.metrics.ready.set_function(lambda: self.ready)
        if watching is not None:
            self.metrics.drifted(watching.watch.state)

    @property
    def live(self) -> bool:
        """Whether the solver runs, and is not stuck."""
        stuck = self.solver.busy > max(STUCK, 10 * self.settings.deadline)
        return self.solver.is_alive() and not stuck

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return self.warm and not self.draining and self.live

    def start(self) -> None:
        """Begin to warm up, and then to judge."""
        self.solver.start()

    def stop(self) -> None:
        """Finish what waits, and end."""
        self.draining = True
        self.waiting.close()
        if self.solver.ident is not None:
            self.solver.join(self.settings.drain)
        if self.watching is not None:
            self.watching.save()

    async def answer(self, rows: Tensor, *, due: float, profile: bool, gone: Gone) -> Answer:
        """What is said of rows, when the solver has come to them.

        Args:
            rows: the inputs (n, ...).
            due: when it should be there, by `time.monotonic`.
            profile: whether profiles are asked for.
            gone: see `Gone`.
        """
        loop = asyncio.get_running_loop()
        job = Job(rows, due, profile, loop.create_future(), loop.create_future())
        self.check_room(len(rows), due)
        if not self.waiting.put(job):
            raise self._full(len(rows))
        left = asyncio.ensure_future(gone())
        try:
            return await self._answered_to(job, left)
        finally:
            left.cancel()
            self.waiting.drop(job)
            job.first.cancel()
            job.last.cancel()

    async def _answered_to(self, job: Job, left: asyncio.Future[None]) -> Answer:
        patience = max(STUCK, 4 * self.settings.deadline)
        await _either(job.first, left, patience)
        self._check(job, left)
        first = job.first.result()
        if first.complete:
            return first
        await _either(job.last, left, max(0.0, job.due - time.monotonic()))
        self._check(job, left)
        return job.last.result() if job.last.done() else first

    def _check(self, job: Job, left: asyncio.Future[None]) -> None:
        if left.done() and not job.last.done() and not job.first.done():
            self.metrics.cancelled.inc()
            raise GoneError
        if not job.first.done():
            text = "The model did not answer in time. Ask again later."
            raise RefusedError(HTTPStatus.GATEWAY_TIMEOUT, text)

    def check_room(self, rows: int, due: float) -> None:
        """Refuse what would not be judged in time."""
        self.check_open()
        if self.waiting.rows + rows > self.waiting.most:
            raise self._full(rows)
        if self.waiting.rows and self.seconds_ahead(rows) > due - time.monotonic():
            raise self._full(rows)

    def check_open(self) -> None:
        """Refuse while the model is warming up, and while the service ends."""
        if self.ready:
            return
        why = "is ending" if self.draining else "is not ready yet"
        text = f"The service {why}. Ask again, or ask another one."
        raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, text, retry_after=1)

    def seconds_ahead(self, rows: int) -> float:
        """When so many more rows would be judged, from now."""
        waiting, most = self.waiting.rows, self.solver.batch
        pace = self.solver.pace
        now = max(0.0, (pace.seconds(most) or 0.0) - self.solver.busy) if self.solver.begun else 0.0
        return pace.ahead(waiting + rows, most) + now

    def _full(self, rows: int) -> RefusedError:
        after = max(1, math.ceil(self.seconds_ahead(rows) / 2))
        text = f"There is no room for more: {self.waiting.rows} rows wait. Ask again later."
        return RefusedError(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after=min(after, 60))

    def _prepare(self) -> None:
        """In the solver's thread: choose threads and batch, and warm up."""
        try:
            self._warm_up()
        except Exception as error:  # noqa: BLE001  # the model may raise anything
            self.failed(error)
            return  # never ready
        self.warm = True
        note("ready", batch=self.solver.batch, threads=torch.get_num_threads())

    def _warm_up(self) -> None:
        shape, most = self.intake.shape, self.settings.deadline / 4
        size = self.solver.batch
        torch.set_num_threads(self.settings.threads or 1)
        if shape is None:  # there is nothing to warm up with
            return
        rows = self._random(size, shape)
        sizes = dict(self.solver.warm(rows, most=most))
        self._choose_threads(rows[: max(sizes)], sizes[max(sizes)])
        if self.settings.batch is None:
            fit = [n for n, seconds in sizes.items() if seconds <= most]
            self.solver.batch = max(fit, default=1)

    def _random(self, count: int, shape: tuple[int, ...]) -> Tensor:
        """Rows that only take time."""
        generator = torch.Generator(CPU).manual_seed(0)
        return torch.rand((count, *shape), generator=generator, dtype=self.intake.dtype, device=CPU)

    def memory(self) -> Memory:
        """What it may take, by one pass over one row."""
        shape, a_pass = self.intake.shape, 0
        if shape is not None:
            clf, row = self.judge.examiner.clf, self._random(1, shape)
            one = trackable(bind(clf, row.to(device=clf.device, dtype=clf.dtype)))
            a_pass = int(BESIDE * bytes_of_a_pass(one))
        row_bytes, batch = self.intake.row_bytes, self.solver.batch
        return Memory.of(self.settings, row_bytes, self.body, a_pass, batch)

    def _choose_threads(self, rows: Tensor, alone: float) -> None:
        """All cores but one, which answers requests, where that is clearly faster than one."""
        spare = len(os.sched_getaffinity(0)) - 1 if hasattr(os, "sched_getaffinity") else 1
        if self.settings.threads is not None or spare < 2:
            return
        torch.set_num_threads(spare)
        self.solver.forward(rows, keep=False)
        begun = time.monotonic()
        self.solver.forward(rows, keep=False)
        if time.monotonic() - begun > FASTER * alone:
            torch.set_num_threads(1)

    def _solved(self, rows: int, seconds: float) -> None:
        self.metrics.batches.observe(rows)
        self.metrics.solving.observe(seconds)

    def _judged(self, judgement: Judgement) -> None:
        """Go on with the watch; nothing that goes wrong there stops the answers."""
        if self.watching is None:
            return
        try:
            state, rose = self.watching.update(judgement)
        except CrediblyError as error:
            self.failed(error)
            return
        self.metrics.drifted(state)
        if rose:
            names = self.judge.examiner.clf.classes
            note("drift", logging.WARNING, summary=state.summary(names))

    def _answered(self, columns: Columns) -> None:
        self.metrics.answered(columns)

    def failed(self, error: Exception) -> None:
        """Count and log an exception."""
        self.metrics.failures.labels(type(error).__name__).inc()
        note("exception", logging.ERROR, **of_exception(error))


async def _either(one: asyncio.Future[Any], other: asyncio.Future[Any], seconds: float) -> None:
    """Wait until one of two is there, or the time is over."""
    await asyncio.wait((one, other), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
