"""Tables of text, the same on pages and on the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from credibly.metrics.intervals import Interval


@dataclass(frozen=True)
class Table:
    """Rows of text, with names of the columns unless it lists facts."""

    rows: Sequence[Sequence[str]]
    columns: Sequence[str] = ()
    title: str = ""

    @staticmethod
    def of_facts(facts: Mapping[str, object], title: str = "") -> Table:
        """One row per name and value."""
        return Table([(name, as_text(value)) for name, value in facts.items()], title=title)


def as_text(value: object) -> str:
    """A setting as text, also a nested one; long lists are cut."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {as_text(part)}" for name, part in value.items()) or "-"
    if isinstance(value, list):
        more = ", ..." if len(value) > 12 else ""
        return ", ".join(map(as_text, value[:12])) + more or "-"
    return "-" if value is None or value == "" else str(value)


def number(value: float, digits: int = 3, factor: float = 1.0) -> str:
    """A number, or a dash for NaN and infinity."""
    return f"{factor * value:.{digits}f}" if math.isfinite(value) else "-"


def with_interval(interval: Interval, digits: int = 3, factor: float = 1.0) -> str:
    """A number with its interval."""
    low, high = (number(end, digits, factor) for end in (interval.low, interval.high))
    return f"{number(interval.value, digits, factor)} [{low}, {high}]"
