"""Requests that wait for the solver, in one bounded queue."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from credibly.serve.answers import Answer


@dataclass(eq=False)
class Job:
    """The rows of one request.

    Attributes:
        rows: the inputs (n, ...).
        due: when the answer should be there, by `time.monotonic`; earlier if the service ends.
        profile: whether profiles are asked for.
        first: what one forward tells.
        last: the same with profiles, where some are needed.
        dropped: whether nobody waits for it any more.
    """

    rows: Tensor
    due: float
    profile: bool
    first: asyncio.Future[Answer]
    last: asyncio.Future[Answer]
    dropped: bool = False
    entered: float = field(default_factory=time.monotonic)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def key(self) -> Any:
        """Only rows that are alike are solved together."""
        return self.rows.shape[1:], self.rows.dtype


class Waiting:
    """Jobs in the order in which they came; rows are counted.

    Args:
        most: rows that may wait.
    """

    def __init__(self, most: int) -> None:
        self.most, self.rows, self.closed = most, 0, False
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, job: Job) -> bool:
        """Add a job; False if there is no room."""
        with self._changed:
            if self.closed or self.rows + len(job) > self.most:
                return False
            self._jobs.append(job)
            self.rows += len(job)
            self._changed.notify()
        return True

    def drop(self, job: Job) -> None:
        """Forget a job; one that is being solved is not interrupted."""
        job.dropped = True
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)
                self.rows -= len(job)

    def take(self, most: int, *, enough: int, wait: float, block: bool) -> list[Job]:
        """The next jobs that are alike, at most so many rows, or one job of more.

        Args:
            most: rows.
            enough: rows for which it is worth to wait.
            wait: seconds to wait for them.
            block: whether to wait for the first job; without it the result may be empty.
        """
        with self._changed:
            while block and not self._jobs and not self.closed:
                self._changed.wait()
            end = time.monotonic() + wait
            while self._jobs and self.rows < min(most, enough) and not self.closed:
                left = end - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            return self._first_alike(most)

    def _first_alike(self, most: int) -> list[Job]:
        taken: list[Job] = []
        rest: deque[Job] = deque()
        rows = 0
        while self._jobs:
            job = self._jobs.popleft()
            fits = not taken or (job.key == taken[0].key and rows + len(job) <= most)
            (taken if fits else rest).append(job)
            rows += len(job) if fits else 0
            if rows >= most:
                break
        self._jobs.extendleft(reversed(rest))
        self.rows -= rows
        return taken

    def close(self) -> None:
        """Take no more jobs; those that wait are still given out."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
