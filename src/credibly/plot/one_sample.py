"""The figure of one sample: its input before and after, and the credibility of each class."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from credibly.plot import style
from credibly.plot.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 10  # classes, and features, in one figure
FEW = 5  # panels with fewer bars leave room, so that bars do not become blocks
TICKS = 5  # numbers below an axis, so that long ones do not overlap
LETTER = 0.075  # width of a letter of a label, in inches

Panel = tuple[float, Callable[["Axes"], None]]
"""Its width in inches, and what draws it."""


def draw(view: View) -> Figure:
    """The figure of one sample."""
    parts = list(_panels(view))
    widths = [inches for inches, _ in parts]
    width = max(sum(widths), 6.4)
    lines = [view.title()]
    if view.kind == "other" and bool(view.move.isfinite().all()):
        lines.append(view.sentence())
    text = "\n".join(textwrap.fill(style.plain(line, 1000), int(width * 13)) for line in lines)
    height = (3.1 if view.solved or len(parts) > 1 else 0.9) + 0.17 * text.count("\n")
    figure, axes = style.panels(len(parts), width=width, height=height, widths=widths)
    for panel, (_, paint) in zip(axes, parts, strict=True):
        paint(panel)
    figure.suptitle(text, fontsize=10, color=style.INK, x=0.01, ha="left")
    return figure


def _panels(view: View) -> Iterator[Panel]:
    """The input if something else moved, what moved, and the classes."""
    if view.beside is not None:
        yield 2.4, partial(_picture, name="the input", pixels=view.beside, others=[view.beside])
    if view.kind == "features":
        names = ["feature 123", *style.plain_names(view.features.names or ())]
        yield 4.8 + LETTER * max(map(len, names)), partial(_features, view=view)
    elif view.kind == "signal":
        row = int(view.move.norm(dim=1).argmax())
        yield 4.2, partial(_curves, view=view, row=row)
        yield 3.4, partial(_curve_of_move, move=view.move[row])
    elif view.kind == "picture":
        both = [view.before, view.after]
        yield 2.4, partial(_picture, name="x0", pixels=view.before, others=both)
        yield 2.4, partial(_picture, name="x+", pixels=view.after, others=both)
        yield 2.4, partial(_difference, move=view.move)
    names = style.plain_names(view.classes)
    if view.solved:
        yield 3.0 + LETTER * max(map(len, names)), partial(_classes, view=view, names=names)
    else:
        yield 3.2, _nothing


def _range(*pictures: Tensor) -> tuple[float, float]:
    """(0, 1) if all pixels are in it, else their smallest and largest value."""
    known = torch.cat([picture[picture.isfinite()] for picture in pictures])
    if not len(known) or bool(((known >= 0) & (known <= 1)).all()):
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _picture(panel: Axes, *, name: str, pixels: Tensor, others: list[Tensor]) -> None:
    """Pixels (h, w, 1 or 3) as they are, or scaled to the range of several pictures."""
    low, high = _range(*others)
    if pixels.shape[-1] == 1:
        style.picture(panel, pixels[..., 0].numpy(), low=low, high=high)
    else:
        scaled = ((pixels - low) / (high - low)).clamp(0, 1)
        style.picture(panel, scaled.nan_to_num(0.0).numpy())
    note = "" if (low, high) == (0.0, 1.0) else f"drawn from {low:.3g} to {high:.3g}"
    style.caption(panel, name, note)


def _difference(panel: Axes, *, move: Tensor) -> None:
    """At every pixel the channel that moved most, since a mean could cancel."""
    most = move.gather(-1, move.abs().argmax(-1, keepdim=True))[..., 0]
    limit = float(most.abs().max())
    style.picture(panel, most.numpy(), signed=True, high=limit or 1.0)
    name = "difference" + (", largest channel" if move.shape[-1] > 1 else "")
    style.caption(
        panel, name, f"blue {-limit:.2g} to red {limit:.2g}" if limit else "nothing moved"
    )


def _curves(panel: Axes, *, view: View, row: int) -> None:
    """A signal before and after; of several channels the one that moved most."""
    which = f", channel with index {row}, which moved most" if len(view.move) > 1 else ""
    panel.plot(view.before[row].tolist(), color=style.SOFTMAX, linewidth=1.6, label="x0, before")
    panel.plot(view.after[row].tolist(), color=style.PROFILE, linewidth=0.9, label="x+, after")
    style.tidy(panel, title=f"x0 and x+{which}")
    panel.locator_params(axis="x", nbins=TICKS)
    style.legend(panel, where="below")


def _curve_of_move(panel: Axes, *, move: Tensor) -> None:
    panel.axhline(0.0, color=style.QUIET, linewidth=0.8)
    panel.plot(move.tolist(), color=style.THIRD, linewidth=1.0)
    style.tidy(panel, title="difference, x+ - x0")
    panel.locator_params(axis="x", nbins=TICKS)


def _features(panel: Axes, *, view: View) -> None:
    """The features that moved most, as bars, with their values before and after on the right."""
    move, names, scale = view.move, view.features.names, view.features.scale
    size = move if scale is None else move / scale
    shown = list(range(len(move)))
    title = "features"
    if len(move) > MOST:
        moved = max(int((move != 0).sum()), 1)
        shown = size.abs().argsort(descending=True, stable=True)[: min(MOST, moved)].tolist()
        title = f"features that moved most, {len(shown)} of {len(move)}"
    panel.barh(range(len(shown)), size[shown].tolist(), 0.6, color=style.THIRD)
    panel.locator_params(axis="x", nbins=TICKS)
    panel.axvline(0.0, color=style.QUIET, linewidth=0.8)
    units = "each in its own units" if scale is None else "in the scales of the space"
    style.tidy(panel, title=title, x=f"x+ - x0, {units}")
    short = None if names is None else style.plain_names(names)
    _rows(panel, [f"feature {k}" if short is None else short[k] for k in shown])
    _values(panel, [_change(float(view.before[k]), float(view.after[k])) for k in shown])


def _rows(panel: Axes, labels: list[str]) -> None:
    """One label per row, the first on top; few rows get empty space around them."""
    room = max(FEW - len(labels), 0) / 2
    panel.set_yticks(range(len(labels)), labels)
    panel.set_ylim(len(labels) - 0.5 + room, -0.5 - room)


def _values(panel: Axes, texts: list[str]) -> None:
    """Text at the right end of every row."""
    right = panel.twinx()
    right.set_ylim(panel.get_ylim())
    right.set_yticks(range(len(texts)), texts)
    right.tick_params(labelsize=8, colors=style.INK, length=0)
    for spine in right.spines.values():
        spine.set_visible(False)
    place = {"transform": right.transAxes, "va": "bottom", "color": style.QUIET}
    right.text(1.01, 1.015, "x0 → x+", fontsize=8, **place)  # type: ignore[arg-type]


def _change(before: float, after: float) -> str:
    """Both values, with enough digits to see the difference."""
    gap, size = abs(after - before), max(abs(before), abs(after))
    if gap == 0:
        return f"{before:.4g}, unchanged"
    digits = min(max(4, math.floor(math.log10(size)) - math.floor(math.log10(gap)) + 2), 9)
    return f"{before:.{digits}g} → {after:.{digits}g}"


def _classes(panel: Axes, *, view: View, names: list[str]) -> None:
    """c0 and c+ of each class; of many classes only the best at x0 or x+."""
    before, after = (
        values[view.row].cpu() for values in (view.profile.credence, view.profile.credibility)
    )
    title, shown = "credibility of each class", list(range(len(names)))
    if len(names) > MOST:
        shown, title = _best(before, after), f"credibility, best {MOST} of {len(names)}"
    places = torch.arange(len(shown), dtype=torch.float64)
    for values, offset, color, name in (
        (before, -0.2, style.SOFTMAX, "c0, before"),
        (after, 0.2, style.PROFILE, "c+, after"),
    ):
        panel.barh(
            (places + offset).tolist(), values[shown].tolist(), 0.38, color=color, label=name
        )
    style.tidy(panel, title=title)
    _rows(panel, [names[k] for k in shown])
    panel.locator_params(axis="x", nbins=TICKS)
    style.legend(panel, where="below")


def _best(before: Tensor, after: Tensor) -> list[int]:
    """The classes that rank first at x0 or at x+, from most to least credible at x+."""
    places = [values.argsort(descending=True, stable=True).argsort() for values in (before, after)]
    first = torch.minimum(*places)
    chosen = sorted(range(len(first)), key=lambda k: (int(first[k]), int(places[1][k])))[:MOST]
    return sorted(chosen, key=lambda k: int(places[1][k]))


def _nothing(panel: Axes) -> None:
    panel.set_axis_off()
    panel.text(0.0, 0.5, "no credibilities to show", fontsize=9, color=style.QUIET)
