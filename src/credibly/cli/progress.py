"""How far a long command is: a bar on a terminal, now and then a line in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, ProgressColumn

EVERY = 30.0
"""Seconds between two lines of a log, at least."""


@contextmanager
def showing(
    total: int, what: str, columns: tuple[ProgressColumn, ...]
) -> Iterator[Callable[[float], None]]:
    """A function of the share done, shown on the error stream: a bar, or lines without a terminal.

    What an earlier run had finished counts as done, not as speed.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(total, what)
        return
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        begun = False

        def tick(share: float) -> None:
            nonlocal begun
            done = round(share * total)
            if begun:
                bar.update(task, completed=done)
            else:
                bar.reset(task, completed=done)
                begun = True

        yield tick


class Lines:
    """A line every half minute, for a log: a bar would be invisible there until the end."""

    def __init__(
        self,
        total: int,
        what: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[str], object] | None = None,
    ) -> None:
        self.total, self.what, self.clock, self.write = total, what, clock, write or line
        self.begun: tuple[int, float] | None = None
        self.last = 0.0

    def __call__(self, share: float) -> None:
        """Say something if it is time to."""
        done, now = round(share * self.total), self.clock()
        if self.begun is None:
            self.begun, self.last = (done, now), now
            if done:
                self.write(f"going on: {done} of {self.total} {self.what} were finished before")
        elif now - self.last >= EVERY:
            self.last = now
            self.write(f"{done} of {self.total} {self.what}{self._left(done, now)}")

    def _left(self, done: int, now: float) -> str:
        assert self.begun is not None  # noqa: S101  # set by the first call
        first, started = self.begun
        if done <= first:
            return ""
        speed = (done - first) / (now - started)
        return f", {speed:.3g} a second, about {_in_words((self.total - done) / speed)} left"


def _in_words(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def line(text: str) -> None:
    """A line on the error stream; above the bar, where there is one."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201  # rich would break long lines
