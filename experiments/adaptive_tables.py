"""Tables of the cells that experiments/adaptive.py computed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

import credibly as cr
from credibly.errors import InvalidArgumentError
from experiments.adaptive_attacks import BLACK_BOX, LARGE, LONGER, RADII, SYSTEMS
from experiments.adaptive_work import Folder, read

TITLES = {
    "b": "b: the bare model is wrong",
    "B": "B: the most credible class is wrong",
    "A": "A: the model's class is wrong, and answered",
    "T": "T: the model's class is wrong, and not flagged as tampered with",
}
_AIMED = re.compile(r"A[2-5]|on the system|profile left out")
"""Matches attacks on one system. The others attack the bare model, or all systems (A6)."""

_SUFFIX = f", {LONGER} times the steps"
Cell = dict[str, Any]


@dataclass(frozen=True)
class Block:
    """The cells of one system and norm."""

    system: str
    norm: str
    clean: Cell
    cells: Mapping[tuple[str, float], Cell]
    nearest: Mapping[str, Cell]
    space: str = "pixel"

    @property
    def large(self) -> float:
        """The eps of the sanity checks."""
        return LARGE[self.space][self.norm]

    @property
    def radii(self) -> list[float]:
        """Every eps of the table, without that of the sanity checks."""
        return sorted({eps for _, eps in self.cells if eps != self.large})

    @property
    def attacks(self) -> list[str]:
        """The rows, sorted by the number of the attack."""
        names = {name for name, eps in self.cells if eps in self.radii and _SUFFIX not in name}
        return sorted(names, key=lambda name: (name.partition("(")[2], name))

    @property
    def title(self) -> str:
        """What success means, and whether no attack was aimed at the system."""
        aimed = self.system == "b" or any(_AIMED.search(name) for name, _ in self.cells)
        return TITLES[self.system] + ("" if aimed else "; no attack was aimed at it")

    def worst(self, eps: float) -> list[bool]:
        """Return for each image whether anything breaks it, the clean image included.

        Inputs of the minimum-norm attacks count if they lie inside the ball.
        """
        found = [cell["success"] for (name, radius), cell in self.cells.items() if radius == eps]
        found.append(self.clean["success"])
        for cell in self.nearest.values():
            pairs = zip(cell["success"], cell["sizes"][self.norm], strict=True)
            found.append([bit and size <= eps for bit, size in pairs])
        return [any(bits) for bits in zip(*found, strict=True)]


def blocks(out: Path) -> list[Block]:
    """Return every system and norm that has cells."""
    cells = _cells(out)
    if not cells:
        raise InvalidArgumentError(
            "tables",
            expected="a folder with cells",
            got=str(out),
            remedy="Compute some first: python -m experiments.adaptive --out FOLDER.",
        )
    found = []
    space = space_of(cells, out)
    for norm in RADII:
        for system in SYSTEMS:
            own = [cell for cell in cells if cell["system"] == system]
            inside = {(c["attack"], c["eps"]): c for c in own if c["norm"] == norm}
            clean = [c for c in own if c["attack"] == "clean"]
            if inside and clean:
                nearest = {c["attack"]: c for c in own if "(nearest)" in c["attack"]}
                found.append(Block(system, norm, clean[0], inside, nearest, space))
    return found


def _cells(out: Path) -> list[Cell]:
    return [read(path) for path in sorted((out / "cells").glob("*.json"))]


def space_of(cells: Sequence[Cell], out: Path) -> str:
    """Return the space that all cells of a folder are of."""
    found = {cell["settings"]["space"] for cell in cells}
    if len(found) > 1:
        raise InvalidArgumentError(
            "tables",
            expected="cells of one space",
            got=f"{', '.join(sorted(found))} in {out}",
            remedy="Compute each space in a folder of its own.",
        )
    return str(found.pop())


def print_tables(out: Path) -> dict[str, Any]:
    """Print every table, and return the numbers for a JSON file."""
    all_blocks = blocks(out)
    begun = Folder(out, out).run.read()
    settings, systems = begun["settings"], begun["resolved"]
    if (out / "systems.json").exists():
        systems |= read(out / "systems.json")
    listed = ", ".join(f"{k} {v}" for k, v in settings.items() if not k.startswith("of "))
    print(f"Share of images on which an attack succeeds; {listed}")
    stamps = {json.dumps(cell["made_with"], sort_keys=True) for cell in _cells(out)}
    return {
        **read(out / "commands.json"), "made_with": [json.loads(text) for text in sorted(stamps)],
        "network_sha256": settings["network SHA-256"], "space": settings["space"],
        "gamma": systems["gamma"], "settings": settings, "systems": systems,
        "tables": [_print_block(block) for block in all_blocks],
        "paired": _compare_with_bare(all_blocks),
    }  # fmt: skip


def _compare_with_bare(all_blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Compare each system with the bare model, on the same images in their worst cases."""
    bare = {block.norm: block for block in all_blocks if block.system == "b"}
    found = []
    for block in all_blocks:
        if block.system == "b" or block.norm not in bare:
            continue
        for eps in sorted({*block.radii} & {*bare[block.norm].radii}):
            row = sign_test(block.worst(eps), bare[block.norm].worst(eps))
            found.append({"system": block.system, "norm": block.norm, "eps": eps, **row})
            print(
                f"{block.norm} {eps:g}: only {block.system} is broken on {row['only first']} "
                f"images, only b on {row['only second']} (sign test p = {row['p']:.2g})"
            )
    return found


