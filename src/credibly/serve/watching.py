"""The watch over the stream inside a service: fed by the solver, kept on disk."""

from __future__ import annotations

import threading
from pathlib import Path

from credibly._validation import require
from credibly.decide.drift import DriftWatch
from credibly.decide.judge import Judge
from credibly.decide.judgement import Judgement

ORDINARY_RATE = 0.01
"""Chance of ever raising a false alarm, where none is asked for."""


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
        cls, judge: Judge, path: Path | None, ordinary: Path | None, false_alarms: float | None
    ) -> Watching:
        """Go on with the file if it is there, else begin; settings of the file cannot change."""
        use = judge.facts.profile
        remedy = (
            "Fit the Judge with profile='never', the default, or watch its verdicts with "
            "`credibly drift`: rows whose profile was not solved in time have other p-values."
        )
        require(use == "never", "judge", "a Judge of one forward, to be watched", repr(use), remedy)
        if path is None or not path.exists():
            rate = ORDINARY_RATE if false_alarms is None else false_alarms
            begun = cls(DriftWatch.fit(judge, ordinary, false_alarms=rate), path)
            begun.save()  # where that is not possible, it is known before the first request
            return begun
        watch = DriftWatch.load(path, judge)
        rate = watch.settings.false_alarms
        same = false_alarms is None or false_alarms == rate
        _require_same(same, "false_alarms", path, f"{rate:g}", f"{false_alarms}")
        if ordinary is not None:
            known, fresh = watch.settings, DriftWatch.fit(judge, ordinary).settings
            same, words = fresh.compared == known.compared, "usable inputs"
            others = f"{fresh.reference} {'other ' * (fresh.reference == known.reference)}{words}"
            _require_same(same, "ordinary", path, f"{known.reference} {words}", others)
        return cls(watch, path)

    def update(self, judgement: Judgement | None) -> bool:
        """Go on, None for a row on which the model fails; whether the alarm rose just now."""
        before = self.watch.alarm
        if judgement is None:
            self.watch.skip()
        else:
            self.watch.follow(judgement)
        return self.watch.alarm and not before

    def save(self) -> None:
        """Write the file, if there is something new."""
        with self._saving:
            seen = self.watch.seen
            if self.path is not None and (seen != self._saved or not self.path.exists()):
                self.watch.save(self.path)
                self._saved = seen


def _require_same(same: bool, name: str, path: Path, stored: str, given: str) -> None:  # noqa: FBT001
    """Refuse a setting that the file does not have: the service would not use it."""
    remedy = f"Leave it out, or name a new file to begin anew: {path} keeps its own."
    require(same, name, f"{stored}, as in {path}", given, remedy)
