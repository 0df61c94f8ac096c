"""How far a long run is: for a bar, for a log, and as a file for others to read."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic

from credibly.errors import CrediblyError, CrediblyWarning
from credibly.io.files import json_text
from credibly.io.places import Place
from credibly.profile.arguments import ticking
from credibly.types import Progress

EVERY = 5.0
"""Seconds between two versions of the status file."""

WINDOW = 60.0
"""Seconds over which the rate is measured."""

FORMAT = "credibly.status"


@dataclass
class Pulse:
    """The state of a run.

    Attributes:
        output: what is made.
        engine: by what.
        total: rows in all.
        done: rows that are solved, those of earlier starts included.
        resumed: rows that earlier starts had finished.
        failed: rows of this start that could not be used.
        workers: how many are at work.
        retries: shards that were given to another worker since theirs was lost.
        solving: seconds of solving, of all workers.
        note: what is being waited for.
    """

    output: str
    engine: str
    total: int
    done: int = 0
    resumed: int = 0
    failed: int = 0
    workers: int = 0
    retries: int = 0
    solving: float = 0.0
    note: str = ""
    started: float = field(default_factory=monotonic)
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    @property
    def share(self) -> float:
        """How much of it is done."""
        return min(1.0, self.done / self.total) if self.total else 1.0

    @property
    def rate(self) -> float | None:
        """Rows per second of late; None while nothing is known."""
        if len(self._recent) < 2:
            return None
        (begin, first), (end, last) = self._recent[0], self._recent[-1]
        return (last - first) / (end - begin) if end > begin and last > first else None

    @property
    def left(self) -> float | None:
        """Seconds left at that rate."""
        rate = self.rate
        return None if rate is None else max(0, self.total - self.done) / rate

    def note_time(self) -> None:
        """Remember how much was done now."""
        now = monotonic()
        self._recent.append((now, self.done))
        while len(self._recent) > 2 and now - self._recent[0][0] > WINDOW:
            self._recent.popleft()

    def as_json(self, state: str) -> dict[str, object]:
        """Return all of it for other programs."""
        rate, left = self.rate, self.left
        return {
            "format": FORMAT,
            "format_version": 1,
            "state": state,
            "output": self.output,
            "engine": self.engine,
            "rows": self.total,
            "rows_done": self.done,
            "rows_resumed": self.resumed,
            "rows_failed": self.failed,
            "rows_per_second": None if rate is None else round(rate, 3),
            "seconds_left": None if left is None else round(left, 1),
            "seconds": round(monotonic() - self.started, 1),
            "seconds_solving": round(self.solving, 3),
            "workers": self.workers,
            "retries": self.retries,
            "note": self.note,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }


class Follower:
    """A function for `progress` that is shown the whole state, not only the share done."""

    def __call__(self, share: float) -> None:
        """See the share done, where that is all there is."""

    def see(self, pulse: Pulse) -> None:
        """See the state."""
        self(pulse.share)


@dataclass
class Reporter:
    """Tells whoever follows a run, and writes its status file.

    Attributes:
        pulse: the state.
        tell: shows it.
        file: the status file.
        is_begun: whether there are parts of the run, so that a file among them has a meaning.
        kept: whether the file was asked for, and so is written always.
        last: when it was written.
        warned: whether it was said that it cannot be written.
    """

    pulse: Pulse
    tell: Callable[[Pulse], None]
    file: Place
    is_begun: Callable[[], bool]
    kept: bool = False
    last: float = -EVERY
    warned: bool = False

    def show(self) -> None:
        """Tell the state as it is now."""
        self.pulse.note_time()
        self.tell(self.pulse)
        if monotonic() - self.last >= EVERY:
            self.write("running")

    def write(self, state: str) -> None:
        """Write the status file; a run does not end because that fails."""
        self.last = monotonic()
        try:
            if self.kept or self.is_begun():
                self.file.write_whole(json_text(self.pulse.as_json(state)).encode())
        except (CrediblyError, OSError) as error:
            self._note_failure(error)

    def _note_failure(self, error: Exception) -> None:
        self.pulse.note = f"the status file cannot be written: {error}"
        if self.kept and not self.warned:
            self.warned = True
            warnings.warn(self.pulse.note, CrediblyWarning, stacklevel=2)


@contextmanager
def reporting(
    pulse: Pulse, progress: Progress, file: Place, *, is_begun: Callable[[], bool], keep: bool
) -> Iterator[Reporter]:
    """Tell whoever follows; with `keep` the status file stays and says how the run ended."""
    with ticking(progress) as tick:

        def tell(now: Pulse) -> None:
            if isinstance(progress, Follower):
                progress.see(now)
            elif tick is not None:
                tick(now.share)

        reporter = Reporter(pulse, tell, file, is_begun, keep)
        if keep:
            reporter.write("running")
        try:
            yield reporter
        except BaseException as error:
            pulse.note = pulse.note or f"{type(error).__name__}: {error}"
            reporter.write("stopped")
            raise
        if keep:
            reporter.write("finished")
