"""What all networks come to: a table per role, one row per method."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean
from typing import Any

Row = dict[str, Any]
Column = Callable[[Row, str], list[float]]

UNITS = ("x10", "x100", "x0.01")
NEAR = ("left-out classes", "left-out sections")
ATTACKS = ("PGD", "DeepFool", "Carlini")
KNOWS = "who knows"


def read(folder: Path) -> list[Row]:
    """The files of all networks, by name."""
    return [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]


def sets_of(row: Row, kind: str) -> list[str]:
    """The names of the sets of a kind: far, near, unit, attack or knows."""
    found: dict[str, list[str]] = {"far": [], "near": [], "unit": [], "attack": [], "knows": []}
    for name in row["caught"]:
        if name in UNITS:
            found["unit"].append(name)
        elif name in NEAR:
            found["near"].append(name)
        elif name.startswith(KNOWS):
            found["knows"].append(name)
        elif name.startswith(ATTACKS):
            found["attack"].append(name)
        elif name != "clean":
            found["far"].append(name)
    return found[kind]


def catch(kind: str, rate: int) -> Column:
    """The mean catch rate over the sets of a kind; 0 is 1 % of false alarms, 1 is 5 %."""

    def column(row: Row, method: str) -> list[float]:
        values = [
            row["caught"][name][method][rate]
            for name in sets_of(row, kind)
            if method in row["caught"][name]
        ]
        return [mean(values)] if values else []

    return column


def auroc(kind: str) -> Column:
    """The mean AUROC over the sets of a kind."""

    def column(row: Row, method: str) -> list[float]:
        names = [name for name in sets_of(row, kind) if method in row["auroc"].get(name, {})]
        return [mean(row["auroc"][name][method] for name in names)] if names else []

    return column


def damaged(row: Row, method: str) -> list[float]:
    """The mean AURC, over that of softmax, of damaged sets."""
    sets = [v for name, v in row["failures"].items() if name.startswith("damaged")]
    values = [found[method] for found in sets if method in found]
    return [mean(values)] if values else []


def clean(row: Row, method: str) -> list[float]:
    """AURC over that of softmax on ordinary inputs."""
    found = row["failures"].get("clean", {})
    return [found[method]] if method in found else []


def augrc(row: Row, method: str) -> list[float]:
    """AUGRC over that of softmax on ordinary inputs, from the AUROC of failures."""
    found = row["failures"].get("failure AUROC", {})
    if method not in found:
        return []
    right = row["accuracy"]
    own, other = (
        (1 - found[name]) * right * (1 - right) + (1 - right) ** 2 / 2
        for name in (method, "max softmax")
    )
    return [own / other]


def joint(place: int) -> Column:
    """DS-F1 (0) or DS-AURC (1)."""
    return lambda row, method: [row["joint"][method][place]] if method in row["joint"] else []


def false_alarms(row: Row, method: str) -> list[float]:
    """Alarms among ordinary inputs at 1 % asked for."""
    found = row["caught"]["clean"]
    return [found[method][0]] if method in found else []


def price(row: Row, method: str) -> list[float]:
    """Passes per ordinary input."""
    return [row["price"][method]] if method in row["price"] else []


COLUMNS: dict[str, Column] = {
    "passes": price, "AURC clean": clean, "AUGRC clean": augrc, "AURC damaged": damaged,
    "false alarms": false_alarms,
    "far 1 %": catch("far", 0), "far 5 %": catch("far", 1), "far AUROC": auroc("far"),
    "near 1 %": catch("near", 0), "near AUROC": auroc("near"), "wrong unit": catch("unit", 0),
    "attacked 1 %": catch("attack", 0), "who knows 1 %": catch("knows", 0),
    "DS-F1": joint(0), "DS-AURC": joint(1),
}  # fmt: skip


def methods_of(rows: Iterable[Row]) -> list[str]:
    """All methods, in the order of the first network that has them."""
    found: dict[str, None] = {}
    for row in rows:
        found |= dict.fromkeys((*row["caught"]["clean"], *row["failures"].get("clean", {})))
    return list(found)


def cell(column: Column, rows: list[Row], method: str) -> tuple[float, int] | None:
    """The mean over the networks that have a value, and how many these are."""
    values = [value for row in rows for value in column(row, method)]
    return (mean(values), len(values)) if values else None


def table(rows: list[Row]) -> str:
    """A row per method; an asterisk marks means over fewer networks than max softmax has."""
    whole = {name: cell(column, rows, "max softmax") for name, column in COLUMNS.items()}
    lines = [f"| method | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for method in methods_of(rows):
        cells = []
        for name, column in COLUMNS.items():
            found, most = cell(column, rows, method), whole[name]
            few = found is not None and most is not None and found[1] < most[1]
            cells.append("" if found is None else f"{found[0]:.3f}{'*' if few else ''}")
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def networks(rows: list[Row]) -> str:
    """A row per network: how the Judge does there, beside energy and neighbours."""
    heads = (
        "network", "classes", "right", "agreement", "AURC clean", "damaged", "false alarms",
        "far 1 %", "energy", "neighbours", "passes",
    )  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        values = [
            clean(row, "Judge"), damaged(row, "Judge"), false_alarms(row, "Judge"),
            catch("far", 0)(row, "Judge"), catch("far", 0)(row, "energy"),
            catch("far", 0)(row, "nearest neighbours"), price(row, "Judge"),
        ]  # fmt: skip
        cells = [f"{value[0]:.3f}" if value else "" for value in values]
        start = f"{row['name']} | {row['classes']} | {row['accuracy']:.3f} | {row['agreement']:.2f}"
        lines.append(f"| {start} | {' | '.join(cells)} |")
    return "\n".join(lines)


SHARED = ("far 1 %", "DS-F1", "DS-AURC", "AURC clean", "AURC damaged")


def shared(rows: list[Row]) -> str:
    """Methods that some networks lack, each beside the Judge on those that have it."""
    lines = [f"| method | networks | {' | '.join(SHARED)} |", "|---" * (2 + len(SHARED)) + "|"]
    for method in methods_of(rows):
        some = [row for row in rows if price(row, method)]
        if len(some) < len(rows):
            for name in (method, "Judge"):
                found = [cell(COLUMNS[column], some, name) for column in SHARED]
                values = ["" if value is None else f"{value[0]:.3f}" for value in found]
                lines.append(f"| {name} | {len(some)} | {' | '.join(values)} |")
    return "\n".join(lines)


def attacks(rows: list[Row]) -> str:
    """Every attack: caught at 1 % / trusted with a wrong class, in per cent."""
    heads = (*ATTACKS, KNOWS)
    lines = [f"| network | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    for row in rows:
        cells = []
        for head in heads:
            names = [name for name in row["fooled"] if name.startswith(head)]
            told = [_told(row, name) for name in names]
            strengths = [f"{name.split()[-1]}: " if " " in name else "" for name in names]
            cells.append(", ".join(map("".join, zip(strengths, told, strict=True))))
        if any(cells):
            lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _told(row: Row, name: str) -> str:
    return f"{100 * row['caught'][name]['Judge'][0]:.0f} / {100 * row['fooled'][name]:.0f}"


def with_hidden_layer(rows: list[Row]) -> list[Row]:
    """The networks on which every baseline of features can be tried."""
    return [row for row in rows if "Mahalanobis" in row["caught"]["clean"]]


def summary(rows: list[Row]) -> str:
    """Both tables for each role, and the second for networks with a last hidden layer alone."""
    parts = []
    for role in ("choose", "confirm"):
        some = [row for row in rows if row["role"] == role]
        if some:
            parts += [f"## Networks that {role}: {len(some)}", networks(some), table(some)]
            deep = with_hidden_layer(some)
            if deep:
                parts += [f"### Of these, with a last hidden layer: {len(deep)}", table(deep)]
                parts += ["### Methods that some of them lack", shared(deep)]
                parts += ["### Attacks", attacks(deep)]
    return "\n\n".join(parts)
