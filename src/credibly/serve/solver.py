"""The one thread that judges: batches form while it is busy, profiles are solved in between."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from credibly.decide.judge import Judge
from credibly.decide.judgement import Judgement
from credibly.errors import InvalidArgumentError
from credibly.model.memory import trim
from credibly.serve.answers import (
    NO_TIME,
    Answer,
    Columns,
    Explained,
    columns_of,
    failed,
    joined,
    part_of,
    set_incomplete,
)
from credibly.serve.backlog import Backlog, Pending
from credibly.serve.jobs import Job, Waiting
from credibly.serve.pace import Pace

MOST_BATCH = 256
"""Rows of a batch that is chosen by itself, at most."""

TRIM = 5.0
"""Seconds of work after which freed memory is given back to the system."""

Given = list[tuple[asyncio.Future[Answer], Answer]]


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Whom the solver tells what it did; called in its thread.

    Attributes:
        solved: after a batch, with its rows and seconds.
        judged: with every judgement, in the order of the stream; None for a row on which the
            model fails.
        answered: with the columns of rows as they are sent.
        failed: with an exception that the model, or this code, raised.
    """

    solved: Callable[[int, float], None]
    judged: Callable[[Judgement | None], None]
    answered: Callable[[Columns], None]
    failed: Callable[[Exception], None]


class Solver(threading.Thread):
    """Judges what waits, until the queue is closed and empty.

    Args:
        judge: whose verdicts are given.
        waiting: the queue.
        batch: rows at a time, at most.
        wait: seconds to wait for more rows.
        hooks: see there.
    """

    def __init__(
        self, judge: Judge, waiting: Waiting, *, batch: int, wait: float, hooks: Hooks
    ) -> None:
        super().__init__(name="solver", daemon=True)
        self.judge, self.waiting, self.batch, self.wait = judge, waiting, batch, wait
        self.forward = replace(judge, facts=replace(judge.facts, profile="never"))
        self.hooks, self.pace = hooks, Pace()
        self.backlog = Backlog(judge, done=self._finish, failed=hooks.failed)
        self.begun: float | None = None
        self.prepare: Callable[[], None] = lambda: None
        self._crowd = 0
        self._trimmed = time.monotonic()

    def run(self) -> None:
        self.prepare()
        while True:
            jobs = self.waiting.take(
                self.batch, enough=self._crowd, wait=self.wait, block=not self.backlog
            )
            self.begun = time.monotonic()
            if jobs:
                self._batch(jobs)
            if self.backlog:
                self.backlog.go_on(self.batch)
            self._trim()
            self.begun = None
            if self.waiting.closed and not self.backlog and not len(self.waiting):
                return

    @property
    def busy(self) -> float:
        """Seconds since the solver began with what it does."""
        begun = self.begun
        return 0.0 if begun is None else time.monotonic() - begun

    def _trim(self) -> None:
        """Keep the memory of a long life what it was after a minute."""
        if time.monotonic() - self._trimmed > TRIM:
            trim()
            self._trimmed = time.monotonic()

    def _batch(self, jobs: list[Job]) -> None:
        """What one forward tells; it is all that most need."""
        begun = time.monotonic()
        self._crowd = sum(map(len, jobs)) if len(jobs) > 1 else 0
        rows = jobs[0].rows if len(jobs) == 1 else torch.cat([job.rows for job in jobs])
        found: list[Judgement | None] = []
        try:
            columns, again = self._told(rows, found)
            self._share_out(jobs, columns, again)
        except Exception as error:  # noqa: BLE001  # whatever it is, the thread goes on
            self.hooks.failed(error)
            self._post([], [(job, error) for job in jobs])
        for judgement in found:
            self.hooks.judged(judgement)
        seconds = time.monotonic() - begun
        self.pace.note(len(rows), seconds)
        self.hooks.solved(len(rows), seconds)

    def _told(self, rows: Tensor, found: list[Judgement | None]) -> tuple[Columns, list[bool]]:
        """Columns of the rows, and which need a profile; a row that fails fails alone."""
        try:
            judgement = self.forward(rows, keep=False)
        except Exception as error:  # noqa: BLE001  # a model may raise anything
            if len(rows) > 1:
                half = len(rows) // 2
                parts = [self._told(part, found) for part in (rows[:half], rows[half:])]
                return joined([part[0] for part in parts]), parts[0][1] + parts[1][1]
            found.append(None)
            return self._failure(error), [False]
        found.append(judgement)
        again = [False] * len(rows)
        if self.judge.facts.profile != "never":
            usable = judgement.predicted >= 0
            again = (self.judge.alarm.whole.look_again(judgement.signals) & usable).tolist()
        return columns_of(judgement), again

    def _failure(self, error: Exception) -> Columns:
        """The columns of a row on which the model fails."""
        if isinstance(error, InvalidArgumentError):
            return failed(str(error))
        self.hooks.failed(error)
        return failed(f"the model raised {type(error).__name__}")

    def _share_out(self, jobs: list[Job], columns: Columns, again: list[bool]) -> None:
        """To each job its rows; those that need a profile go on."""
        given: Given = []
        first, total, settled = 0, len(again), list[Columns]()
        for job in jobs:
            stop = first + len(job)
            own = part_of(columns, first, stop) if len(jobs) > 1 else columns
            todo = [
                row for row in range(len(job))
                if own["class"][row] >= 0 and (job.profile or again[first + row])
            ]  # fmt: skip
            first = stop
            if todo and not job.dropped:
                for row in todo:
                    set_incomplete(own, row, NO_TIME)
                self.backlog.add(Pending(job, own, todo, total))
                own = joined([own])  # a copy: the solver goes on to change its own
            else:
                settled.append(own)
            given.append((job.first, _answer(job, own, total)))
        if settled:
            self.hooks.answered(columns if len(settled) == len(jobs) else joined(settled))
        self._post(given)

    def _finish(self, done: list[Pending]) -> None:
        """Send what the backlog made of jobs."""
        for pending in done:
            self.hooks.answered(pending.columns)
        self._post([(p.job.last, _answer(p.job, p.columns, p.batch, p.explained)) for p in done])

    def _post(self, given: Given, errors: list[tuple[Job, Exception]] | None = None) -> None:
        """Hand answers to the thread in which they are waited for, all at once."""
        futures = [future for future, _ in given] + [job.first for job, _ in errors or []]
        for loop in {future.get_loop() for future in futures}:
            answers = [(f, a) for f, a in given if f.get_loop() is loop]
            broken = [(j.first, e) for j, e in errors or [] if j.first.get_loop() is loop]
            try:
                loop.call_soon_threadsafe(_settle, answers, broken)
            except RuntimeError:  # the loop was closed: nobody waits
                continue


def _answer(
    job: Job, columns: Columns, batch: int, explained: dict[int, Explained] | None = None
) -> Answer:
    return Answer(columns, explained or {}, time.monotonic() - job.entered, batch)


def _settle(answers: Given, broken: list[tuple[asyncio.Future[Answer], Exception]]) -> None:
    for future, answer in answers:
        if not future.done():
            future.set_result(answer)
    for future, error in broken:
        if not future.done():
            future.set_exception(error)
