"""Draw accuracies: against coverage, at full coverage, over readings and over seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly.plot import style
from experiments.paper.adaptive import count_images, label, notes, of_space, spaces
from experiments.paper.measures import GRID

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Record = Mapping[str, Any]
ATTACKED = ("#e8a33d", "#d1603d", "#8c2d3f")
NAMES = {"softmax": "softmax", "profile": "profile c⁺"}
DASHED = (0, (3, 2))
ADAPTIVE = "#6b2d8c"
COLOURS = {"softmax": style.SOFTMAX, "profile": style.PROFILE}


def condition_name(condition: str) -> str:
    """Return 'clean', or the eps of an attack."""
    return condition if condition == "clean" else f"ε = {condition}"


def _legend(figure: Figure, axes: list[Axes], *, columns: int = 0, note: str = "") -> None:
    """Draw one legend under all panels; with `columns`, its entries run along the rows.

    A note is printed above the entries, in a small font.
    """
    entries: dict[str, Any] = {}
    for panel in axes:
        for handle, name in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(name, handle)
    handles, labels = list(entries.values()), list(entries)
    order = list(range(len(handles)))
    if columns:
        order = [place for first in range(columns) for place in order[first::columns]]
    figure.legend(
        [handles[k] for k in order], [labels[k] for k in order], loc="outside lower center",
        ncols=columns or 4, fontsize=8, frameon=False, labelcolor=style.INK,
        title=note or None, title_fontsize=7.5,
    )  # fmt: skip


def filtering(record: Record) -> tuple[Figure, str]:
    """Draw one row per space and one column per classifier; bands are the range of restarts."""
    results = spaces(record)
    rows = len(results)
    figure, axes = style.panels(2, rows=rows, width=9.4, height=3.1 * rows + 1.0)
    words = []
    for row, (space, sets) in enumerate(results.items()):
        for column, which in enumerate(NAMES):
            panel = axes[2 * row + column]
            for place, conditions in enumerate(sets.values()):
                _curves(panel, conditions, which, first=place == 0)
            style.tidy(panel, title=f"{NAMES[which]}, {space}", x="coverage (%)",
                       y="filtered accuracy (%)")  # fmt: skip
            panel.set_xlim(0, 100)
            panel.set_ylim(-2, 102)
        words.append(_regain_words(space, next(iter(sets.values()))))
    for place, name in enumerate(sets):
        dashes = "-" if place == 0 else DASHED
        axes[0].plot([], [], color=style.QUIET, lw=1.6, ls=dashes, label=name)
    axes[0].fill_between([], [], color=style.QUIET, alpha=0.3, lw=0, label="range of restarts")
    _legend(figure, axes[:1], columns=max(3, len(conditions)), note=notes(record))
    return figure, "\n".join(words)


def _curves(panel: Axes, conditions: Mapping[str, Any], which: str, *, first: bool) -> None:
    grid = 100 * np.array(GRID)
    for place, (condition, numbers) in enumerate(conditions.items()):
        colour = style.INK if condition == "clean" else ATTACKED[(place - 1) % 3]
        values = {k: 100 * np.array(numbers[which][k]) for k in ("mean", "least", "most")}
        label = condition_name(condition) if first else None
        dashes = "-" if first else DASHED
        panel.plot(grid, values["mean"], color=colour, lw=1.6, ls=dashes, label=label)
        if first:
            panel.fill_between(
                grid, values["least"], values["most"], color=colour, alpha=0.22, lw=0
            )


def _regain_words(space: str, conditions: Mapping[str, Any]) -> str:
    weakest = list(conditions)[1]
    numbers = conditions[weakest]
    softmax, profile = (numbers[which]["accuracy"][0] for which in NAMES)
    start = (
        f"{space.capitalize()}, {condition_name(weakest)}: with every image answered softmax is "
        f"right on {100 * softmax:.0f} %, the profile on {100 * profile:.0f} %"
    )
    if softmax >= profile:
        return f"{start}."
    coverage = numbers["coverage"]["softmax for profile"]
    if coverage["most"] == 0:
        return f"{start}; filtering by softmax does not reach that at any coverage."
    given_up = 100 * (1 - coverage["mean"])
    return f"{start}; to match it softmax filtering gives up {given_up:.0f} % of the images."


def accuracy(record: Record) -> tuple[Figure, str]:
    """Draw bars of both classifiers, the range of restarts, and the worst case of each image."""
    results = spaces(record)
    figure, axes = style.panels(len(results), width=9.4, height=4.6)
    words = []
    for panel, (space, sets) in zip(axes, results.items(), strict=True):
        names = list(sets)
        conditions = sets[names[0]]
        places = np.arange(len(conditions))
        for side, which in enumerate(NAMES):
            at = places + 0.31 * (side - 0.5)
            tops = _bars(panel, at, [c[which] for c in conditions.values()], which, names[0])
            means = [100 * c[which]["accuracy"][0] for c in conditions.values()]
            for other in names[1:]:
                values = [100 * c[which]["accuracy"][0] for c in sets[other].values()]
                panel.plot(at + 0.08, values, "D", ms=4.5, mfc="white", mec=style.INK, ls="none",
                           label=other if side else None)  # fmt: skip
                tops = np.maximum(tops, values)
            for x, mean, top in zip(at, means, tops, strict=True):
                panel.annotate(f"{mean:.1f}", (x, top), (0, 5), textcoords="offset points",
                               ha="center", fontsize=7, color=style.INK)  # fmt: skip
        _adaptive(panel, record, space, list(conditions))
        style.tidy(panel, title=f"{space} ({names[0]})", y="accuracy (%)")
        panel.set_xticks(places, [condition_name(c) for c in conditions])
        panel.set_ylim(0, 107)
        panel.set_yticks(range(0, 101, 20))
        words.append(_drop_words(space, conditions))
    _legend(figure, axes, columns=3, note=notes(record))
    return figure, "\n".join(words)


def _bars(panel: Axes, at: np.ndarray, numbers: list[Any], which: str, name: str) -> np.ndarray:
    """Draw bars, and return where each ends, with its whiskers."""
    means = np.array([100 * n["accuracy"][0] for n in numbers])
    ends = 100 * np.array([[min(n["restarts"]), max(n["restarts"])] for n in numbers]).T
    whiskers = np.abs(ends - means)
    panel.bar(at, means, 0.29, color=COLOURS[which], label=f"{NAMES[which]} ({name})",
              yerr=whiskers, error_kw={"ecolor": style.INK, "lw": 1.2, "capsize": 3})  # fmt: skip
    if which == "profile":
        panel.errorbar([], [], yerr=[], color=style.INK, lw=1.2, capsize=3, ls="none",
                       label="range of single restarts")  # fmt: skip
    worst = [100 * n["worst_case"][0] for n in numbers]
    label = "worst restart of each image" if which == "profile" else None
    panel.plot(at, worst, "_", ms=12, mew=2, color="#b3261e", ls="none", label=label)
    tops: np.ndarray = np.maximum(means, ends[1])
    return tops


def _adaptive(panel: Axes, record: Record, space: str, conditions: list[str]) -> None:
    """Mark the accuracy under adaptive attacks: the profile's on the right, the model's left."""
    known = {eps: row for eps, row in of_space(record, space).items() if row is not None}
    for what, aside, fill in (("accuracy", 0.36, ADAPTIVE), ("bare model", -0.36, "white")):
        some = {eps: row for eps, row in known.items() if row.get(what)}
        if not some:
            continue
        at = [conditions.index(eps) + aside for eps in some]
        middle, low, high = (
            np.array([100 * row[what][end] for row in some.values()]) for end in range(3)
        )
        rows = list(some.values())
        words = "the same on the bare model"
        if what == "accuracy":
            words = f"{label(rows)}, {count_images(rows)}"
        panel.errorbar(at, middle, yerr=[middle - low, high - middle], fmt="X", ms=6, capsize=3,
                       lw=1.2, color=ADAPTIVE, mfc=fill, label=words, clip_on=False,
                       zorder=5)  # fmt: skip


def _drop_words(space: str, conditions: Mapping[str, Any]) -> str:
    weakest = list(conditions)[1]
    lost = [
        100
        * (conditions["clean"][which]["accuracy"][0] - conditions[weakest][which]["accuracy"][0])
        for which in NAMES
    ]
    return (
        f"{space.capitalize()}, {condition_name(weakest)}: softmax loses {lost[0]:.0f} points, "
        f"the profile {lost[1]:.0f}."
    )


def readings(record: Record) -> tuple[Figure, str]:
    """Draw a point per reading: points lost at the first eps, accuracy left at the last."""
    results = spaces(record)
    figure, axes = style.panels(len(results), width=9.4, height=4.6)
    first, last = (f"{e:g}" for e in (record["settings"]["eps"][0], record["settings"]["eps"][-1]))
    words = []
    for panel, (space, numbers) in zip(axes, results.items(), strict=True):
        colours = (style.SOFTMAX, style.PROFILE)
        for start, colour in zip(record["settings"]["starts"], colours, strict=True):
            _scatter(panel, numbers["rows"], f"lambda {start}", last, colour)
        (row,) = [r for r in numbers["rows"] if r["name"] == "converged"]
        panel.plot(100 * row["drop"][0], 100 * row["accuracy"][last][0], "*", ms=15,
                   color=style.INK, ls="none", label="default solver")  # fmt: skip
        paper = numbers["paper"]
        panel.errorbar(100 * paper["drop"], 100 * paper["left"], yerr=[[0], [8]], lolims=True,
                       fmt="s", color="#b3261e", ms=7, label="paper (or above)")  # fmt: skip
        style.tidy(panel, title=f"{space}: softmax loses {100 * numbers['softmax drop'][0]:.0f} "
                   f"points at ε = {first}", x=f"points the profile loses at ε = {first}",
                   y=f"profile's accuracy at ε = {last} (%)")  # fmt: skip
        best = min(numbers["rows"], key=lambda r: r["distance"])
        words.append(
            f"{space.capitalize()}: the c⁺ nearest to the paper ({best['name']}) is "
            f"{100 * best['distance']:.1f} points away from it, softmax is "
            f"{100 * numbers['softmax distance']:.1f}."
        )
    for steps in sorted(record["settings"]["lengths"]):
        axes[0].scatter([], [], s=_dot(steps, numbers["rows"]), color=style.QUIET,
                        label=f"{steps} steps")  # fmt: skip
    _legend(figure, axes[:1], note=notes(record))
    return figure, "\n".join(words)


def _scatter(panel: Axes, rows: list[Any], start: str, last: str, colour: str) -> None:
    for which, face in (("last", colour), ("best", "white")):
        some = [r for r in rows if r["name"].startswith(start) and r["name"].endswith(which)]
        sizes = [_dot(r["passes"], rows) for r in some]
        panel.scatter(
            [100 * r["drop"][0] for r in some], [100 * r["accuracy"][last][0] for r in some],
            s=sizes, facecolor=face, edgecolor=colour, alpha=0.85,
            label=f"λ⁰ {start.split()[1]}, {which} iterate",
        )  # fmt: skip


def _dot(steps: float, rows: list[Any]) -> float:
    """Return the size of the dot for a number of steps."""
    return 14 + 60 * steps / max(r["passes"] for r in rows)


def seeds(record: Record) -> tuple[Figure, str]:
    """Draw one dot per training seed, and a line through the means."""
    results = spaces(record)
    figure, axes = style.panels(len(results), width=9.4, height=4.2)
    words = []
    for panel, (space, numbers) in zip(axes, results.items(), strict=True):
        conditions = list(numbers["over seeds"])
        places = np.arange(len(conditions))
        for which, colour in COLOURS.items():
            over = [numbers["over seeds"][c][which] for c in conditions]
            means = [100 * v["mean"] for v in over]
            panel.plot(places, means, color=colour, lw=1.6, label=f"{NAMES[which]}, mean")
            for place, network in enumerate(numbers["networks"].values()):
                values = [100 * network[c][which]["accuracy"][0] for c in conditions]
                panel.plot(places, values, "o", ms=5, color=colour, alpha=0.6, ls="none",
                           label=None if place else f"{NAMES[which]}, each network",
                           clip_on=False)  # fmt: skip
        style.tidy(panel, title=space, y="accuracy (%)")
        panel.set_xticks(places, [condition_name(c) for c in conditions])
        panel.set_ylim(0, 100)
        words.append(_seed_words(space, numbers["over seeds"]))
    _legend(figure, axes[:1], columns=2, note=notes(record))
    return figure, "\n".join(words)


def _seed_words(space: str, over: Mapping[str, Any]) -> str:
    ranges = {
        which: max(v[which]["most"] - v[which]["least"] for v in over.values()) for which in NAMES
    }
    return (
        f"{space.capitalize()}: seeds differ by up to {100 * ranges['softmax']:.1f} points in "
        f"softmax's accuracy, {100 * ranges['profile']:.1f} in the profile's."
    )
