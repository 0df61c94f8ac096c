"""The paper's claims against the measured numbers, each judged by one stated rule."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from experiments.paper import settings
from experiments.paper.adaptive import NOT_RUN, label
from experiments.paper.cache import say
from experiments.paper.files import read_figure, write_json

RULE = (
    "A claim is one or more statements that a number lies in a region: a bound of the paper, or "
    "its number with a tolerance, both given. A statement is true if our number lies there (where "
    "the region is a bound: if the whole 95 % interval does), false if the number and the whole "
    "interval lie outside, and open otherwise. A reading (space, number "
    "of images) holds if all statements are true, fails if none is true and one is false, is open "
    "if all are open, and holds partly otherwise. The claim is reproduced if every reading holds, "
    "refuted if none holds, not even partly, and one fails, cannot be decided if no reading was "
    "measured or every one is open, and partly reproduced otherwise."
)

State = Literal["true", "false", "open"]
Reading = Literal["holds", "fails", "open", "partly"]
Verdict = Literal["reproduced", "partly", "refuted", "cannot be decided"]
Value = Sequence[float | None]


@dataclass(frozen=True)
class Statement:
    """A number with its interval, and the region where the paper puts it.

    Attributes:
        what: a description.
        value: [number, low, high]; None if not defined.
        least: lower end of the region.
        most: upper end.
        strict: whether the ends are outside the region.
    """

    what: str
    value: Value
    least: float = -math.inf
    most: float = math.inf
    strict: bool = False

    def state(self) -> State:
        """True, false or open, by the rule."""
        middle, low, high = self.value
        if middle is None:
            return "open"
        low, high = (middle if end is None else end for end in (low, high))
        bound = math.isinf(self.least) or math.isinf(self.most)
        must = (middle, low, high) if bound else (middle,)
        if all(self._inside(number) for number in must):
            return "true"
        before = max(middle, high) < self.least or (self.strict and high <= self.least)
        after = min(middle, low) > self.most or (self.strict and low >= self.most)
        return "false" if (before or after) and not self._inside(middle) else "open"

    def _inside(self, number: float) -> bool:
        if self.strict:
            return self.least < number < self.most
        return self.least <= number <= self.most

    def record(self) -> dict[str, Any]:
        """As JSON holds it."""
        ends = [None if math.isinf(v) else v for v in (self.least, self.most)]
        return {"what": self.what, "value": list(self.value), "region": ends, "is": self.state()}


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and our numbers in each reading of it."""

    name: str
    words: str
    number: str
    readings: Mapping[str, Sequence[Statement]]
    adaptive: Mapping[str, Any] | None = None
    """For claims of robustness: space -> accuracy under adaptive attacks, or None."""

    def record(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "claim": self.name,
            "words": self.words,
            "paper": self.number,
            "verdict": verdict([judged(found) for found in self.readings.values()]),
            "readings": {
                name: {"is": judged(found), "statements": [s.record() for s in found]}
                for name, found in self.readings.items()
            },
        } | ({} if self.adaptive is None else {"adaptive": dict(self.adaptive)})


def judged(statements: Sequence[Statement]) -> Reading:
    """Judge a reading by its statements."""
    states = [statement.state() for statement in statements]
    if all(state == "true" for state in states):
        return "holds"
    if "true" not in states:
        return "fails" if "false" in states else "open"
    return "partly"


def verdict(readings: Sequence[Reading]) -> Verdict:
    """Judge a claim by its readings."""
    if not readings or all(reading == "open" for reading in readings):
        return "cannot be decided"
    if all(reading == "holds" for reading in readings):
        return "reproduced"
    if all(reading in ("fails", "open") for reading in readings):
        return "refuted"
    return "partly"


def is_small(record: Mapping[str, Any]) -> bool:
    """Return whether a figure is of the small scale, with the embedded network."""
    return bool(record["settings"]["dataset"] == "embedded")


def write(out: Path) -> None:
    """Write claims.json from the figures in a folder, and print the table."""
    from experiments.paper.statements import all_claims, nearest_readings

    records = {
        name: read_figure(out / f"{name}.json")
        for name in settings.names()
        if (out / f"{name}.json").exists()
    }
    if not records:
        return
    mixed = mixed_networks(records)
    small = any(is_small(record) for record in records.values())
    found = [claim.record() for claim in all_claims(records)]
    scale = "small, with the embedded network: it says nothing about the paper" if small else "full"
    nearest = nearest_readings(records)
    everything = {"scale": scale, "rule": RULE, "claims": found, "nearest_readings": nearest}
    if mixed:
        everything["mixed_networks"] = mixed
    write_json(out / "claims.json", everything)
    say(markdown(found, scale))
    for name, figures in mixed.items():
        say(f"\nDifferent networks are called {name}: {', '.join(figures)}.")
    for row in nearest[:1]:
        say(
            f"\nNearest to the paper's numbers: {row['space']}, {row['reading']}, "
            f"{100 * row['distance']:.1f} points away in sum."
        )


def mixed_networks(records: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return names that figures use for different networks, with figures and SHA-256."""
    seen: dict[str, dict[str, str]] = {}
    for figure, record in records.items():
        for name, sha256 in record.get("networks", {}).items():
            seen.setdefault(name, {})[figure] = sha256
    return {
        name: [f"{figure} ({sha256[:8]})" for figure, sha256 in figures.items()]
        for name, figures in seen.items()
        if len(set(figures.values())) > 1
    }


def markdown(found: Sequence[Mapping[str, Any]], scale: str) -> str:
    """Format the claims as a table."""
    lines = [f"Scale: {scale}.", "", "| claim | paper | measured | verdict |", "|---|---|---|---|"]
    for claim in found:
        cells = "<br>".join(
            [
                *(f"{name}: {_cell(reading)}" for name, reading in claim["readings"].items()),
                *(_known(space, row) for space, row in claim.get("adaptive", {}).items()),
            ]
        )
        lines.append(
            f"| {_safe(claim['words'])} | {claim['paper']} | {_safe(cells) or 'not measured'} "
            f"| {claim['verdict']} |"
        )
    return "\n".join(lines)


def _safe(text: str) -> str:
    """Escape what would end a cell."""
    return text.replace("|", "\\|")


def _cell(reading: Mapping[str, Any]) -> str:
    parts = [f"{s['what']} {_words(s['value'])} ({s['is']})" for s in reading["statements"]]
    return f"{'; '.join(parts)} → {reading['is']}"


def _known(space: str, row: Mapping[str, Any] | None) -> str:
    """Format the accuracy under adaptive attacks."""
    if row is None:
        return f"{space}, {NOT_RUN} and eps"
    words = _words(row["accuracy"])
    return f"{space}, {label([row])}: c+ keeps {words} of {row['images']} images"


def _words(value: Value) -> str:
    middle, low, high = value
    if middle is None:
        return "undefined"
    if low is None or high is None or low == high:
        return f"{middle:.3g}"
    return f"{middle:.3g} [{low:.3g}, {high:.3g}]"
