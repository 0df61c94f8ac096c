"""Draw the figures from their JSON alone; titles state the findings."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

from credibly.plot import style
from experiments.paper.claims import is_small
from experiments.paper.draw_accuracy import DASHED, accuracy, filtering, readings, seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Record = Mapping[str, Any]


def picture(record: Record, out: Path) -> None:
    """Write NAME.svg and NAME.png."""
    kinds: dict[str, Callable[[Record], tuple[Figure, str]]] = {
        "compromise": compromise,
        "profiles": profiles,
        "filtering": filtering,
        "accuracy": accuracy,
        "readings": readings,
        "seeds": seeds,
    }
    # the same numbers give the same bytes
    with mpl.rc_context({"svg.hashsalt": "credibly", "svg.fonttype": "none"}):
        figure, finding = kinds[record["kind"]](record)
        width = int(11.5 * figure.get_size_inches()[0])
        lines = [subject(record), *finding.splitlines()]
        text = "\n".join(textwrap.fill(line, width) for line in lines)
        figure.suptitle(text, x=0.01, ha="left", fontsize=9.5, color=style.INK, weight="bold")
        figure.savefig(out / f"{record['figure']}.svg", facecolor="white", metadata={"Date": None})
        (out / f"{record['figure']}.png").write_bytes(few_colours(style.png(figure, dots=110)))


def subject(record: Record) -> str:
    """Return networks, gamma and scale, for the title."""
    settings = record["settings"]
    gammas = ", ".join(f"{gamma:g}" for gamma in settings["gammas"])
    small = " Small scale: nothing here is about the paper." * is_small(record)
    return f"{', '.join(settings['networks'])}, gamma = {gammas}.{small}"


def few_colours(image: bytes) -> bytes:
    """Reduce a PNG to a palette, a third of its size (pillow comes with matplotlib)."""
    from PIL import Image

    buffer = io.BytesIO()
    with Image.open(io.BytesIO(image)) as picture_:
        palette = picture_.convert("RGB").quantize(64, method=Image.Quantize.FASTOCTREE)
        palette.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def compromise(record: Record) -> tuple[Figure, str]:
    """Draw the share of images below each distance and each |c+|^2, one line per gamma."""
    results = record["results"]
    figure, axes = style.panels(2, rows=len(results), width=9.0, height=3.0 * len(results) + 0.7)
    for row, (space, numbers) in enumerate(results.items()):
        left, right = axes[2 * row : 2 * row + 2]
        for panel, column in ((left, "distance quantiles"), (right, "norm quantiles")):
            _shares_below(panel, numbers, column)
        style.tidy(left, title=f"{space}: perturbation", x="|x⁺ - x₀|", y="% of images below")
        style.tidy(right, title=f"{space}: overall credibility", x="|c⁺|²", y="% of images below")
        for panel in (left, right):
            panel.set_ylim(0, 100)
            style.legend(panel, where="lower right")
    words = [_compromise_words(s, n) for s, n in results.items()]
    return figure, "\n".join(words)


def _shares_below(panel: Axes, sets: Mapping[str, Any], column: str) -> None:
    """Draw one line per gamma, further sets dashed, and cut the last 2 %, half of the axis."""
    for name, numbers in sets.items():
        first = numbers is _first_set(sets)
        for place, (gamma, values) in enumerate(numbers["gammas"].items()):
            shares = np.linspace(0, 100, len(values[column]))
            panel.plot(
                values[column], shares, color=style.SHADES[place % len(style.SHADES)],
                lw=1.8 if first else 1.2, ls="-" if first else DASHED,
                label=f"$\\gamma$ = {gamma}" if first else None,
            )  # fmt: skip
        panel.plot([], [], color=style.QUIET, ls="-" if first else DASHED, label=name)
    ends = [v[column][-2] for numbers in sets.values() for v in numbers["gammas"].values()]
    panel.set_xlim(right=1.1 * max(ends))


def _first_set(numbers: Mapping[str, Any]) -> Any:
    """Return the set of the paper's size; the JSON has larger ones too."""
    return next(iter(numbers.values()))


