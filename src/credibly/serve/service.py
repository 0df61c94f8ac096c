"""A Judge behind a queue: what it takes, how long that may last, and whether it is well."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any, TypeVar

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
from credibly.serve.refusal import RefusedError, unready
from credibly.serve.settings import Memory, Settings
from credibly.serve.solver import MOST_BATCH, Hooks, Solver
from credibly.serve.warming import model_failed, random_rows, warm_up
from credibly.serve.watching import Watching

STUCK = 60.0
"""Seconds of one batch, or ten times the deadline, after which the solver is not well."""

SENDING = 1.0
"""Seconds at the end that are kept to send what is known; less where `drain` is short."""

Read = TypeVar("Read")
"""What is read from a body."""

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
        end: when the service has to be over, by `time.monotonic`; None until it is told to stop.
        broken: what the model raised while it warmed up; None: nothing.
        unsaved: why the watch could not be saved at the end; None: it was.
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
        self.warm = False
        self.end: float | None = None
        self.broken: Exception | None = None
        self.unsaved: CrediblyError | None = None
        self.held = self.open = 0
        self.parsing = asyncio.Semaphore(1)
        self._jobs: set[Job] = set()
        self.metrics.queued.set_function(lambda: self.waiting.rows)
        self.metrics.pending.set_function(lambda: len(self.solver.backlog))
        self.metrics.ready.set_function(lambda: self.ready)
        if watching is not None:
            self.metrics.drifted(watching.watch)

    @property
    def live(self) -> bool:
        """Whether the solver runs, and is not stuck."""
        stuck = self.solver.busy > max(STUCK, 10 * self.settings.deadline)
        return self.solver.is_alive() and not stuck

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return self.warm and not self.draining and self.live

    @property
    def draining(self) -> bool:
        """Whether no more requests are taken."""
        return self.end is not None

    def start(self) -> None:
        """Begin to warm up, and then to judge."""
        self.solver.start()

    def drain(self) -> float:
        """Take no more requests; when the service has to be over."""
        if self.end is None:
            self.end = time.monotonic() + self.settings.drain
        for job in list(self._jobs):  # the loop may add to them meanwhile
            job.due = min(job.due, self.end - self.sending)
        return self.end

    @property
    def sending(self) -> float:
        """Seconds at the end that are kept to send what is known."""
        return min(SENDING, self.settings.drain / 10)

    def hurry(self) -> None:
        """End what still waits: with what one forward told, else with a refusal."""
        for job in list(self._jobs):
            if not job.first.done():
                job.first.set_exception(unready(ending=True))
            elif not job.last.done() and job.first.exception() is None:
                job.last.set_result(job.first.result())

    def stop(self) -> None:
        """Finish what waits, and end."""
        end = self.drain()
        self.waiting.close()
        if self.solver.ident is not None:
            self.solver.join(max(0.0, end - time.monotonic()))
        if self.watching is not None:
            try:
                self.watching.save()
            except CrediblyError as error:
                self.unsaved = error

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
        self._jobs.add(job)
        try:
            return await self._answered_to(job, left)
        finally:
            self._jobs.discard(job)
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
        if left.done() and not (job.last.done() or _is_whole(job.first)):
            raise GoneError
        if not job.first.done():
            text = "The model did not answer in time. Ask again later."
            raise RefusedError(HTTPStatus.GATEWAY_TIMEOUT, text)

    def check_room(self, rows: int, due: float) -> None:
        """Refuse what would not be judged in time."""
        self.check_open()
        if self.rows_held + rows > self.waiting.most:
            raise self._full(rows)
        if self.waiting.rows and self.seconds_ahead(rows) > due - time.monotonic():
            raise self._full(rows)

    @property
    def rows_held(self) -> int:
        """Rows that wait, also for profiles."""
        return self.waiting.rows + self.solver.backlog.rows

    def check_open(self) -> None:
        """Refuse while the model is warming up, and while the service ends."""
        if self.ready:
            return
        raise unready(ending=self.draining)

    def seconds_ahead(self, rows: int) -> float:
        """When so many more rows would be judged, from now."""
        waiting, most = self.waiting.rows, self.solver.batch
        pace = self.solver.pace
        now = max(0.0, (pace.seconds(most) or 0.0) - self.solver.busy) if self.solver.begun else 0.0
        return pace.ahead(waiting + rows, most) + now

    def _full(self, rows: int) -> RefusedError:
        after = max(1, math.ceil(self.seconds_ahead(rows) / 2))
        text = f"There is no room for more: {self.rows_held} rows wait. Ask again later."
        return RefusedError(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after=min(after, 60))

    def _prepare(self) -> None:
        """In the solver's thread, before the first batch."""
        try:
            warm_up(self.solver, self.intake, self.settings)
        except Exception as error:  # noqa: BLE001  # the model may raise anything
            self.failed(error)
            self.broken = error
            return  # never ready: the server ends
        self.warm = True
        note("ready", batch=self.solver.batch, threads=torch.get_num_threads())

    def memory(self) -> Memory:
        """What it may take, by one pass over one row."""
        shape, a_pass = self.intake.shape, 0
        if shape is not None:
            clf, row = self.judge.examiner.clf, random_rows(self.intake, 1)
            one = trackable(bind(clf, row.to(device=clf.device, dtype=clf.dtype)))
            try:
                a_pass = int(BESIDE * bytes_of_a_pass(one))
            except Exception as error:  # a model may raise anything
                raise model_failed(error) from error
        return Memory.of(
            self.settings, row=self.intake.row_bytes, body=self.body, a_pass=a_pass,
            batch=self.solver.batch, images=self.intake.takes_images,
        )  # fmt: skip

    async def parse(self, work: Callable[[], Read], *, light: bool) -> Read:
        """Read a body: one at a time beside the requests of others, or at once if it is light."""
        if light:
            return work()
        async with self.parsing:
            return await asyncio.to_thread(work)

    def _solved(self, rows: int, seconds: float) -> None:
        self.metrics.batches.observe(rows)
        self.metrics.solving.observe(seconds)

    def _judged(self, judgement: Judgement | None) -> None:
        """Go on with the watch; nothing that goes wrong there stops the answers."""
        if self.watching is None:
            return
        try:
            rose = self.watching.update(judgement)
        except Exception as error:  # noqa: BLE001  # the solver goes on without it
            self.failed(error)
            return
        watch = self.watching.watch
        self.metrics.drifted(watch)
        if rose:
            names = self.judge.examiner.clf.classes
            note("drift", logging.WARNING, summary=watch.state.summary(names))

    def _answered(self, columns: Columns) -> None:
        self.metrics.answered(columns)

    def failed(self, error: Exception) -> None:
        """Count and log an exception."""
        self.metrics.failures.labels(type(error).__name__).inc()
        note("exception", logging.ERROR, **of_exception(error))


def _is_whole(first: asyncio.Future[Answer]) -> bool:
    """Whether the answer of one forward, or its failure, is all there will be."""
    return first.done() and (first.exception() is not None or first.result().complete)


async def _either(one: asyncio.Future[Any], other: asyncio.Future[Any], seconds: float) -> None:
    """Wait until one of two is there, or the time is over."""
    await asyncio.wait((one, other), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
