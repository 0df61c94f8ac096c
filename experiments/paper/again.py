"""How near a run of one's own comes to the published one: verdicts, and every number.

    make paper CHECKPOINTS=FOLDER CIFAR10=FOLDER FASHION_MNIST=FOLDER OUT=mine
    python -m experiments.paper.again mine

Two runs with the same networks and settings differ where a GPU adds up in another order, in TF32.
How much that matters is told in half-widths of the published 95 % intervals.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from credibly.errors import CrediblyError
from experiments.paper import settings
from experiments.paper.files import read_figure, read_json

PUBLISHED = Path("results/paper")


@dataclass(frozen=True)
class Pair:
    """One number of two runs, the first with its interval."""

    name: str
    published: tuple[float, float, float]
    again: float

    @property
    def away(self) -> float:
        """The difference in half-widths of the published interval."""
        middle, low, high = self.published
        if self.again == middle:
            return 0.0
        return 2 * abs(self.again - middle) / (high - low) if high > low else float("inf")


def pairs(published: Any, again: Any, name: str = "") -> Iterator[Pair]:
    """The numbers with intervals that both records have, by the way to them."""
    if isinstance(published, Mapping) and isinstance(again, Mapping):
        for key in published.keys() & again.keys():
            yield from pairs(published[key], again[key], f"{name}, {key}" if name else key)
    elif is_interval(published) and is_interval(again):
        yield Pair(name, tuple(published), again[0])
    elif isinstance(published, list) and isinstance(again, list):
        for place, (one, other) in enumerate(zip(published, again, strict=False)):
            yield from pairs(one, other, f"{name} {place}")


def is_interval(value: Any) -> bool:
    """Whether this is [number, low, high]."""
    if not isinstance(value, list) or len(value) != 3:
        return False
    return all(isinstance(number, int | float) for number in value) and (
        value[1] <= value[0] <= value[2]
    )


def unlike(published: Mapping[str, Any], again: Mapping[str, Any]) -> str | None:
    """What makes two figures incomparable."""
    ours, theirs = published["settings"], again["settings"]
    other = [key for key in ours if ours[key] != theirs.get(key)]
    return f"other settings ({', '.join(other)})" if other else None


def computed(record: Mapping[str, Any]) -> dict[str, Any]:
    """The results, without what was read from tables of attackers who know."""
    return {key: value for key, value in record["results"].items() if key != "adaptive"}


def compared(name: str, published: Path, again: Path) -> str:
    """A row of the table, or why there is none."""
    paths = [folder / f"{name}.json" for folder in (published, again)]
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        return f"| {name} | not there: {', '.join(missing)} | | | |"
    one, other = (read_figure(path) for path in paths)
    problem = unlike(one, other)
    if problem:
        return f"| {name} | {problem} | | | |"
    found = sorted(pairs(computed(one), computed(other)), key=lambda pair: pair.away)
    if not found:
        return f"| {name} | no number in common | | | |"
    within = sum(pair.away <= 1 for pair in found)
    middle, last = found[len(found) // 2], found[-1]
    note = "" if one["networks"] == other["networks"] else " (other networks)"
    return (
        f"| {name}{note} | {within} of {len(found)} | {middle.away:.2g} | {last.away:.2g} "
        f"| {last.name}: {last.published[0]:.4g}, {last.again:.4g} |"
    )


def verdicts(published: Path, again: Path) -> list[str]:
    """The verdicts that differ, and how many there are."""
    one, other = (
        {claim["claim"]: claim["verdict"] for claim in read_json(folder / "claims.json")["claims"]}
        for folder in (published, again)
    )
    both = [name for name in one if name in other]
    changed = [name for name in both if one[name] != other[name]]
    lines = [f"{len(both) - len(changed)} of {len(one)} verdicts are the same."]
    return lines + [f"- {name}: {one[name]}, and {other[name]} here" for name in changed]


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="experiments.paper.again", description=__doc__)
    parser.add_argument("folder", type=Path, help="figures of another run")
    parser.add_argument("--published", type=Path, default=PUBLISHED)
    given = parser.parse_args(arguments)
    try:
        lines = verdicts(given.published, given.folder)
        rows = [compared(name, given.published, given.folder) for name in settings.names()]
    except (CrediblyError, FileNotFoundError) as error:
        parser.exit(1, f"error: {error}\n")
    print("\n".join(lines))
    print("\n| figure | numbers within the published interval | differ by, half-widths: median "
          "| most | which: published, here |\n|---|---|---|---|---|")  # fmt: skip
    print("\n".join(rows))


if __name__ == "__main__":
    main()
