"""Print tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def print_table(
    title: str, corner: str, columns: Iterable[str], rows: Mapping[str, Sequence[str]]
) -> None:
    """Print a title, and a table of row name -> cells."""
    names = list(columns)
    print(f"\n{title}")
    print(f"| {' | '.join([corner, *names])} |\n|---|{'---|' * len(names)}")
    for name, cells in rows.items():
        print(f"| {' | '.join([name, *cells])} |")


def with_interval(numbers: Sequence[float], factor: float) -> str:
    """Format a difference and the ends of its interval, each times a factor."""
    value, low, high = (factor * number for number in numbers)
    return f"{value:+.2f} ({low:+.2f} to {high:+.2f})"
