"""Engines as values: where and by how many the shards of a run are made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from credibly.batch.first_rows import chosen_threads
from credibly.batch.formats import Record
from credibly.batch.progress import Reporter
from credibly.batch.tally import unusable
from credibly.batch.work import Work
from credibly.model.classifier import Classifier


class Engine(ABC):
    """Makes shards. Whichever engine makes them, the rows are the same."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The word for it."""

    @abstractmethod
    def run(self, work: Work, numbers: Sequence[int], reporter: Reporter) -> None:
        """Make the shards of these numbers; those that are finished stay if it raises."""

    def device(self, clf: Classifier) -> str | None:
        """The kind of device on which rows are solved."""
        return None if clf.device is None else clf.device.type


@dataclass(frozen=True)
class Local(Engine):
    """This process: it reads ahead and writes behind while it solves."""

    @property
    def name(self) -> str:
        return "local"

    def run(self, work: Work, numbers: Sequence[int], reporter: Reporter) -> None:
        pulse = reporter.pulse
        pulse.workers = 1

        def solved(rows: int, seconds: float) -> None:
            pulse.done += rows
            pulse.solving += seconds
            reporter.show()

        def done(record: Record) -> None:  # from the thread that writes
            pulse.failed += unusable(record["tally"])

        with chosen_threads(work.maker.rows):
            work.run(numbers, solved=solved, done=done)