def sign_test(first: Sequence[bool], second: Sequence[bool]) -> dict[str, Any]:
    """Count what is true in one only, and how likely such a split is by chance."""
    left, right = (
        sum(a and not b for a, b in zip(*pair, strict=True))
        for pair in ((first, second), (second, first))
    )
    count, least = left + right, min(left, right)
    tail = sum(math.comb(count, k) for k in range(least + 1)) / 2**count
    return {"only first": left, "only second": right, "p": min(1.0, 2 * tail)}


def _print_block(block: Block) -> dict[str, Any]:
    radii = block.radii
    print(f"\n{block.title} ({block.norm}, {len(block.clean['success'])} images)")
    rows: dict[str, Any] = {}
    width = max(len(name) for name in (*block.attacks, *block.nearest, "lowest to highest restart"))
    print(f"{'attack':<{width}} " + " ".join(f"{eps:>13g}" for eps in radii))
    print(f"{'none':<{width}} " + f"{share(block.clean['success']):>13.3f}")
    for name in block.attacks:
        row = {f"{eps:g}": _numbers(block.cells.get((name, eps))) for eps in radii}
        rows[name] = row
        _line(name, width, (f"{r['rate']:.3f}" if r else None for r in row.values()))
        if any(r and r["candidates"] > 1 for r in row.values()) and name == "pgd (A0)":
            spans = [f"{r['lowest']:.3f}-{r['highest']:.3f}" if r else None for r in row.values()]
            _line("  lowest to highest restart", width, spans)
    worst = {f"{eps:g}": interval(block.worst(eps)) for eps in radii}
    _line("worst case, image by image", width, (f"{w['rate']:.3f}" for w in worst.values()))
    ends = (f"{w['low']:.3f}-{w['high']:.3f}" for w in worst.values())
    _line("  95 % interval", width, ends)
    nearest = {name: _nearest(cell, name, width) for name, cell in block.nearest.items()}
    findings = sanity(block)
    for finding in findings:
        print(f"  {finding}")
    return {
        "system": block.system, "norm": block.norm, "radii": radii,
        "images": len(block.clean["success"]),
        "clean": share(block.clean["success"]), "attacks": rows, "worst": worst,
        "nearest": nearest,
        "sanity": [{"name": f.name, "holds": f.holds, "detail": f.detail} for f in findings],
    }  # fmt: skip


def sanity(block: Block) -> list[cr.attacks.Finding]:
    """Check what must hold if the attacks work, as far as there are cells for it."""
    bits = {key: torch.tensor(cell["success"]).bool() for key, cell in block.cells.items()}
    clean = {("clean", 0.0): torch.tensor(block.clean["success"]).bool()}
    rows = [name for name in block.attacks if all((name, eps) in bits for eps in block.radii)]
    table = cr.attacks.AttackTable(
        clean | {(n, eps): bits[n, eps] for n in rows for eps in block.radii}
    )
    black = [name for name in rows if BLACK_BOX in name]
    white = [name for name in rows if name not in black]
    found = [cr.attacks.accuracy_falls_with_eps(table)] if rows else []
    if black and white:
        found.append(cr.attacks.white_box_beats_black_box(table, white=white, black=black))
    large = {key: value for key, value in bits.items() if key[1] == block.large}
    if large:
        found.append(cr.attacks.large_eps_breaks_everything(cr.attacks.AttackTable(clean | large)))
    for (name, eps), more in bits.items():
        fewer = bits.get((name.removesuffix(_SUFFIX), eps))
        if name.endswith(_SUFFIX) and fewer is not None:
            found.append(cr.attacks.more_steps_do_not_help(fewer, more))
    return found


def share(bits: Sequence[int]) -> float:
    """Return the mean."""
    return sum(bits) / len(bits)


def interval(bits: Sequence[int], *, quantile: float = 1.959964) -> dict[str, float]:
    """Return a share with its 95 % Wilson interval, which also works at 0 and 1."""
    count, rate = len(bits), share(bits)
    scale = 1 + quantile**2 / count
    centre = (rate + quantile**2 / (2 * count)) / scale
    spread = rate * (1 - rate) / count + quantile**2 / (4 * count**2)
    half = quantile * math.sqrt(spread) / scale
    return {"rate": rate, "low": max(0.0, centre - half), "high": min(1.0, centre + half)}


def _numbers(cell: Cell | None) -> dict[str, float] | None:
    if cell is None:
        return None
    rates = [share(bits) for bits in cell["candidates"]]
    return {
        **interval(cell["success"]), "candidates": len(rates), "lowest": min(rates),
        "highest": max(rates), "seconds": cell["seconds"], "passes": cell["passes"],
        "passes to judge": cell["passes to judge"],
    }  # fmt: skip


def _nearest(cell: Cell, name: str, width: int) -> dict[str, float]:
    sizes = {kind: median(values) for kind, values in cell["sizes"].items()}
    found = {**interval(cell["success"]), **{f"median {k}": v for k, v in sizes.items()}}
    about = f"median L2 {sizes['l2']:.3f}, L_inf {sizes['linf']:.3f}"
    print(f"{name:<{width}} {found['rate']:>13.3f}   {about}")
    return found


def _line(name: str, width: int, values: Iterable[str | None]) -> None:
    print(f"{name:<{width}} " + " ".join(f"{value or '-':>13}" for value in values))
