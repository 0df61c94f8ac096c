"""What commands print: text, tables, and the progress of a long run."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table as RichTable
from rich.text import Text

from credibly.report.tables import Table

EVERY = 30.0  # seconds between two lines of a log


def print_text(text: str) -> None:
    """Print text as it is; only the terminal breaks long lines."""
    Console(highlight=False).print(text, markup=False, soft_wrap=True)


def print_error(text: str, style: str) -> None:
    """Print a line on the error stream."""
    Console(stderr=True).print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def print_table(table: Table) -> None:
    """Print a table; one without names of columns lists facts."""
    names = bool(table.columns)
    found = RichTable(title=table.title, title_justify="left", show_header=names, show_lines=names)
    if not names:
        found.box = None
        found.add_column(style="bold", no_wrap=True)
    for name in table.columns:
        found.add_column(Text(name), overflow="fold")
    for row in table.rows:
        found.add_row(*map(Text, row))
    Console(highlight=False).print(found)


@contextmanager
def resumable() -> Iterator[None]:
    """Exit with 130 when the user stops a run that can be continued, with 143 after SIGTERM.

    Told again while it ends, it goes on ending: workers are stopped and the status is written.
    """
    told: list[int] = []

    def stop(number: int, _: object) -> None:
        told.append(number)
        if len(told) == 1:
            raise KeyboardInterrupt

    try:
        with _handled((signal.SIGINT, signal.SIGTERM), stop):
            yield
    except KeyboardInterrupt:
        print_text("\nstopped; the same command continues from here")
        raise typer.Exit(128 + (told or [signal.SIGINT])[0]) from None


@contextmanager
def _handled(names: Sequence[signal.Signals], stop: Any) -> Iterator[None]:
    """Signals go to `stop`; only the main thread may say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {name: signal.signal(name, stop) for name in names}
    try:
        yield
    finally:
        for name, known in before.items():
            signal.signal(name, known)


@contextmanager
def show_progress(doing: str, total: int, what: str) -> Iterator[Bar | Lines]:
    """Yield a function of the share done: it moves a bar, or without a terminal writes lines.

    What an earlier run finished counts as done, but not for the speed. Its `note` stands beside it.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(total, what)
        return
    columns = (
        TextColumn(doing), BarColumn(), MofNCompleteColumn(), _Speed(), TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        yield Bar(bar, total, what)


class Bar:
    """Moves a bar."""

    def __init__(self, bar: Progress, total: int, what: str) -> None:
        self.total, self.note, self._begun = total, "", False
        self._bar, self._task = bar, bar.add_task(what, total=total, note="")

    def __call__(self, share: float) -> None:
        """Move it."""
        move = self._bar.update if self._begun else self._bar.reset
        move(self._task, completed=round(share * self.total), note=self.note)
        self._begun = True


class _Speed(ProgressColumn):
    """Rows, or inputs, per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("-" if speed is None else f"{speed:.3g} {task.description}/s")


class Lines:
    """A line every half minute, for a log."""

    def __init__(self, total: int, what: str) -> None:
        self.total, self.what = total, what
        self.begun: tuple[int, float] | None = None
        self.last, self.note = 0.0, ""

    def __call__(self, share: float) -> None:
        """Write a line if it is time for one."""
        done, now = round(share * self.total), monotonic()
        if self.begun is None:
            self.begun, self.last = (done, now), now
            if done:
                print_line(f"continuing: {done} of {self.total} {self.what} were finished before")
        elif now - self.last >= EVERY:
            self.last, (first, started) = now, self.begun
            text = f"{done} of {self.total} {self.what}"
            if done > first:
                speed = (done - first) / (now - started)
                left = duration((self.total - done) / speed)
                text += f", {speed:.3g} per second, about {left} left"
            print_line(f"{text}; {self.note}" if self.note else text)


def duration(seconds: float) -> str:
    """A time in the unit that suits it, with about two digits."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{float(f'{seconds:.2g}'):g} s"  # 100 instead of 1e+02


def print_line(text: str) -> None:
    """Print a line on the error stream, above the bar if there is one."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201  # rich would break long lines
