"""The common style of all figures."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#1f2933"
QUIET = "#8a94a0"
PROFILE = "#2563a8"
SOFTMAX = "#d9822b"
THIRD = "#3f8f5f"
SHADES = ("#9cc3e8", "#4f8fcb", "#1d4e89")
MANY_PIXELS = 200
"""Wider pictures have more pixels than their panel and are smoothed."""


DOTS = 72
"""Pixels of a screen for an inch of a figure, in a notebook."""


class Picture(Figure):
    """A figure that a notebook shows by itself, also where pyplot was never imported."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """Twice as many pixels as it takes on the screen, so that it stays sharp."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=2 * DOTS, facecolor="white", bbox_inches="tight")
        content = buffer.getvalue()
        width, height = (int.from_bytes(content[k : k + 4], "big") // 2 for k in (16, 20))
        return content, {"width": width, "height": height}


def panels(
    columns: int,
    *,
    rows: int = 1,
    width: float = 9.0,
    height: float = 3.4,
    widths: Sequence[float] | None = None,
) -> tuple[Figure, list[Axes]]:
    """A figure without global state, and its axes row by row."""
    figure = Picture(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, width_ratios=widths)
    return figure, [axes for line in grid for axes in line]


def grid(
    count: int, *, columns: int, width: float, height: float, margin: float
) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels of one size in at most so many columns."""
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    figure, axes = panels(columns, rows=rows, width=width * columns + margin, height=height * rows)
    for unused in axes[count:]:
        unused.set_visible(False)
    return figure, axes[:count]


def tidy(axes: Axes, *, title: str = "", x: str = "", y: str = "") -> None:
    """Set title and labels, in a plain style."""
    axes.set_title(title, fontsize=10, color=INK, loc="left")
    axes.set_xlabel(x, fontsize=9, color=INK)
    axes.set_ylabel(y, fontsize=9, color=INK)
    axes.tick_params(labelsize=8, colors=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(QUIET)
    axes.grid(visible=True, color="#e6e9ed", linewidth=0.6)
    axes.set_axisbelow(True)


def legend(
    axes: Axes, *, where: Literal["best", "lower right", "upper right", "below"] = "best"
) -> None:
    """Add a legend without a frame; 'below' puts it in one line below the axes."""
    if where == "below":
        place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.08), "ncols": 2}
    else:
        place = {"loc": where}
    axes.legend(fontsize=8, frameon=False, labelcolor=INK, **place)


def picture(
    axes: Axes, pixels: Any, *, signed: bool = False, low: float = 0.0, high: float = 1.0
) -> None:
    """Show pixels (h, w) in grey, (h, w, 3) in [0, 1] in colour, or differences in blue and red.

    Greys range from `low` to `high`, differences from `-high` to `high`.
    """
    many = max(len(pixels), len(pixels[0])) > MANY_PIXELS
    axes.imshow(
        pixels,
        interpolation="antialiased" if many else "nearest",
        cmap="RdBu_r" if signed else "gray",
        vmin=-high if signed else low,
        vmax=high,
    )
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color("#d5dae0")


def caption(axes: Axes, title: str, note: str) -> None:
    """A title above a picture and a note below it."""
    axes.set_title(title, fontsize=9, color=INK)
    axes.set_xlabel(note, fontsize=8, color=QUIET)


def plain(text: str, most: int = 30) -> str:
    """A name as a label: one line, not too long, and dollar signs do not start a formula."""
    line = " ".join(text.split())
    if len(line) > most:  # long names often differ only at the end
        line = f"{line[: most // 2].rstrip()}…{line[len(line) - (most - most // 2 - 1) :].lstrip()}"
    return line.replace("$", r"\$")


def plain_names(names: Sequence[str], most: int = 30) -> list[str]:
    """Names as labels; names that would be shortened to the same text get their number first."""
    short = [plain(name, most) for name in names]
    known: dict[str, set[str]] = {}
    for cut, name in zip(short, names, strict=True):
        known.setdefault(cut, set()).add(name)
    return [
        cut if len(known[cut]) == 1 else f"{k}: {plain(name, most - len(f'{k}: '))}"
        for k, (cut, name) in enumerate(zip(short, names, strict=True))
    ]


def png(figure: Figure, *, dots: int = 130) -> bytes:
    """The figure as PNG bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dots, facecolor="white")
    return buffer.getvalue()
