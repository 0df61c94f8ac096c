"""What is counted of the rows of a shard, so that nobody has to read them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from credibly.solve.status import Status

OUTSIDE = "outside bounds"
"""Status of a row that breaks the bounds itself; its profile is NaN."""

FAILED = "model failed"
"""Status of a row on which the model raises an exception; its profile is NaN."""

UNREADABLE = "unreadable file"
"""Status of a row whose file cannot be read; its profile is NaN."""

JUDGED = "judged"
"""Status of a row with a verdict."""

SOLVED = frozenset(status.label for status in Status if status.usable)
"""Statuses of rows whose numbers are a result."""

UNUSABLE = frozenset(
    {OUTSIDE, FAILED, UNREADABLE, Status.NON_FINITE_INPUT.label, Status.NON_FINITE_MODEL.label}
)
"""Statuses of rows that could not be used."""

Tally = Mapping[str, Any]


def tally(table: Any) -> dict[str, Any]:
    """Count the statuses, verdicts and costs in the table of a shard, as JSON can hold it."""
    names = [name for name in _COUNTED if name in table.column_names]
    frame = table.select(names).to_pandas()
    found: dict[str, Any] = {"rows": len(frame), "passes": float(frame["passes"].sum())}
    for name in ("status", "verdict"):
        if name in frame:
            found[name] = {str(k): int(n) for k, n in frame[name].value_counts().items()}
    if "risk" in frame:
        solved = frame[frame["status"].isin(SOLVED)]
        found["unchanged"] = int((solved["predicted"] == solved["most_credible"]).sum())
        found["largest risk"] = float(solved["risk"].max()) if len(solved) else 0.0
    return found


_COUNTED = ("status", "verdict", "passes", "risk", "predicted", "most_credible")


def add_up(tallies: Iterable[Tally]) -> dict[str, Any]:
    """Return the tally of all shards."""
    total: dict[str, Any] = {"rows": 0, "passes": 0.0}
    for one in tallies:
        for name, value in one.items():
            if isinstance(value, Mapping):
                total[name] = dict(Counter(total.get(name, {})) + Counter(value))
            elif name == "largest risk":
                total[name] = max(total.get(name, 0.0), value)
            else:
                total[name] = total.get(name, 0) + value
    return total


def unusable(one: Tally) -> int:
    """Return how many rows of a tally could not be used."""
    return sum(count for name, count in one["status"].items() if name in UNUSABLE)
