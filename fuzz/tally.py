"""Cases that can be repeated by their number, and what was counted and found."""

from __future__ import annotations

import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
LISTED = 4
"""Cases that are printed of each kind of find."""

PARTS = ("samples", "files", "kills", "threads", "disks")


@dataclass(frozen=True)
class Case:
    """One thing to try. Its name is all that is needed to try it again."""

    part: str
    seed: int
    number: int

    def __str__(self) -> str:
        return f"{self.part}:{self.seed}:{self.number}"

    @staticmethod
    def named(name: str) -> Case:
        """The case of a name such as 'files:0:17'."""
        part, seed, number = name.split(":")
        return Case(part, int(seed), int(number))

    def random(self) -> np.random.Generator:
        """Everything that a case draws comes from here."""
        return np.random.default_rng([PARTS.index(self.part), self.seed, self.number])


@dataclass(frozen=True)
class Plan:
    """How long to look, from which seed on; or the one case to repeat.

    Attributes:
        quick: only what needs no large library, for the slice in the test suite.
        keep: where a repeated case leaves its files.
    """

    seed: int = 0
    seconds: float = 10.0
    only: int | None = None
    quick: bool = False
    keep: Path | None = None

    def cases(self, part: str) -> Iterator[Case]:
        """Cases until the time is up; at least one."""
        if self.only is not None:
            yield Case(part, self.seed, self.only)
            return
        number, end = 0, time.monotonic() + self.seconds
        while number == 0 or time.monotonic() < end:
            yield Case(part, self.seed, number)
            number += 1


@dataclass
class Tally:
    """What a part tried and found; finds of the same kind are listed once, with their cases."""

    part: str
    counts: Counter[str] = field(default_factory=Counter)
    finds: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0

    def find(self, case: Case, what: str, where: str = "") -> None:
        """Note a find; `what` tells its kind."""
        kind = re.sub(r"\d{2,}|(?<![\w:])\d", "#", what)  # numbers do not make another kind
        self.finds.setdefault(kind, []).append(f"{case} {where}".strip())

    @property
    def found(self) -> int:
        """How many cases broke something."""
        return sum(map(len, self.finds.values()))

    def lines(self) -> list[str]:
        """A line of counts, then one per kind of find."""
        listed = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        lines = [f"{self.part:8} {self.seconds:6.1f} s  {self.found} finds; {listed}"]
        for what, cases in sorted(self.finds.items(), key=lambda pair: -len(pair[1])):
            lines.append(f"  {len(cases)} x {what}")
            lines += [f"      {case}" for case in cases[:LISTED]]
            if len(cases) > LISTED:
                lines.append(f"      and {len(cases) - LISTED} more")
        return lines


def kind_of(error: BaseException) -> str:
    """An error in a line: its type, its text, and the last line of the package it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "credibly" in Path(f.filename).parts]
    place = "/".join(Path(own[-1].filename).parts[-2:]) if own else "-"
    text = " ".join(str(error).split())
    return f"{type(error).__name__} in {place}: {text[:110]}"


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
