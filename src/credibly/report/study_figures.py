"""Figures about a study: curves of risk, differences, detection."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from credibly.metrics.measures import error_coverage
from credibly.report import style
from credibly.report.study_view import StudyView, auroc_of, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from torch import Tensor

    from credibly.metrics.intervals import Interval
    from credibly.study.study import Rows

OWN = (style.PROFILE, style.THIRD, "#8e5aa8")
RIVALS = (style.SOFTMAX, "#b0413e", "#b8963e")
SHOWN = 8


def curves(view: StudyView) -> Figure:
    """Error among the answered over coverage, for the ordinary set and up to three others."""
    names = [name for name in panels_of(view) if name in view.result.rows]
    columns = min(2, len(names))
    rows = math.ceil(len(names) / columns)
    figure, axes = style.panels(columns, rows=rows, width=4.6 * columns + 0.6, height=3.3 * rows)
    for panel, name in zip(axes, names, strict=False):
        _curves_of(panel, view, view.result.rows[name])
        kind = view.result.sets[name].kind
        short = style.plain(name, 36)
        title = short if name == kind else f"{short} ({kind})"
        style.tidy(panel, title=title, x="answered (%)", y="wrong among them (%)")
        panel.set_xlim(0, 100)
        panel.set_ylim(bottom=0)
    for panel in axes[len(names) :]:
        panel.set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False,
        labelcolor=style.INK,
    )  # fmt: skip
    return figure


def panels_of(view: StudyView) -> list[str]:
    """The ordinary set, then the labelled sets whose accuracies are spread most evenly."""
    others = {
        name: part.accuracy["model"]
        for name, part in view.result.sets.items()
        if part.kind != "ordinary" and 0 < part.accuracy.get("model", 0.0) < 1
    }
    chosen = []
    for wanted in (0.85, 0.65, 0.4):
        left = {name: abs(value - wanted) for name, value in others.items() if name not in chosen}
        if left:
            chosen.append(min(left, key=lambda name: left[name]))
    return [view.result.ordinary, *chosen]


def _curves_of(panel: Axes, view: StudyView, rows: Rows) -> None:
    for own, colors in ((False, RIVALS), (True, OWN)):
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
    shares, risks = [], []
    if bool(good.any()):
        curve = error_coverage(score[good], correct[good])
        shown = (curve.coverage >= 0.02).nonzero().squeeze(1)
        some = shown[torch.linspace(0, len(shown) - 1, min(400, len(shown))).long()]
        shares = (100 * curve.coverage[some]).tolist()
        risks = (100 * curve.error_rate[some]).tolist()
    return panel.plot(shares, risks, linewidth=1.6)[0]


def differences(view: StudyView) -> Figure:
    """AURC of every score less that of the reference on the ordinary set, with intervals."""
    names = [name for name in view.ranked if name != view.result.reference]
    figure, axes = style.panels(1, width=8.6, height=0.24 * len(names) + 1.1)
    panel = axes[0]
    failures = view.ordinary.failures
    for place, name in enumerate(names):
        gap = failures[name].differences["aurc"]
        _whisker(panel, gap, place, _color(view, name), scale=100.0)
    style.tidy(
        panel,
        title=f"difference to {style.plain(view.result.reference)}: left of the line is better",
        x="difference of AURC, in percentage points (95 % intervals)",
    )
    panel.axvline(0, color=style.INK, linewidth=0.9)
    panel.set_yticks(range(len(names)), style.plain_names(names, 40))
    panel.set_ylim(len(names) - 0.4, -0.6)
    _zoom(panel, [failures[name].differences["aurc"] for name in names])
    _key(panel)
    return figure


def _zoom(panel: Axes, gaps: list[Interval]) -> None:
    """Far outliers leave the others a dot: cut the axis, and say so."""
    known = sorted(100 * gap.value for gap in gaps if not math.isnan(gap.value))
    if len(known) < 4:
        return
    limit = 4 * max(abs(known[(3 * len(known)) // 4]), abs(known[0]))
    if 0 < limit < known[-1]:
        lowest = min(100 * gap.low for gap in gaps if not math.isnan(gap.low))
        panel.set_xlim(max(min(1.1 * lowest, -0.05 * limit), -limit), limit)
        beyond = [place for place, gap in enumerate(gaps) if 100 * gap.value > limit]
        panel.plot([0.985 * limit] * len(beyond), beyond, ">", color=style.INK, markersize=5)
        words = f"{panel.get_xlabel()}; {len(beyond)} lie beyond the right edge, see the table"
        panel.set_xlabel(words)


def detection(view: StudyView) -> Figure:
    """AUROC against the ordinary set for a handful of scores, a panel a set."""
    names = shown_sets(view)
    titles, picks = style.plain_names(names, 24), view.detectors
    columns = min(4, len(names))
    rows = math.ceil(len(names) / columns)
    height = rows * (0.25 * len(picks) + 0.75)
    figure, axes = style.panels(columns, rows=rows, width=2.1 * columns + 2.2, height=height)
    for number, (panel, name) in enumerate(zip(axes, names, strict=False)):
        for place, pick in enumerate(picks):
            value = auroc_of(view.result.sets[name], pick)
            panel.barh(place, value.value, 0.68, color=_color(view, pick[0]), alpha=0.75)
            _whisker(panel, value, place, style.INK, dot=False)
        style.tidy(panel)
        panel.set_title(titles[number], fontsize=9, color=style.INK, loc="left")
        panel.axvline(0.5, color=style.INK, linewidth=0.8, linestyle=":")
        panel.set_xlim(0, 1.02)
        panel.set_xticks([0, 0.5, 1])
        panel.set_ylim(len(picks) - 0.5, -0.5)
        first = number % columns == 0
        panel.set_yticks(
            range(len(picks)), style.plain_names([label(p) for p in picks], 40) if first else []
        )
    for panel in axes[len(names) :]:
        panel.set_visible(False)
    return figure


def shown_sets(view: StudyView) -> list[str]:
    """At most eight sets to be flagged, outliers first, spread over all that there are."""
    outliers, attacked = list(view.of_kind("outliers")), list(view.of_kind("attacked"))
    few = _spread(outliers, max(SHOWN // 2, SHOWN - len(attacked)))
    return few + _spread(attacked, SHOWN - len(few))


def _spread(names: list[str], count: int) -> list[str]:
    if len(names) <= count:
        return names
    return [names[round(k * (len(names) - 1) / (count - 1))] for k in range(count)]


def _whisker(
    panel: Axes, interval: Interval, place: int, color: str, *, scale: float = 1.0, dot: bool = True
) -> None:
    ends = [scale * interval.low, scale * interval.high]
    panel.plot(ends, [place, place], color=color, linewidth=1.6, solid_capstyle="butt")
    if dot:
        panel.plot([scale * interval.value], [place], "o", color=color, markersize=4)


def _color(view: StudyView, name: str) -> str:
    return style.PROFILE if view.from_profile(name) else style.SOFTMAX


def _key(panel: Axes) -> None:
    for color, words in ((style.PROFILE, "from the profile"), (style.SOFTMAX, "without a solve")):
        panel.plot([], [], "o-", color=color, markersize=4, label=words)
    panel.legend(fontsize=8, frameon=False, labelcolor=style.INK, loc="upper right")
