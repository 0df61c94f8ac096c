"""Quality against price, one mark per method: the picture of docs/explanation/evidence.md.

python -m experiments.broad.draw results/broad docs/images/evidence.png
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.isotonic import isotonic_regression

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
SHARED = ("ensemble", "Judge, with views", BOTH)
"""Methods that need more than a network; the picture is of networks that have all of them."""
OURS = (*JUDGES, "shift", "gain", BOTH)
LATER = ("predicted ratio", "nearest mode", "Monte-Carlo dropout")
"""How the names of methods begin that were measured on few networks; the page has a table."""
SHORT = {
    "Judge, doubtful profiles": "+ some", "Judge, every profile": "+ all profiles",
    "Judge, with views": "Judge, views", "test-time augmentation": "test views",
    "last-layer Laplace": "Laplace", BOTH: "shift and gain",
}  # fmt: skip
FAR_BEHIND = 2.0  # AURC by that of softmax: further ones are in the table only


def draw(rows: list[Row], path: Path) -> None:
    """Draw the confirming networks on which all that is shown was measured.

    Means over other networks are no comparison, so a network that lacks a method is left out.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    some = with_hidden_layer([row for row in rows if row["role"] == "confirm"])
    some = [row for row in some if all(price(row, method) for method in SHARED)]
    figure, axes = plt.subplots(len(PANELS), 1, figsize=(8, 15), layout="constrained")
    for axis, (column, words) in zip(axes, PANELS.items(), strict=True):
        panel(axis, some, column)
        axis.set(xlabel="passes per ordinary input (a forward is a third)", title=words)
    title = f"Means over {len(some)} held-out networks that have every method; ours in colour"
    figure.suptitle(title)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def panel(axis: Any, rows: list[Row], column: str) -> None:
    """One mark per method, its name beside it; names of about the same price share a column."""
    marks = marks_of(rows, column)
    values = [mark.value for mark in marks]
    room = 0.06 * (max(values) - min(values))
    low, high = min(values) - 3.2 * room, max(values) + room  # names reach further down
    axis.set(ylim=(low, high), xlim=(0.25, 50), xscale="log")
    for mark in marks:
        style = {"marker": "D", "s": 50} if mark.method in OURS else {"marker": "o", "s": 28}
        axis.scatter(mark.price, mark.value, color=colour(mark.method), zorder=3, **style)
    for least, most in ((0, 1), (1, 5), (5, 50)):
        some = [mark for mark in marks if least <= mark.price < most]
        names(some, axis, 0.034 * (high - low))


class Mark(NamedTuple):
    """A method in a panel."""

    price: float
    value: float
    method: str
    name: str


def marks_of(rows: list[Row], column: str) -> list[Mark]:
    """The methods of all these networks, but for those that are far behind at ranking errors."""
    marks = []
    for method in methods_of(rows):
        cost, value = cell(price, rows, method), cell(COLUMNS[column], rows, method)
        same = method == "Judge, with labels" and column != "AURC clean"  # as without labels
        everywhere = value is not None and value[1] == len(rows)
        if cost and value and everywhere and not same and not method.startswith(LATER):
            marks.append(Mark(cost[0], value[0], method, SHORT.get(method, method)))
    return [mark for mark in marks if column != "AURC clean" or mark.value < FAR_BEHIND]


def names(marks: list[Mark], axis: Any, gap: float) -> None:
    """The names of marks that lie near each other, at least `gap` apart, each with a line."""
    marks = sorted(marks, key=lambda mark: mark.value)
    beside = 1.25 * max((mark.price for mark in marks), default=1.0)
    places = apart([mark.value for mark in marks], gap)
    for mark, place in zip(marks, places, strict=True):
        axis.annotate(
            mark.name, (mark.price, mark.value), xytext=(beside, place), va="center", fontsize=7.5,
            color=colour(mark.method), annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": "#c8c8c8", "linewidth": 0.7, "shrinkB": 4},
        )  # fmt: skip


def apart(values: list[float], gap: float) -> list[float]:
    """The nearest places, in the same ascending order, that are at least `gap` apart.

    Least squares: subtracting `gap` per place leaves a fit by ascending values.
    """
    steps = np.arange(len(values)) * gap
    return [float(x) for x in isotonic_regression(np.array(values) - steps) + steps]


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
