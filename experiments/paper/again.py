"""Compare a run with the published one: verdicts, and numbers with an interval.

    make paper CHECKPOINTS=FOLDER CIFAR10=FOLDER FASHION_MNIST=FOLDER OUT=mine
    python -m experiments.paper.again mine

Two runs with the same networks and settings differ because a GPU adds in another order, in TF32.
Differences are given in half-widths of the published 95 % intervals. The intervals are over images,
and both runs have the same images, so most numbers should be equal or nearly equal.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from credibly.errors import CrediblyError, FileFormatError
from experiments.paper import settings
from experiments.paper.adaptive import spaces
from experiments.paper.files import read_figure, read_json

PUBLISHED = Path("results/paper")
HEAD = (
    "| figure | numbers within the published interval | differ by, half-widths: median | most "
    "| which: published, here |\n|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Pair:
    """One number of two runs, the first with its interval; None if the other run has none."""

    name: str
    published: tuple[float, float, float]
    again: float | None

    @property
    def within(self) -> bool:
        """Whether it lies in the published interval, which need not be symmetric."""
        _, low, high = self.published
        return self.again is not None and low <= self.again <= high

    @property
    def away(self) -> float:
        """The difference in half-widths of the published interval."""
        middle, low, high = self.published
        if self.again is None:
            return math.inf
        if self.again == middle:
            return 0.0
        return 2 * abs(self.again - middle) / (high - low) if high > low else math.inf

    def words(self) -> str:
        """Format both numbers."""
        here = "none" if self.again is None else f"{self.again:.4g}"
        return f"{self.name}: {self.published[0]:.4g}, {here}"


def pairs(published: Any, again: Any, name: str = "") -> Iterator[Pair]:
    """Every published number with an interval, by the way to it, and what the other run has."""
    if is_interval(published):
        same = isinstance(again, list) and len(again) == len(published)
        yield Pair(name, tuple(published), again[0] if same else None)
    elif isinstance(published, Mapping):
        others = again if isinstance(again, Mapping) else {}
        for key, value in published.items():
            yield from pairs(value, others.get(key), f"{name}, {key}" if name else key)
    elif isinstance(published, list):
        rest = again if isinstance(again, list) else []
        for place, value in enumerate(published):
            other = rest[place] if place < len(rest) else None
            yield from pairs(value, other, f"{name} {title(value, place)}")


def title(value: Any, place: int) -> str:
    """Return the name of an item of a list, or its place if it has none."""
    named = isinstance(value, Mapping) and "name" in value
    return f"({value['name']})" if named else str(place)


def is_interval(value: Any) -> bool:
    """Return whether this is [number, low, high]."""
    if not isinstance(value, list) or len(value) != 3:
        return False
    return all(isinstance(number, int | float) for number in value) and (
        value[1] <= value[0] <= value[2]
    )


def unlike(published: Mapping[str, Any], again: Mapping[str, Any]) -> str | None:
    """Return why two figures cannot be compared, or None."""
    ours, theirs = published["settings"], again["settings"]
    other = [key for key in ours if ours[key] != theirs.get(key)]
    if other:
        return f"other settings ({', '.join(other)})"
    same = published.get("data_sha256") == again.get("data_sha256")
    return None if same else "other data"


def compared(name: str, published: Path, again: Path) -> tuple[str, list[Pair]]:
    """Return a row of the table and its numbers; without numbers the row says why."""
    paths = [folder / f"{name}.json" for folder in (published, again)]
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        return f"| {name} | not there: {', '.join(missing)} | | | |", []
    one, other = (read_figure(path) for path in paths)
    problem = unlike(one, other)
    if problem:
        return f"| {name} | {problem} | | | |", []
    found = sorted(pairs(spaces(one), spaces(other)), key=lambda pair: pair.away)
    if not found:
        return f"| {name} | no number has an interval | | | |", []
    within = sum(pair.within for pair in found)
    middle, last = found[len(found) // 2], found[-1]
    note = "" if one.get("networks") == other.get("networks") else " (other networks)"
    return (
        f"| {name}{note} | {within} of {len(found)} | {middle.away:.2g} | {last.away:.2g} "
        f"| {last.words()} |"
    ), found


def judged(folder: Path) -> tuple[str, dict[str, str]]:
    """Return the scale of the figures in a folder, and the verdict of each claim."""
    path = folder / "claims.json"
    record = read_json(path)
    try:
        return record["scale"], {claim["claim"]: claim["verdict"] for claim in record["claims"]}
    except (KeyError, TypeError) as error:
        message = f"{path} holds no claims of this command. Delete it and make the figures again."
        raise FileFormatError(message) from error


def verdicts(published: Path, again: Path) -> list[str]:
    """Return how many verdicts are the same, and those that are not."""
    (scale, one), (other_scale, other) = judged(published), judged(again)
    changed = [name for name in one if other.get(name) != one[name]]
    lines = [f"{len(one) - len(changed)} of {len(one)} verdicts are the same."]
    if scale != other_scale:
        lines.append(f"The scales differ: {scale}; and here {other_scale}.")
    return lines + [
        f"- {name}: {one[name]}, and {other.get(name, 'not judged')} here" for name in changed
    ]


def total(found: Sequence[Pair]) -> str:
    """Summarise all figures."""
    within, equal = sum(pair.within for pair in found), sum(not pair.away for pair in found)
    return (
        f"{within} of {len(found)} numbers with an interval lie within the published one, "
        f"{equal} are equal."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="experiments.paper.again",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="figures of another run")
    parser.add_argument("--published", type=Path, default=PUBLISHED, help=f"default {PUBLISHED}")
    given = parser.parse_args(arguments)
    try:
        lines = verdicts(given.published, given.folder)
        rows = [compared(name, given.published, given.folder) for name in settings.names()]
    except CrediblyError as error:
        parser.exit(1, f"error: {error}\n")
    except OSError as error:
        parser.exit(1, f"error: {error.filename} cannot be read ({error.strerror}). Make the "
                       "figures first, with make paper OUT=FOLDER, and pass that folder; "
                       "--published is the folder of the published ones.\n")  # fmt: skip
    lines.append(total([pair for _, found in rows for pair in found]))
    print("\n".join([*lines, "", HEAD, *(row for row, _ in rows)]))


if __name__ == "__main__":
    main()
