"""One look for all figures, and their way into a page."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Literal

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


def picture(axes: Axes, pixels: Sequence[Sequence[float]], *, signed: bool = False) -> None:
    """Show grey pixels in [0, 1], or a signed difference in blue and red."""
    limits = {"cmap": "RdBu_r", "vmin": -0.15, "vmax": 0.15} if signed else {
        "cmap": "gray_r", "vmin": 0.0, "vmax": 1.0,
    }  # fmt: skip
    axes.imshow(pixels, interpolation="nearest", **limits)  # type: ignore[arg-type]
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color("#d5dae0")


def png(figure: Figure, *, dots: int = 130) -> bytes:
    """The figure as PNG bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dots, facecolor="white")
    return buffer.getvalue()


def as_data_uri(image: bytes) -> str:
    """A PNG that lives inside a page."""
    return "data:image/png;base64," + base64.b64encode(image).decode("ascii")
