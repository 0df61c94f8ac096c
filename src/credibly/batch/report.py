"""The summaries of runs over many rows."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from credibly.batch.shards import Shards
from credibly.batch.tally import FAILED, JUDGED, OUTSIDE, SOLVED, UNREADABLE
from credibly.decide.judgement import in_lines
from credibly.decide.verdict import Verdict
from credibly.io.places import Place
from credibly.solve.status import Status
from credibly.types import shortest_repr

if TYPE_CHECKING:
    import pandas as pd

_ADVICE = {status.label: status.advice for status in Status} | {
    OUTSIDE: "The row itself lies outside the bounds; its profile is NaN.",
    FAILED: "The model raised an exception on this row; its profile is NaN.",
    UNREADABLE: "The file could not be read as an image (damaged, cut short, or of a kind that "
    "Pillow does not know); its profile is NaN. Its path is the id: replace or remove the file.",
}


_UNUSABLE = {
    Status.NON_FINITE_INPUT.label: "it holds NaN or infinity",
    Status.NON_FINITE_MODEL.label: "the model gives NaN or infinity for it",
    OUTSIDE: "a value lies outside the bounds of the model's space",
    FAILED: "the model raised an exception on it",
    UNREADABLE: "the file could not be read as an image; its path is the id",
}


@dataclass(frozen=True)
class ScoreReport:
    """The summary of a run.

    Attributes:
        path: the Parquet file, or the folder of files.
        rows: how many it has.
        resumed: rows that an earlier, interrupted run had finished.
        statuses: how many rows ended in which status.
        gamma: the number in use, also for 'auto'; None if the weights differ.
        seconds: time of this run.
        unchanged: share of the solved rows whose most credible class is the predicted one.
        distances: |x+ - x0| of the solved rows, the median and the largest.
    """

    path: Path | Place
    rows: int
    resumed: int
    statuses: dict[str, int]
    gamma: float | None
    seconds: float
    unchanged: float | None = None
    distances: tuple[float, float] | None = None

    @property
    def has_profiles(self) -> bool:
        """Whether any row has numbers; without a gradient they are those of the input."""
        return bool({*SOLVED, Status.NO_GRADIENT.label} & {*self.statuses})

    def summary(self) -> str:
        """Return a few lines to print."""
        gamma = None if self.gamma is None else shortest_repr(self.gamma)
        weights = "weights per class" if gamma is None else f"gamma {gamma}"
        lines = [f"{self.rows} rows in {self.path}, {weights}"]
        for name, count in sorted(self.statuses.items(), key=lambda pair: -pair[1]):
            lines.append(f"  {count:>6} {name}: {_ADVICE[name]}")
        if self.unchanged is not None and self.distances is not None:
            median, most = self.distances
            lines.append(f"  class unchanged by the trade-off: {self.unchanged:.1%}")
            lines.append(f"  distance |x+ - x0|: median {median:.4g}, most {most:.4g}")
        return "\n".join([*lines, _pace(self.rows, self.resumed, self.seconds)])


@dataclass(frozen=True)
class JudgeReport:
    """The summary of a run of `judge_file`.

    Attributes:
        path: the Parquet file, or the folder of files.
        rows: how many it has.
        resumed: rows that an earlier, interrupted run had finished.
        verdicts: how many rows got which verdict.
        statuses: how many rows were judged, or why they were not.
        cost: mean passes per row; a forward alone is a third.
        seconds: time of this run.
        shares_right: share of ordinary inputs of each verdict whose class is right, if known.
    """

    path: Path | Place
    rows: int
    resumed: int
    verdicts: dict[str, int]
    statuses: dict[str, int]
    cost: float
    seconds: float
    shares_right: dict[str, float]

    @property
    def has_verdicts(self) -> bool:
        """Whether any row could be judged."""
        return JUDGED in self.statuses

    def summary(self) -> str:
        """Return a few lines to print."""
        counts = {verdict: self.verdicts.get(verdict.value, 0) for verdict in Verdict}
        lines = [f"{self.rows} rows in {self.path}, {self.cost:.2f} passes each"]
        lines += in_lines(counts, self.shares_right)
        for name, why in _UNUSABLE.items():
            if name in self.statuses:
                lines.append(f"         {self.statuses[name]} {name}: {why}")
        return "\n".join([*lines, _pace(self.rows, self.resumed, self.seconds)])


def _pace(rows: int, resumed: int, seconds: float) -> str:
    """How long a run took, in words."""
    fresh = max(rows - resumed, 0)
    speed = f", {fresh / seconds:.3g} rows/s" if fresh and seconds > 0 else ""
    kept = f"; {resumed} rows were finished before" if resumed else ""
    return f"  {seconds:.1f} s{speed}{kept}"


def read_verdicts(shards: Shards, *, resumed: int, seconds: float) -> JudgeReport:
    """Make the report of a finished output, in memory that does not grow with its rows."""
    if shards.in_folder:
        facts, found = shards.finished_facts(b"judge"), shards.finished_tally()
        verdicts, statuses = found["verdict"], found["status"]
        rows, passes = int(found["rows"]), float(found["passes"])
    else:
        rows, passes, verdicts, statuses = 0, 0.0, Counter[str](), Counter[str]()
        with shards.opened() as file:
            facts = json.loads(file.schema_arrow.metadata[b"judge"])
            for frame in _frames(file, ["verdict", "status", "passes"]):
                rows += len(frame)
                verdicts.update(frame["verdict"])
                statuses.update(frame["status"])
                passes += float(frame["passes"].sum())
    right, cost = dict(facts["shares_right"]), passes / rows
    return JudgeReport(
        shards.out, rows, resumed, dict(verdicts), dict(statuses), cost, seconds, right
    )


def read_report(shards: Shards, *, resumed: int, seconds: float) -> ScoreReport:
    """Make the report of a finished output, in memory that does not grow with its rows.

    The median distance takes all rows and is left out for a folder, whose rows nobody reads again.
    """
    if shards.in_folder:
        return _report_of_folder(shards, resumed, seconds)
    kept, most, statuses = 0, 0.0, Counter[str]()
    with shards.opened() as file:
        settings = json.loads(file.schema_arrow.metadata[b"settings"])
        for frame in _frames(file, ["status", "predicted", "most_credible", "risk"]):
            statuses.update(frame["status"])
            solved = frame[frame["status"].isin(SOLVED)]
            kept += int((solved["predicted"] == solved["most_credible"]).sum())
            most = max(most, float(solved["risk"].max()) if len(solved) else 0.0)
        solved_rows = sum(statuses[label] for label in SOLVED)
        gamma = settings["resolved"]["gamma"]
        report = ScoreReport(shards.out, statuses.total(), resumed, dict(statuses), gamma, seconds)
        if not solved_rows:
            return report
        median = lower_median(partial(_risks, file), solved_rows)
    far = math.sqrt(median), math.sqrt(most)
    return replace(report, unchanged=kept / solved_rows, distances=far)


def _report_of_folder(shards: Shards, resumed: int, seconds: float) -> ScoreReport:
    found, gamma = shards.finished_tally(), shards.finished_run()["resolved"]["gamma"]
    statuses = found["status"]
    solved = sum(statuses.get(label, 0) for label in SOLVED)
    share = found["unchanged"] / solved if solved else None
    rows = int(found["rows"])
    return ScoreReport(shards.out, rows, resumed, statuses, gamma, seconds, unchanged=share)


def _frames(file: Any, columns: list[str]) -> Iterator[pd.DataFrame]:
    for batch in file.iter_batches(batch_size=4096, columns=columns):
        yield batch.to_pandas()


def _risks(file: Any) -> Iterator[NDArray[np.float64]]:
    for frame in _frames(file, ["status", "risk"]):
        yield frame["risk"][frame["status"].isin(SOLVED)].to_numpy("float64", copy=True)


def lower_median(read: Callable[[], Iterable[NDArray[np.float64]]], count: int) -> float:
    """Return the median of `count` numbers >= 0, which `read` gives in pieces, four times.

    Such numbers are in the order of their bits, so each pass settles 16 bits of the median by
    counting: exact, and in the same memory for any count.
    """
    rank, known = (count - 1) // 2, 0
    for shift in (48, 32, 16, 0):
        counts = np.zeros(1 << 16, dtype=np.int64)
        for values in read():
            bits = (values + 0.0).view(np.uint64) >> np.uint64(shift)  # + 0.0: without minus zero
            fits = bits[bits >> np.uint64(16) == known]
            counts += np.bincount((fits & np.uint64(0xFFFF)).astype(np.int64), minlength=1 << 16)
        below = counts.cumsum()
        digit = int(np.searchsorted(below, rank, side="right"))
        rank -= int(below[digit] - counts[digit])
        known = known << 16 | digit
    return float(np.array(known, dtype=np.uint64).view(np.float64))
