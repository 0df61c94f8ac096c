"""Rows that wait for a profile: solved in slices, the most urgent first, as far as time allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from credibly.decide.judge import Judge
from credibly.serve.answers import (
    FAILED,
    PROFILED,
    Columns,
    Explained,
    columns_of,
    explained_of,
    set_incomplete,
)
from credibly.serve.jobs import Job
from credibly.serve.pace import Pace

SLICE = 0.1
"""Seconds of profiles between two batches, about, where requests wait."""


@dataclass(eq=False)
class Pending:
    """A job of which some rows need a profile.

    Attributes:
        columns: what one forward told, replaced row by row.
        rows: those that still need one.
        explained: profiles of those that are done.
        batch: rows of its batch.
    """

    job: Job
    columns: Columns
    rows: list[int]
    batch: int
    explained: dict[int, Explained] = field(default_factory=dict)


class Backlog:
    """Solves profiles of jobs, in the thread of the solver.

    Args:
        judge: whose profiles are needed.
        done: told of jobs that are finished, also of those that were given up.
        failed: told of an exception that the model raised.

    Attributes:
        rows: of all jobs that wait here.
        pace: of profiles.
    """

    def __init__(
        self,
        judge: Judge,
        *,
        done: Callable[[list[Pending]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.judge, self.pace, self.rows = judge, Pace(), 0
        self._done, self._failed = done, failed
        self._pending: list[Pending] = []

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, pending: Pending) -> None:
        """Let a job wait."""
        self._pending.append(pending)
        self.rows += len(pending.job)

    def go_on(self, most: int) -> None:
        """Solve at most so many rows, for about as long as others may wait."""
        self._pending.sort(key=lambda pending: pending.job.due)
        step = self._step(most)
        self._give_up(step)
        if not self._pending:
            return
        chosen = self._chosen(step)
        begun = time.monotonic()
        if self._solve(chosen):
            self.pace.note(len(chosen), time.monotonic() - begun)
        for pending, row in chosen:
            pending.rows.remove(row)
        self._finish([p for p in self._pending if not p.rows])

    def _step(self, most: int) -> int:
        """Rows that a slice has time for."""
        step = 1
        while 2 * step <= most and self._fits(2 * step):
            step *= 2
        return step

    def _fits(self, rows: int) -> bool:
        known = self.pace.seconds(rows)
        return known is not None and known <= SLICE

    def _give_up(self, step: int) -> None:
        """Finish what nobody waits for, and at once what could not even be begun in time."""
        ready, late = time.monotonic(), []
        one = self.pace.seconds(1) or 0.0
        each = (self.pace.seconds(step) or 0.0) / step
        for pending in self._pending:
            due = pending.job.due
            if pending.job.dropped or ready + one > due:
                late.append(pending)
            else:  # one that has time for some of its rows only is given up when it is due
                ready = min(ready + each * len(pending.rows), due)
        self._finish(late)

    def _finish(self, done: list[Pending]) -> None:
        if done:
            self._pending = [p for p in self._pending if p not in done]
            self.rows = sum(len(p.job) for p in self._pending)
            self._done(done)

    def _chosen(self, most: int) -> list[tuple[Pending, int]]:
        """The most urgent rows that are alike."""
        key = self._pending[0].job.key
        rows = [(p, row) for p in self._pending if p.job.key == key for row in p.rows]
        return rows[:most]

    def _solve(self, chosen: list[tuple[Pending, int]]) -> bool:
        """Profiles of rows, of which one that fails fails alone; whether none did."""
        try:
            self._profiles(chosen)
        except Exception as error:  # noqa: BLE001  # a model may raise anything
            if len(chosen) > 1:
                half = len(chosen) // 2
                for part in (chosen[:half], chosen[half:]):
                    self._solve(part)
                return False
            self._failed(error)
            pending, row = chosen[0]  # it keeps what one forward told
            set_incomplete(pending.columns, row, FAILED)
            return False
        return True

    def _profiles(self, chosen: list[tuple[Pending, int]]) -> None:
        """Judge rows with all that the Judge looks at, and solve profiles that are asked for."""
        x = torch.stack([pending.job.rows[row] for pending, row in chosen])
        found = self.judge(x, keep=True)
        columns = columns_of(found)
        known = set() if found.profiled is None else set(found.profiled.tolist())
        asked = [k for k, (p, _) in enumerate(chosen) if p.job.profile and found.predicted[k] >= 0]
        # an input that kept no profile gets one; of the others it is there
        solved = {k: found.profile_of(k) for k in asked if k in known}
        rest = [k for k in asked if k not in known]
        if rest and found.inputs is not None:
            solved |= found.inputs.profiles_of(rest)
        for k, (pending, row) in enumerate(chosen):
            for name, values in columns.items():
                pending.columns[name][row] = values[k]
            if k in known or k in solved:
                pending.columns["stage"][row] = PROFILED
            if k in rest:
                pending.columns["passes"][row] += float(solved[k].passes[0])
            if k in solved:
                pending.explained[row] = explained_of(found, k, solved[k])