def _compromise_words(space: str, sets: Mapping[str, Any]) -> str:
    name, gammas = next(iter(sets)), _first_set(sets)["gammas"]
    first, *_, last = gammas
    a, b = gammas[first], gammas[last]
    held = min(values["trade-off holds"] for values in gammas.values())
    return (
        f"{space.capitalize()}, {name}: from gamma = {first} to {last} the mean |x⁺ - x₀| goes "
        f"from {a['distance'][0]:.3g} to {b['distance'][0]:.3g} and the mean |c⁺|² from "
        f"{a['norm'][0]:.3g} to {b['norm'][0]:.3g}; the trade-off holds for {100 * held:.4g} %."
    )


def profiles(record: Record) -> tuple[Figure, str]:
    """Draw one row per network: profiles at x0, and at x+ in each space."""
    results = record["results"]
    spaces, networks = list(results), list(next(iter(results.values()))["networks"])
    columns = 1 + len(spaces)
    height = 2.9 * len(networks) + 0.9
    figure, axes = style.panels(columns, rows=len(networks), width=9.6, height=height)
    words = []
    for row, network in enumerate(networks):
        line, facts = axes[row * columns : (row + 1) * columns], []
        for panel, space in zip(line[1:], spaces, strict=True):
            sets = results[space]["networks"][network]
            size = next(name for name in sets if name.endswith("images"))
            numbers = sets[size]
            kept, change = numbers["class kept"][0], numbers["normalised change"][0]
            title = f"c⁺, {space}: class kept {100 * kept:.0f} %"
            _profile_panel(panel, numbers, "after", title)
            facts.append((f"{100 * kept:.0f} % ({space})", f"{change:.2f}"))
        _profile_panel(line[0], numbers, "before", f"{_short(network)}, c₀ ({size})")
        shares, changes = (" and ".join(values) for values in zip(*facts, strict=True))
        words.append(
            f"{_short(network)}: c⁺ keeps the class of {shares} of the images; sorted profiles "
            f"change by {changes} in the mean."
        )
        line[0].set_ylabel("credibility, from 0 to 1", fontsize=9, color=style.INK)
    for panel in axes[-columns:]:
        panel.set_xlabel("rank of the class", fontsize=9, color=style.INK)
    style.legend(axes[0])
    return figure, "\n".join(words)


def _profile_panel(panel: Axes, numbers: Mapping[str, Any], when: str, title: str) -> None:
    samples, bands = np.array(numbers["samples"][when]), np.array(numbers["bands"][when])
    ranks = np.arange(1, samples.shape[1] + 1)
    # one path with gaps makes the file three times smaller
    gap = np.full((len(samples), 1), np.nan)
    across = np.hstack([np.tile(ranks, (len(samples), 1)), gap])
    panel.plot(across.ravel(), np.hstack([samples, gap]).ravel(), color="#b8c0c9", lw=0.4,
               label=f"{len(samples)} of the images")  # fmt: skip
    for low, high, alpha in ((0, 4, 0.18), (1, 3, 0.35)):
        label = f"{(90, 50)[low]} % of images"
        panel.fill_between(
            ranks, bands[low], bands[high], color=style.PROFILE, alpha=alpha, lw=0, label=label
        )
    panel.plot(ranks, bands[2], color=style.PROFILE, lw=2, label="median")
    style.tidy(panel, title=title)
    panel.title.set_fontsize(8.5)
    panel.set_xticks(ranks)
    panel.set_ylim(-0.02, 1.02)


def _short(network: str) -> str:
    """Return the name of a network without its data set and seed."""
    parts = [p for p in network.split("-") if p not in ("cifar10", "fashion", "mnist")]
    return " ".join(p for p in parts if not p.startswith("seed"))
