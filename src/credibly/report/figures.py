"""Figures of profiles; each function takes results and returns a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from credibly.report import style

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from credibly.metrics.coverage import CoverageCurve
    from credibly.profile.profile import Profile


FEW_CLASSES = 5
"""With fewer, bars keep the width they have with so many."""


def sorted_profiles(profile: Profile, *, lines: int = 150) -> Figure:
    """Credibilities before and after, sorted and scaled to [0, 1] sample by sample (Fig. 2)."""
    figure, axes = style.panels(2)
    titles = ("before: c0, at the untouched input", "after: c+, at the trade-off")
    for panel, values, title in zip(
        axes, (profile.credence, profile.credibility), titles, strict=True
    ):
        curves = _scaled(values).cpu()
        ranks = range(1, curves.shape[1] + 1)
        for curve in curves[:lines]:
            panel.plot(ranks, curve.tolist(), color=style.PROFILE, alpha=0.10, linewidth=0.8)
        middle = curves.median(0).values.tolist()
        panel.plot(ranks, middle, color=style.INK, linewidth=2, label="median of all")
        style.tidy(
            panel, title=title, x="class, from most to least credible", y="credibility, scaled"
        )
        panel.set_xticks(list(ranks))
        style.legend(panel)
    return figure


def _scaled(values: Tensor) -> Tensor:
    """Sort each row from best to worst and stretch it over [0, 1]."""
    ordered = values.sort(dim=1, descending=True).values
    best, worst = ordered[:, :1], ordered[:, -1:]
    return (ordered - worst) / (best - worst).clamp(min=torch.finfo(values.dtype).tiny)


def trade_off(profiles: Mapping[float, Profile]) -> Figure:
    """Distribution of risk and of overall credibility for several gamma (Fig. 1)."""
    figure, axes = style.panels(2)
    quantities = {
        "risk: squared distance to x+": [p.risk for p in profiles.values()],
        "overall credibility: |c+|²  (0 is best)": [
            p.credibility.square().sum(1) for p in profiles.values()
        ],
    }
    for panel, (title, measured) in zip(axes, quantities.items(), strict=True):
        for gamma, unsorted, color in zip(profiles, measured, style.SHADES, strict=False):
            values = unsorted.sort().values.cpu()
            share = torch.arange(1, len(values) + 1) / len(values)
            panel.plot(
                values.tolist(), share.tolist(), color=color, linewidth=2, label=f"gamma {gamma:g}"
            )
        style.tidy(panel, title=title, x="value", y="share of images below it")
        panel.set_ylim(0, 1)
        style.legend(panel, where="lower right")
    return figure


def coverage(curves: Mapping[str, CoverageCurve]) -> Figure:
    """Accuracy against coverage for several rules (Figs. 3 and 4, without an attack)."""
    figure, axes = style.panels(1, width=6.4, height=3.8)
    colors = (style.SOFTMAX, style.PROFILE, style.THIRD)
    for (name, curve), color in zip(curves.items(), colors, strict=False):
        shown = curve.coverage >= 0.05
        axes[0].plot(
            (100 * curve.coverage[shown]).tolist(),
            (100 * curve.accuracy[shown]).tolist(),
            color=color, linewidth=2, label=name,
        )  # fmt: skip
    style.tidy(axes[0], x="coverage: share of images answered (%)", y="accuracy among them (%)")
    axes[0].set_xlim(0, 100)
    style.legend(axes[0])
    return figure


def example(profile: Profile, sample: int, *, title: str) -> Figure:
    """One image, its counterfactual and its profile before and after."""
    figure, axes = style.panels(4, width=10.4, height=3.0, widths=(1, 1, 1, 1.5))
    before, after = profile.x0[sample, 0].cpu(), profile.perturbed[sample, 0].cpu()
    for panel, pixels, name in zip(axes, (before, after, after - before), COLUMNS, strict=False):
        style.picture(panel, pixels.tolist(), signed=name == COLUMNS[2])
        panel.set_title(name, fontsize=9, color=style.INK)
    names = [profile.class_name(k) for k in range(profile.credibility.shape[1])]
    class_bars(axes[3], profile, sample, names)
    figure.suptitle(title, fontsize=10, color=style.INK, x=0.01, ha="left")
    return figure


def class_bars(
    panel: Axes, profile: Profile, sample: int, names: Sequence[str], *, most: int | None = None
) -> None:
    """c0 and c+ of the classes; if there are more than `most`, of the best at x0 or at x+."""
    before, after = profile.credence[sample].cpu(), profile.credibility[sample].cpu()
    title, shown = "credibility of each class", list(range(len(names)))
    if most is not None and len(names) > most:
        shown = _best(before, after, most)
        title = f"credibility, best {most} of {len(names)}"
    places = torch.arange(len(shown), dtype=torch.float64)
    for values, offset, color, name in (
        (before, -0.2, style.SOFTMAX, "c0, before"),
        (after, 0.2, style.PROFILE, "c+, after"),
    ):
        height = (places + offset).tolist()
        panel.barh(height, values[shown].tolist(), 0.38, color=color, label=name)
    style.tidy(panel, title=title)
    panel.set_yticks(places.tolist(), [names[k] for k in shown])
    panel.invert_yaxis()
    if len(shown) < FEW_CLASSES:  # two classes would fill the panel with two blocks
        room = (FEW_CLASSES - len(shown)) / 2
        panel.set_ylim(len(shown) - 0.5 + room, -0.5 - room)
    style.legend_below(panel)


def _best(before: Tensor, after: Tensor, most: int) -> list[int]:
    """The classes that come first in either of two rankings, from most to least credible at x+."""
    places = [values.argsort(descending=True, stable=True).argsort() for values in (before, after)]
    first = torch.minimum(*places)
    chosen = sorted(range(len(first)), key=lambda k: (int(first[k]), int(places[1][k])))[:most]
    return sorted(chosen, key=lambda k: int(places[1][k]))


COLUMNS = ("x0", "x+", "difference")


def gallery(profile: Profile, chosen: Sequence[int], captions: Sequence[str]) -> Figure:
    """Rows of x0, x+ and their difference, one column a sample."""
    figure, axes = style.panels(len(chosen), rows=3, width=1.35 * len(chosen) + 0.4, height=4.9)
    for column, (sample, caption) in enumerate(zip(chosen, captions, strict=True)):
        before, after = profile.x0[sample, 0].cpu(), profile.perturbed[sample, 0].cpu()
        for row, pixels in enumerate((before, after, after - before)):
            panel = axes[row * len(chosen) + column]
            style.picture(panel, pixels.tolist(), signed=row == 2)
            if column == 0:
                panel.set_ylabel(COLUMNS[row], fontsize=9, color=style.INK)
        axes[column].set_title(caption, fontsize=7.5, color=style.INK)
    return figure
