"""Figures of many profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

from credibly.metrics import ErrorCoverageCurve
from credibly.profile.profile import Profile
from credibly.report import style


def sorted_profiles(profile: Profile, *, lines: int = 150) -> Figure:
    """Credibilities before and after, each sample sorted and scaled to [0, 1] (Fig. 2)."""
    figure, axes = style.panels(2)
    titles = ("before: c0, at the original input", "after: c+, at the trade-off")
    both = (profile.credence, profile.credibility)
    for panel, values, title in zip(axes, both, titles, strict=True):
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
    """Sort each row from best to worst and scale it to [0, 1]."""
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
            values = unsorted.sort().values.tolist()
            share = [(k + 1) / len(values) for k in range(len(values))]
            panel.plot(values, share, color=color, linewidth=2, label=f"gamma {gamma:g}")
        style.tidy(panel, title=title, x="value", y="share of images below it")
        panel.set_ylim(0, 1)
        style.legend(panel, where="lower right")
    return figure


def coverage(curves: Mapping[str, ErrorCoverageCurve]) -> Figure:
    """Accuracy against coverage for several rules (Figs. 3 and 4, without an attack)."""
    figure, (panel,) = style.panels(1, width=6.4, height=3.8)
    colors = (style.SOFTMAX, style.PROFILE, style.THIRD)
    for (name, curve), color in zip(curves.items(), colors, strict=False):
        shown = curve.coverage >= 0.05
        x, y = (100 * curve.coverage[shown]).tolist(), (100 * curve.accuracy[shown]).tolist()
        panel.plot(x, y, color=color, linewidth=2, label=name)
    style.tidy(panel, x="coverage: share of images answered (%)", y="accuracy among them (%)")
    panel.set_xlim(0, 100)
    style.legend(panel)
    return figure


def gallery(profile: Profile, chosen: Sequence[int], captions: Sequence[str]) -> Figure:
    """Rows of x0, x+ and their difference; one column per sample."""
    figure, axes = style.panels(len(chosen), rows=3, width=1.35 * len(chosen) + 0.4, height=4.9)
    for column, (sample, caption) in enumerate(zip(chosen, captions, strict=True)):
        before, after = profile.x0[sample, 0].cpu(), profile.perturbed[sample, 0].cpu()
        for row, pixels in enumerate((before, after, after - before)):
            panel, signed = axes[row * len(chosen) + column], row == 2
            style.picture(panel, pixels.tolist(), signed=signed, high=0.15 if signed else 1.0)
            if column == 0:
                panel.set_ylabel(("x0", "x+", "difference")[row], fontsize=9, color=style.INK)
        axes[column].set_title(caption, fontsize=7.5, color=style.INK)
    return figure
