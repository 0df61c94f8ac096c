"""Quality against price, one mark per method: the picture of docs/explanation/evidence.md.

python -m experiments.broad.draw results/broad docs/images/evidence.png
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from experiments.broad.measure import BOTH, JUDGES
from experiments.broad.summary import (
    COLUMNS,
    Row,
    cell,
    methods_of,
    price,
    read,
    with_hidden_layer,
)

PANELS = {
    "far 1 %": "far outliers caught\nat 1 % of false alarms",
    "DS-F1": "failures and outliers at once\n(DS-F1, higher is better)",
    "AURC clean": "errors among ordinary inputs\n(AURC over softmax, lower is better)",
}
SHOWN = (
    "max softmax", "energy", "GEN", "ODIN", "ReAct", "fDBD", "Mahalanobis", "nearest neighbours",
    "last-layer Laplace", "ensemble", "test-time augmentation",
)  # fmt: skip
OURS = (*JUDGES, "shift", "gain", BOTH)
SHORT = {
    "Judge, doubtful profiles": "+ some", "Judge, every profile": "+ all profiles",
    "Judge, with views": "Judge, views", "test-time augmentation": "augmentation",
    BOTH: "shift and gain",
}  # fmt: skip


def draw(rows: list[Row], path: Path) -> None:
    """Draw the confirming networks on which methods of features and of profiles were measured.

    Means over other networks are no comparison, so a network without one of the two is left out.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    some = with_hidden_layer([row for row in rows if row["role"] == "confirm"])
    some = [row for row in some if BOTH in row["caught"]["clean"]]
    figure, axes = plt.subplots(1, len(PANELS), figsize=(13, 4.4), layout="constrained")
    for axis, (column, words) in zip(axes, PANELS.items(), strict=True):
        panel(axis, some, column)
        axis.set(xscale="log", xlabel="passes per ordinary input", title=words)
    title = f"{len(some)} networks that chose nothing; ours in colour; *: on some of them only"
    figure.suptitle(title)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def panel(axis: Any, rows: list[Row], column: str) -> None:
    """One mark per method, with its name; names of the same price stand below each other."""
    by_price: dict[float, list[tuple[float, str]]] = {}
    few: set[str] = set()
    for method in methods_of(rows):
        cost, value = cell(price, rows, method), cell(COLUMNS[column], rows, method)
        if cost is not None and value is not None and method in (*SHOWN, *OURS):
            by_price.setdefault(round(cost[0], 2), []).append((value[0], method))
            few |= {method} if value[1] < len(rows) else set()
            style = {"marker": "D", "s": 50} if method in OURS else {"marker": "o", "s": 28}
            axis.scatter(cost[0], value[0], color=colour(method), zorder=3, **style)
    low, high = (0.6, 2.2) if column == "AURC clean" else axis.get_ylim()
    low -= 0.08 * (high - low)  # room for names
    axis.set(ylim=(low, high), xlim=(0.25, 200))
    for cost, marks in by_price.items():
        place = high
        for value, method in sorted(marks, reverse=True):  # from the top
            place = min(place - 0.045 * (high - low), value)
            if value <= high and (method != "Judge, with labels" or column == "AURC clean"):
                words = SHORT.get(method, method) + "*" * (method in few)
                axis.annotate(
                    words, (cost, value), xytext=(cost * 1.2, place), va="center",
                    fontsize=7.5, color=colour(method), annotation_clip=False,
                )  # fmt: skip


def colour(method: str) -> str:
    """Ours are red."""
    return "#c0392b" if method in OURS else "#555555"


def main() -> None:
    """Read the folder of results, write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    draw(read(given.results), given.picture)


if __name__ == "__main__":
    main()
