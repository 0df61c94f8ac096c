"""Figures about a study: error curves, differences, detection."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from credibly.metrics import error_coverage
from credibly.metrics.intervals import Interval
from credibly.plot import style
from credibly.report.study_view import StudyView, auroc_of, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from torch import Tensor

    from credibly.study import Rows

OWN = (style.PROFILE, style.THIRD, "#8e5aa8")
BASELINES = (style.SOFTMAX, "#b0413e", "#b8963e")
SHOWN = 8


def curves(view: StudyView) -> Figure:
    """Error among the answered over coverage, for the ordinary set and up to three others."""
    names = [name for name in curve_sets(view) if name in view.result.rows]
    figure, axes = style.grid(len(names), columns=2, width=4.6, height=3.3, margin=0.6)
    for panel, name in zip(axes, names, strict=True):
        _draw_curves(panel, view, view.result.rows[name])
        kind = view.result.sets[name].kind
        short = style.plain(name, 36)
        title = short if name == kind else f"{short} ({kind})"
        style.tidy(panel, title=title, x="answered (%)", y="wrong among them (%)")
        panel.set_xlim(0, 100)
        panel.set_ylim(bottom=0)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False,
        labelcolor=style.INK,
    )  # fmt: skip
    return figure


def curve_sets(view: StudyView) -> list[str]:
    """The ordinary set, then up to three labelled sets with different accuracies."""
    others = {n: p.accuracy["model"] for n, p in view.labelled.items()}
    left = [name for name, value in others.items() if 0 < value < 1]
    chosen = [view.result.ordinary]
    for wanted in (0.85, 0.65, 0.4):
        if left:
            nearest = min(left, key=lambda name: abs(others[name] - wanted))
            left.remove(nearest)
            chosen.append(nearest)
    return chosen


def _draw_curves(panel: Axes, view: StudyView, rows: Rows) -> None:
    for own, colors in ((False, BASELINES), (True, OWN)):
        names = [name for name in view.curves if view.from_profile(name) is own]
        for name, color in zip(names, colors, strict=False):
            if name in rows.scores:
                line = _curve(panel, rows.scores[name], rows.correct)
                line.set(color=color, label=style.plain(name, 40))
    if "ratio" in rows.scores:
        line = _curve(panel, rows.scores["ratio"], rows.credible_correct)
        line.set(color=style.QUIET, linestyle="--", label="most credible class, by ratio")


def _curve(panel: Axes, score: Tensor, correct: Tensor) -> Line2D:
    good = ~score.isnan()
    if not bool(good.any()):
        return panel.plot([], [])[0]
    curve = error_coverage(score[good], correct[good])
    shown = (curve.coverage >= 0.02).nonzero().squeeze(1)
    some = shown[torch.linspace(0, len(shown) - 1, min(400, len(shown))).long()]
    x, y = (100 * curve.coverage[some]).tolist(), (100 * curve.error_rate[some]).tolist()
    return panel.plot(x, y, linewidth=1.6)[0]


def differences(view: StudyView) -> Figure:
    """AURC of every score minus that of the reference on the ordinary set, with intervals."""
    names = [name for name in view.ranked if name != view.result.reference]
    gaps = [view.ordinary.failures[name].differences["aurc"] for name in names]
    figure, (panel,) = style.panels(1, width=8.6, height=0.24 * len(names) + 1.1)
    for place, (name, gap) in enumerate(zip(names, gaps, strict=True)):
        color = _color(view, name)
        _whisker(panel, gap, place, color, scale=100.0)
        panel.plot([100 * gap.value], [place], "o", color=color, markersize=4)
    style.tidy(
        panel,
        title=f"difference to {style.plain(view.result.reference)}: left of the line is better",
        x="difference of AURC, in percentage points (95 % intervals)",
    )
    panel.axvline(0, color=style.INK, linewidth=0.9)
    panel.set_yticks(range(len(names)), style.plain_names(names, 40))
    panel.set_ylim(len(names) - 0.4, -0.6)
    _zoom(panel, gaps)
    for color, words in ((style.PROFILE, "from the profile"), (style.SOFTMAX, "without a solve")):
        panel.plot([], [], "o-", color=color, markersize=4, label=words)
    style.legend(panel, where="upper right")
    return figure


def _zoom(panel: Axes, gaps: list[Interval]) -> None:
    """Cut the axis where far outliers would leave no room for the others, and say so."""
    known = sorted(100 * gap.value for gap in gaps if not math.isnan(gap.value))
    limit = 4 * max(abs(known[(3 * len(known)) // 4]), abs(known[0])) if len(known) > 3 else 0.0
    if 0 < limit < known[-1]:
        panel.set_xlim(max(panel.get_xlim()[0], -limit), limit)
        beyond = sum(value > limit for value in known)
        panel.set_xlabel(f"{panel.get_xlabel()}; {beyond} are beyond the right edge, see the table")


def detection(view: StudyView) -> Figure:
    """AUROC against the ordinary set for a few scores; one panel per set."""
    names, picks = shown_sets(view), view.detectors
    titles = style.plain_names(names, 24)
    height = 0.25 * len(picks) + 0.75
    figure, axes = style.grid(len(names), columns=4, width=2.1, height=height, margin=2.2)
    for place, (panel, name) in enumerate(zip(axes, names, strict=True)):
        for row, pick in enumerate(picks):
            value = auroc_of(view.result.sets[name], pick).value
            panel.barh(row, value.value, 0.68, color=_color(view, pick[0]), alpha=0.75)
            _whisker(panel, value, row, style.INK)
        style.tidy(panel, title=titles[place])
        panel.axvline(0.5, color=style.INK, linewidth=0.8, linestyle=":")
        panel.set_xlim(0, 1.02)
        panel.set_xticks([0, 0.5, 1])
        panel.set_ylim(len(picks) - 0.5, -0.5)
        labels = style.plain_names([label(p) for p in picks], 40) if place % 4 == 0 else []
        panel.set_yticks(range(len(picks)), labels)
    return figure


def shown_sets(view: StudyView) -> list[str]:
    """At most eight sets to be flagged, outliers first, evenly chosen from all."""
    outliers, attacked = list(view.of_kind("outliers")), list(view.of_kind("attacked"))
    few = _evenly(outliers, max(SHOWN // 2, SHOWN - len(attacked)))
    return few + _evenly(attacked, SHOWN - len(few))


def _evenly(names: list[str], count: int) -> list[str]:
    if len(names) <= count:
        return names
    return [names[round(k * (len(names) - 1) / (count - 1))] for k in range(count)]


def _whisker(
    panel: Axes, interval: Interval, place: int, color: str, *, scale: float = 1.0
) -> None:
    ends = [scale * interval.low, scale * interval.high]
    panel.plot(ends, [place, place], color=color, linewidth=1.6, solid_capstyle="butt")


def _color(view: StudyView, name: str) -> str:
    return style.PROFILE if view.from_profile(name) else style.SOFTMAX
