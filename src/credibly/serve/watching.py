"""The watch over the stream inside a service: fed by the solver, kept on disk."""

from __future__ import annotations

import threading
from pathlib import Path

from credibly._validation import require
from credibly.decide.drift import DriftWatch
from credibly.decide.drift_state import DriftState
from credibly.decide.judge import Judge
from credibly.decide.judgement import Judgement


class Watching:
    """A `DriftWatch` and its file.

    Args:
        watch: of the stream.
        path: where its state is kept; None keeps it in memory only.
    """

    def __init__(self, watch: DriftWatch, path: Path | None) -> None:
        self.watch, self.path = watch, path
        self._saved, self._saving = watch.seen, threading.Lock()

    @classmethod
    def begin(
        cls, judge: Judge, path: Path | None, ordinary: Path | None, false_alarms: float
    ) -> Watching:
        """Go on with the file if it is there, else begin."""
        use = judge.facts.profile
        remedy = (
            "Fit the Judge with profile='never', the default, or watch its verdicts with "
            "`credibly drift`: rows whose profile was not solved in time have other p-values."
        )
        require(use == "never", "judge", "a Judge of one forward, to be watched", repr(use), remedy)
        if path is not None and path.exists():
            return cls(DriftWatch.load(path, judge), path)
        return cls(DriftWatch.fit(judge, ordinary, false_alarms=false_alarms), path)

    def update(self, judgement: Judgement) -> tuple[DriftState, bool]:
        """Go on; what is known now, and whether the alarm rose just now."""
        before = self.watch.alarm
        state = self.watch.update(judgement)
        return state, state.alarm and not before

    def save(self) -> None:
        """Write the file, if there is something new."""
        with self._saving:
            seen = self.watch.seen
            if self.path is not None and (seen != self._saved or not self.path.exists()):
                self.watch.save(self.path)
                self._saved = seen
