"""The figure of one sample: pictures or features beside its bars of credibility."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from credibly.report import figures, style
from credibly.report.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 10
"""Classes, and features, that one figure shows."""
TICKS = 5
"""Numbers under an axis, at most about, so that long ones do not meet."""
LETTER = 0.075
"""Width of a letter of a label, in inches, about."""

Panel = tuple[float, Callable[["Axes"], None]]
"""Its width in inches, and what draws it."""


def draw(view: View) -> Figure:
    """The figure of one sample."""
    parts = [*_input(view), *_moved(view), _profile(view)]
    width = max(sum(inches for inches, _ in parts), 6.4)
    lines = [view.title(), *([view.sentence()] if _needs_words(view) else [])]
    text = "\n".join(_wrapped(line, width) for line in lines)
    bare = len(parts) == 1 and not view.solved
    height = (0.9 if bare else 3.1) + 0.17 * text.count("\n")
    figure, axes = style.panels(
        len(parts), width=width, height=height, widths=[inches for inches, _ in parts]
    )
    for panel, (_, drawn) in zip(axes, parts, strict=True):
        drawn(panel)
    figure.suptitle(text, fontsize=10, color=style.INK, x=0.01, ha="left")
    return figure


def _needs_words(view: View) -> bool:
    return view.kind == "other" and bool(view.move.isfinite().all())


def _wrapped(text: str, width: float) -> str:
    return textwrap.fill(style.plain(text, 1000), int(width * 13))


def _input(view: View) -> list[Panel]:
    """The input itself, where something else moved."""
    if view.beside is None:
        return []
    low, high = _range(view.beside)
    return [(2.4, partial(_picture, name="the input", pixels=view.beside, low=low, high=high))]


def _moved(view: View) -> list[Panel]:
    if view.kind == "features":
        names = () if view.features is None else view.features.names or ()
        room = LETTER * max([len("feature 123"), *map(len, style.plain_names(names))])
        return [(4.8 + room, partial(_moves, view=view))]
    if view.kind == "signal":
        return [(4.2, partial(_curves, view=view)), (3.4, partial(_curve_of_difference, view=view))]
    if view.kind == "other":
        return []
    low, high = _range(view.before, view.after)
    both = zip(figures.COLUMNS, (view.before, view.after), strict=False)
    return [
        *((2.4, partial(_picture, name=n, pixels=p, low=low, high=high)) for n, p in both),
        (2.4, partial(_difference, move=view.move)),
    ]


def _channel(view: View) -> tuple[int, str]:
    """The channel of a signal that moved most, and how it is called beside a title."""
    channels = len(view.move)
    most = int(view.move.norm(dim=1).argmax())
    return most, f", channel with index {most}, which moved most" if channels > 1 else ""


def _curves(panel: Axes, *, view: View) -> None:
    """A signal before and after, one over the other."""
    row, called = _channel(view)
    for values, name, colour, width in (
        (view.before, "x0, before", style.SOFTMAX, 1.6),
        (view.after, "x+, after", style.PROFILE, 0.9),
    ):
        panel.plot(values[row].tolist(), color=colour, linewidth=width, label=name)
    style.tidy(panel, title=f"x0 and x+{called}")
    panel.locator_params(axis="x", nbins=TICKS)
    style.legend_below(panel)


def _curve_of_difference(panel: Axes, *, view: View) -> None:
    row, _ = _channel(view)
    panel.axhline(0.0, color=style.QUIET, linewidth=0.8)
    panel.plot(view.move[row].tolist(), color=style.THIRD, linewidth=1.0)
    style.tidy(panel, title="difference, x+ - x0")
    panel.locator_params(axis="x", nbins=TICKS)


def _range(*pictures: Tensor) -> tuple[float, float]:
    """(0, 1) if all pixels keep to it, else their smallest and largest value."""
    known = torch.cat([picture[picture.isfinite()] for picture in pictures])
    if len(known) == 0:
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _picture(panel: Axes, *, name: str, pixels: Tensor, low: float, high: float) -> None:
    """Pixels (h, w, 1 or 3) as they are, or stretched over their range, which is then said."""
    if pixels.shape[-1] == 1:
        style.picture(panel, pixels[..., 0].numpy(), low=low, high=high, inverted=False)
    else:
        stretched = ((pixels - low) / (high - low)).clamp(0, 1)
        style.picture(panel, stretched.nan_to_num(0.0).numpy())
    panel.set_title(name, fontsize=9, color=style.INK)
    if (low, high) != (0.0, 1.0):
        _note(panel, f"drawn from {low:.3g} to {high:.3g}")


def _difference(panel: Axes, *, move: Tensor) -> None:
    """Of several channels, at every pixel the one that moved most: a mean could cancel."""
    most = move.gather(-1, move.abs().argmax(-1, keepdim=True))[..., 0]
    limit = float(most.abs().max())
    style.picture(panel, most.numpy(), signed=True, limit=limit or 1.0)
    name = figures.COLUMNS[2] + (", largest channel" if move.shape[-1] > 1 else "")
    panel.set_title(name, fontsize=9, color=style.INK)
    _note(panel, f"blue {-limit:.2g} to red {limit:.2g}" if limit else "nothing moved")


def _note(panel: Axes, text: str) -> None:
    panel.set_xlabel(text, fontsize=8, color=style.QUIET)


def _moves(panel: Axes, *, view: View) -> None:
    """The features that moved most, as bars, with their values before and after on the right."""
    move, count = view.move, len(view.move)
    known = view.features
    scale = None if known is None else known.scale
    size = move if scale is None else move / scale
    order = size.abs().argsort(descending=True, stable=True)
    moved = int((move != 0).sum())
    shown = order[: min(MOST, max(moved, 1))].tolist() if count > MOST else list(range(count))
    places = list(range(len(shown)))
    panel.barh(places, size[shown].tolist(), 0.6, color=style.THIRD)
    panel.locator_params(axis="x", nbins=TICKS)
    panel.axvline(0.0, color=style.QUIET, linewidth=0.8)
    title = "features that moved most" if len(shown) < count else "features"
    style.tidy(
        panel,
        title=f"{title}, {len(shown)} of {count}" if len(shown) < count else title,
        x="x+ - x0, "
        + ("each in its own units" if scale is None else "in the scales of the space"),
    )
    names = None if known is None or known.names is None else style.plain_names(known.names)
    labels = [f"feature {k}" if names is None else names[k] for k in shown]
    panel.set_yticks(places, labels)
    room = max(figures.FEW_CLASSES - len(shown), 0) / 2
    panel.set_ylim(len(shown) - 0.5 + room, -0.5 - room)
    _values(panel, [_change(float(view.before[k]), float(view.after[k])) for k in shown])


def _values(panel: Axes, texts: list[str]) -> None:
    """Words at the right end of every row."""
    right = panel.twinx()
    right.set_ylim(panel.get_ylim())
    right.set_yticks(range(len(texts)), texts)
    right.tick_params(labelsize=8, colors=style.INK, length=0)
    for spine in right.spines.values():
        spine.set_visible(False)
    place = {"transform": right.transAxes, "va": "bottom", "color": style.QUIET}
    right.text(1.01, 1.015, "x0 → x+", fontsize=8, **place)  # type: ignore[arg-type]


def _change(before: float, after: float) -> str:
    """Both values, with as many digits as it takes to tell them apart."""
    gap, size = abs(after - before), max(abs(before), abs(after))
    if gap == 0:
        return f"{before:.4g}, as it was"
    digits = min(max(4, math.floor(math.log10(size)) - math.floor(math.log10(gap)) + 2), 9)
    return f"{before:.{digits}g} → {after:.{digits}g}"


def _profile(view: View) -> Panel:
    if not view.solved:
        return 3.2, _nothing
    names = style.plain_names(view.classes)
    room = LETTER * max(map(len, names))
    return 3.0 + room, partial(_classes, view=view, names=names)


def _classes(panel: Axes, *, view: View, names: list[str]) -> None:
    figures.class_bars(panel, view.profile, view.row, names, most=MOST)
    panel.locator_params(axis="x", nbins=TICKS)


def _nothing(panel: Axes) -> None:
    panel.set_axis_off()
    panel.text(0.0, 0.5, "no credibilities to show", fontsize=9, color=style.QUIET)
