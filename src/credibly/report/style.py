"""One look for all figures, and their way into a page."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any, Literal

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

INK = "#1f2933"
QUIET = "#8a94a0"
PROFILE = "#2563a8"
SOFTMAX = "#d9822b"
THIRD = "#3f8f5f"
SHADES = ("#9cc3e8", "#4f8fcb", "#1d4e89")
MANY_PIXELS = 200
"""From this width on a picture has more pixels than its place in a figure, and is smoothed."""


def panels(
    columns: int,
    *,
    rows: int = 1,
    width: float = 9.0,
    height: float = 3.4,
    widths: Sequence[float] | None = None,
) -> tuple[Figure, list[Axes]]:
    """A figure without global state, and its axes row by row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, width_ratios=widths)
    return figure, [axes for line in grid for axes in line]


def tidy(axes: Axes, *, title: str = "", x: str = "", y: str = "") -> None:
    """Labels, and no more ink than needed."""
    axes.set_title(title, fontsize=10, color=INK, loc="left")
    axes.set_xlabel(x, fontsize=9, color=INK)
    axes.set_ylabel(y, fontsize=9, color=INK)
    axes.tick_params(labelsize=8, colors=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(QUIET)
    axes.grid(visible=True, color="#e6e9ed", linewidth=0.6)
    axes.set_axisbelow(True)


def legend(axes: Axes, *, where: Literal["best", "lower right"] = "best") -> None:
    """A legend that does not shout."""
    axes.legend(fontsize=8, frameon=False, labelcolor=INK, loc=where)


def legend_below(axes: Axes) -> None:
    """A legend in one line under the axes."""
    axes.legend(
        fontsize=8,
        frameon=False,
        labelcolor=INK,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.08),
        ncols=2,
    )


def picture(
    axes: Axes,
    pixels: Any,
    *,
    signed: bool = False,
    low: float = 0.0,
    high: float = 1.0,
    limit: float = 0.15,
    inverted: bool = True,
) -> None:
    """Show pixels (h, w) in grey, (h, w, 3) in colour, or a signed difference in blue and red.

    Args:
        axes: where.
        pixels: numbers, row by row.
        signed: whether they are differences.
        low: the value drawn as one end of the greys; colours must be in [0, 1].
        high: the value drawn as the other end.
        limit: the difference drawn in full colour.
        inverted: whether high values are dark, as suits drawings of few bright pixels.
    """
    limits = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit} if signed else {
        "cmap": "gray_r" if inverted else "gray", "vmin": low, "vmax": high,
    }  # fmt: skip
    many = max(len(pixels), len(pixels[0])) > MANY_PIXELS
    axes.imshow(pixels, interpolation="antialiased" if many else "nearest", **limits)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color("#d5dae0")


def plain(text: str, most: int = 30) -> str:
    """Words from outside as a label: one line, not too long, and no formula between dollars."""
    line = " ".join(text.split())
    if len(line) > most:  # names that are long often differ at their end
        line = f"{line[: most // 2].rstrip()}…{line[len(line) - (most - most // 2 - 1) :].lstrip()}"
    return line.replace("$", r"\$")


def plain_names(names: Sequence[str], most: int = 30) -> list[str]:
    """Likewise many names; those that would be cut to the same words get their number in front."""
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


def as_data_uri(image: bytes) -> str:
    """A PNG that lives inside a page."""
    return "data:image/png;base64," + base64.b64encode(image).decode("ascii")
