"""Accuracies under adaptive attacks, shown with the figures of attacks that ignore the profile.

`python -m experiments.adaptive --tables FOLDER --json results/adaptive-NAME.json` writes the files
that are read here. A table matches a figure if the network's SHA-256, the space, gamma and eps are
the same. It is added when a figure is assembled; no cached stage depends on it.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from credibly.errors import FileFormatError, InvalidArgumentError
from experiments.paper.cache import say
from experiments.paper.files import read_json
from experiments.paper.measures import number
from experiments.paper.settings import Figure

PATTERN = "adaptive-*.json"
KINDS = ("accuracy", "filtering", "readings", "seeds")
"""Figures of robustness; of several networks, the first one is used."""

ADAPTIVE = frozenset({"A2", "A3", "A4", "A5"})
"""Attacks without which a table does not count as adaptive."""

NOTE_WIDTH = 150
NOT_RUN = "adaptive attacks: not run for this network"
Numbers = Mapping[str, Any]
BySpace = Mapping[str, Mapping[str, Numbers | None]]


@dataclass(frozen=True)
class Table:
    """The most credible class (system B) under all attacks, from one file.

    Attributes:
        file: name of the file.
        network: the SHA-256 of the network.
        space: units of gamma and eps.
        gamma: of the deployed profile.
        solver: of the deployed profile, as text.
        images: how many were attacked.
        worst: eps -> share of images that any attack breaks, with an interval.
        attacks: eps -> numbers of the attacks that were run ('A0' to 'A8').
        bare: the same as `worst` for the model itself, under the attacks that apply to it.
    """

    file: str
    network: str
    space: str
    gamma: float
    solver: str
    images: int
    worst: Mapping[str, Mapping[str, float]]
    attacks: Mapping[str, Sequence[str]]
    bare: Mapping[str, Mapping[str, float]]

    def matches(self, network: str, space: str, gamma: float, eps: str) -> bool:
        """Return whether it has the same network, space, gamma and eps, and adaptive attacks."""
        same = (self.network, self.space) == (network, space) and eps in self.worst
        if not (same and math.isclose(self.gamma, gamma)):
            return False
        missing = sorted(ADAPTIVE - set(self.attacks[eps]))
        if missing:
            say(f"{self.file}, eps {eps}: ignored, because {', '.join(missing)} was not run")
        return not missing

    def left(self, eps: str) -> Numbers:
        """Return the accuracy that is left, with its interval and its attacks."""
        return {
            "accuracy": _kept(self.worst[eps]),
            "bare model": _kept(self.bare[eps]) if eps in self.bare else None,
            "images": self.images,
            "attacks": list(self.attacks[eps]),
            "solver": self.solver,
            "file": self.file,
        }


def _kept(broken: Mapping[str, float]) -> list[float | None]:
    """Turn a share of broken images into an accuracy, with its interval."""
    return [number(1 - broken[end]) for end in ("rate", "high", "low")]


def found_files(given: Sequence[Path] | None, default: Path = Path("results")) -> list[Path]:
    """Return the given files, those of the given folders, or the default ones."""
    found: list[Path] = []
    for path in [default] if given is None else given:
        if not path.exists() and given is not None:
            raise InvalidArgumentError(
                "adaptive", expected="files or folders", got=str(path), remedy="Check the name."
            )
        found += sorted(path.glob(PATTERN)) if path.is_dir() else [path] * path.exists()
    return found


def read_tables(paths: Sequence[Path]) -> list[Table]:
    """Read every table that names its network and space; print a line for other files."""
    found: list[Table] = []
    for path in paths:
        try:
            record = read_json(path)
        except FileFormatError:
            say(f"{path.name} is not JSON: ignored")
            continue
        named = isinstance(record, dict) and record.get("network_sha256") and record.get("space")
        if not named:
            say(f"{path.name} does not name its network's SHA-256 and space: ignored")
            continue
        try:
            found += [
                _table(path.name, record, table) for table in record["tables"] if _is(table, "B")
            ]
        except (KeyError, TypeError, ValueError) as error:
            say(f"{path.name} is not an adaptive table ({type(error).__name__}: {error}): ignored")
    return found


def _table(file: str, record: Mapping[str, Any], table: Mapping[str, Any]) -> Table:
    attacks: dict[str, list[str]] = {}
    for eps in table["worst"]:
        run = [name for name, row in table["attacks"].items() if row.get(eps) is not None]
        attacks[eps] = sorted({kind for name in run for kind in re.findall(r"A\d", name)})
    return Table(
        file,
        record["network_sha256"],
        record["space"],
        float(record["gamma"]),
        record["systems"]["solver"],
        int(table["images"]),
        _worst(table),
        attacks,
        _worst(next((t for t in record["tables"] if _is(t, "b")), {"worst": {}})),
    )


def _is(table: Mapping[str, Any], system: str) -> bool:
    return (table["system"], table["norm"]) == (system, "linf")


def _worst(table: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    return {
        eps: {end: float(row[end]) for end in ("rate", "low", "high")}
        for eps, row in table["worst"].items()
    }


def accuracies(tables: Sequence[Table], figure: Figure, network: str) -> BySpace:
    """Return space -> eps -> what is left, from the largest run; None if nothing was run."""
    found: dict[str, dict[str, Numbers | None]] = {}
    for space in figure.spaces:
        for eps in (f"{value:g}" for value in figure.eps):
            same = [t for t in tables if t.matches(network, space, figure.gammas[0], eps)]
            best = max(same, key=lambda t: (t.images, t.worst[eps]["rate"]), default=None)
            found.setdefault(space, {})[eps] = None if best is None else best.left(eps)
    return found


def spaces(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of a figure by space, without those of adaptive attacks."""
    return {name: numbers for name, numbers in record["results"].items() if name != "adaptive"}


