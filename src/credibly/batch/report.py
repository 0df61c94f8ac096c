"""The summary of a run over many rows."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from credibly.solve.status import Status
from credibly.types import CPU, shortest_repr

OUTSIDE = "outside bounds"
"""Status of a row that breaks the bounds itself; its profile is NaN."""

FAILED = "model failed"
"""Status of a row on which the model raises an exception; its profile is NaN."""

UNREADABLE = "unreadable file"
"""Status of a row whose file cannot be read; its profile is NaN."""

_SOLVED = [status.label for status in Status if status.usable]

_ADVICE = {status.label: status.advice for status in Status} | {
    OUTSIDE: "The row itself lies outside the bounds; its profile is NaN.",
    FAILED: "The model raised an exception on this row; its profile is NaN.",
    UNREADABLE: "The file could not be read as an image (damaged, cut short, or of a kind that "
    "Pillow does not know); its profile is NaN. Its path is the id: replace or remove the file.",
}


@dataclass(frozen=True)
class ScoreReport:
    """The summary of a run.

    Attributes:
        path: the Parquet file.
        rows: how many it has.
        resumed: rows that an earlier, interrupted run had finished.
        statuses: how many rows ended in which status.
        gamma: the number in use, also for 'auto'; None if the weights differ.
        seconds: time of this run.
        unchanged: share of the solved rows whose most credible class is the predicted one.
        distances: |x+ - x0| of the solved rows, the median and the largest.
    """

    path: Path
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
        return bool({*_SOLVED, Status.NO_GRADIENT.label} & {*self.statuses})

    def summary(self) -> str:
        """Return a few lines to print."""
        gamma = None if self.gamma is None else shortest_repr(self.gamma)
        weights = "weights per class" if gamma is None else f"gamma {gamma}"
        fresh = max(self.rows - self.resumed, 0)
        speed = f", {fresh / self.seconds:.3g} rows/s" if fresh and self.seconds > 0 else ""
        lines = [f"{self.rows} rows in {self.path}, {weights}"]
        for name, count in sorted(self.statuses.items(), key=lambda pair: -pair[1]):
            lines.append(f"  {count:>6} {name}: {_ADVICE[name]}")
        if self.unchanged is not None and self.distances is not None:
            median, most = self.distances
            lines.append(f"  class unchanged by the trade-off: {self.unchanged:.1%}")
            lines.append(f"  distance |x+ - x0|: median {median:.4g}, most {most:.4g}")
        kept = f"; {self.resumed} rows were finished before" if self.resumed else ""
        return "\n".join([*lines, f"  {self.seconds:.1f} s{speed}{kept}"])


def read_report(path: Path, *, resumed: int, seconds: float) -> ScoreReport:
    """Make the report of a finished file."""
    from pyarrow import parquet

    kept, statuses = 0, Counter[str]()
    risks = [torch.empty(0, dtype=torch.float64, device=CPU)]
    columns = ["status", "predicted", "most_credible", "risk"]
    with parquet.ParquetFile(path) as file:
        settings = json.loads(file.schema_arrow.metadata[b"settings"])
        for batch in file.iter_batches(batch_size=4096, columns=columns):
            frame = batch.to_pandas()
            statuses.update(frame["status"])
            solved = frame[frame["status"].isin(_SOLVED)]
            kept += int((solved["predicted"] == solved["most_credible"]).sum())
            risks.append(torch.from_numpy(solved["risk"].to_numpy("float64", copy=True)))
    distance, rows = torch.cat(risks).sqrt(), statuses.total()
    report = ScoreReport(
        path, rows, resumed, dict(statuses), settings["resolved"]["gamma"], seconds
    )
    if not len(distance):
        return report
    far = float(distance.median()), float(distance.max())
    return replace(report, unchanged=kept / len(distance), distances=far)
