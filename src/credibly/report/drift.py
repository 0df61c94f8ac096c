"""The picture of a watch over a stream."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from credibly.plot import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from credibly.decide.drift_bets import Numbers
    from credibly.decide.drift_engine import WatchSettings
    from credibly.decide.drift_history import DriftHistory
    from credibly.decide.drift_state import DriftState

SHOWN = 6
"""Classes with the most evidence that are drawn in colours."""

_COLOURS = (*style.SHADES, style.SOFTMAX, style.THIRD, "#8e5aa8")


def draw_drift(
    history: DriftHistory,
    state: DriftState,
    settings: WatchSettings,
    names: Sequence[str] | None = None,
) -> Figure:
    """Capital along the stream on a log scale, with what it must reach and where it did.

    Args:
        history: of the stream.
        state: at its end.
        settings: of the watch.
        names: of the classes.
    """
    figure, axes = style.panels(2 if history.classes else 1, width=10.0, height=3.8)
    _line(axes[0], history.places, history.whole, "all inputs", style.PROFILE)
    if history.classes:
        _line(axes[0], history.places, history.mean, "average of the classes", style.SOFTMAX)
    _finish(axes[0], state, settings.log_threshold, "All inputs")
    style.legend(axes[0])
    if history.classes:
        _draw_classes(axes[1], history, names)
        _finish(axes[1], state, settings.class_threshold, "By predicted class")
    return figure


def _draw_classes(axes: Axes, history: DriftHistory, names: Sequence[str] | None) -> None:
    curves = {k: history.of_class(k) for k in sorted(history.classes)}
    largest = sorted(curves, key=lambda k: float(curves[k].max()), reverse=True)[:SHOWN]
    for k, curve in curves.items():
        if k not in largest:
            _line(axes, history.places, curve, None, "#d5dae0")
    for k, colour in zip(largest, _COLOURS, strict=False):
        _line(axes, history.places, curves[k], str(k) if names is None else names[k], colour)
    style.legend(axes)


def _line(axes: Axes, places: Numbers, logs: Numbers, label: str | None, colour: str) -> None:
    axes.plot(places, logs / math.log(10), label=label, color=colour, linewidth=1.4)


def _finish(axes: Axes, state: DriftState, threshold: float, title: str) -> None:
    """The threshold, the alarm and the axes; capital is written as a power of ten."""
    axes.axhline(threshold / math.log(10), color="#b0413e", linewidth=1, linestyle="--")
    if state.since is not None:
        axes.axvline(state.since, color="#b0413e", linewidth=1)
        axes.annotate(
            f"alarm at {state.since}", (state.since, 0.98), xycoords=("data", "axes fraction"),
            xytext=(4, 0), textcoords="offset points", fontsize=8, color="#b0413e", va="top",
        )  # fmt: skip
    style.tidy(axes, title=title, x="inputs", y="capital")
    axes.yaxis.set_major_formatter(lambda value, _: f"$10^{{{value:g}}}$")