def of_space(record: Mapping[str, Any], space: str) -> Mapping[str, Numbers | None]:
    """Return by eps what adaptive attacks leave; None if nothing was run."""
    known: Mapping[str, Numbers | None] = record["results"].get("adaptive", {}).get(space, {})
    return {eps: known.get(eps) for eps in (f"{e:g}" for e in record["settings"]["eps"])}


def name_attacks(rows: Sequence[Numbers]) -> str:
    """Return the attacks of all rows, such as 'A0-A8' or 'A0, A2-A8'."""
    common = sorted(set.intersection(*(set(row["attacks"]) for row in rows)))
    runs: list[list[int]] = []
    for place in (int(name[1:]) for name in common):
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return ", ".join(f"A{r[0]}" + f"-A{r[-1]}" * (len(r) > 1) for r in runs)


def label(rows: Sequence[Numbers]) -> str:
    """Return the text of a legend."""
    return f"adaptive attacks (worst of {name_attacks(rows)})"


def count_images(rows: Sequence[Numbers]) -> str:
    """Return '100 images', or a range."""
    counts = sorted({row["images"] for row in rows})
    return f"{'-'.join(str(c) for c in dict.fromkeys((counts[0], counts[-1])))} images"


def notes(record: Mapping[str, Any]) -> str:
    """Return a line per space: the accuracy that is left, or that nothing was run."""
    every = {space: of_space(record, space) for space in spaces(record)}
    if not any(row for rows in every.values() for row in rows.values()):
        return NOT_RUN
    first, *more = record["settings"].get("networks", [""])
    whose = f"{first}, " if more else ""
    lines = (whose + _note(space, rows) for space, rows in every.items())
    return "\n".join(textwrap.fill(line, NOTE_WIDTH) for line in lines)


def _note(space: str, rows: Mapping[str, Numbers | None]) -> str:
    known = {eps: row for eps, row in rows.items() if row is not None}
    if not known:
        return f"{space}: {NOT_RUN}"
    some = list(known.values())
    at = ", ".join(known)
    kept = ", ".join(_percent(row["accuracy"]) for row in some)
    text = f"{space}, {label(some)}, {count_images(some)}, ε = {at}: c⁺ is right on {kept}"
    if all(row.get("bare model") for row in some):
        text += f"; the bare model on {', '.join(_percent(row['bare model']) for row in some)}"
    left = ", ".join(f"ε = {eps}" for eps in rows if eps not in known)
    return text + f"; not run at {left}" * bool(left)


def _percent(value: Sequence[float]) -> str:
    middle, low, high = (100 * v for v in value)
    return f"{middle:.0f}\N{NO-BREAK SPACE}%\N{NO-BREAK SPACE}({low:.0f}-{high:.0f})"
