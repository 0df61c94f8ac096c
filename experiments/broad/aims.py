"""What was aimed at, and what came out on the networks that confirm."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean

from experiments.broad.summary import KNOWS, UNITS, Row, clean, damaged, sets_of

EXPENSIVE = ("ensemble", "test-time augmentation", "Monte-Carlo dropout")
"""Methods that run the network more than once, or other networks: not single scores."""


def aims(rows: list[Row]) -> str:
    """One line per aim that a table of means does not show."""
    return "\n".join(f"- {line}" for line in (*_failures(rows), *_alarms(rows), *_attacks(rows)))


def _failures(rows: list[Row]) -> Iterator[str]:
    found = [row for row in rows if clean(row, "Judge")]
    ratios = [clean(row, "Judge")[0] for row in found]
    within = sum(ratio <= 1.05 for ratio in ratios)
    hurt = mean(damaged(row, "Judge")[0] for row in found)
    yield (
        f"AURC over softmax: mean {mean(ratios):.3f}, at most 1.05 on {within} of {len(ratios)}, "
        f"largest {max(ratios):.3f}; damaged {hurt:.3f}"
    )
    gaps = {
        row["name"]: clean(row, "Judge, with labels")[0] / min(_singles(row).values())
        for row in found
    }
    near = sum(gap <= 1.03 for gap in gaps.values())
    worst = max(gaps, key=gaps.__getitem__)
    yield (
        f"with labels within 1.03 of the best single score in hindsight on {near} of {len(gaps)}; "
        f"worst {gaps[worst]:.2f} ({worst})"
    )


def _singles(row: Row) -> dict[str, float]:
    return {
        name: value
        for name, value in row["failures"]["clean"].items()
        if not name.startswith("Judge") and name not in EXPENSIVE
    }


def _alarms(rows: list[Row]) -> Iterator[str]:
    tested = sum(row["test"] for row in rows)
    alarms = sum(row["caught"]["clean"]["Judge"][0] * row["test"] for row in rows)
    yield f"false alarms at 1 %: {alarms / tested:.2%} of {tested} inputs"
    for unit in UNITS:
        caught = [row["caught"][unit]["Judge"][0] for row in rows if unit in row["caught"]]
        if caught:
            yield (
                f"a column {unit}: mean {mean(caught):.2f}, least {min(caught):.2f} of "
                f"{len(caught)} networks"
            )


def _attacks(rows: list[Row]) -> Iterator[str]:
    for row in rows:
        kinds = [*sets_of(row, "attack"), *sets_of(row, "knows")]
        told = [
            f"{kind} {row['caught'][kind]['Judge'][0]:.0%} caught, "
            f"{row['fooled'][kind]:.0%} trusted though wrong"
            for kind in kinds
        ]
        if any(kind.startswith(KNOWS) for kind in kinds):
            yield f"{row['name']}: {'; '.join(told)}"
