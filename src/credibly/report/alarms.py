"""The table of alarms that `credibly evaluate` prints, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from credibly.plot import style
from credibly.report.tables import Table, number
from credibly.study.alarms import JUDGE, WITH_PROFILES, Alarms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from credibly.metrics.intervals import Interval

COLORS = (style.PROFILE, style.SHADES[0], style.THIRD, style.SOFTMAX)
"""Of four methods; of three the second is left out."""

DRAWN = 10
"""Sets that are drawn; more do not fit."""

_BUILD = {
    JUDGE: "cr.Judge.fit(model, ordinary)",
    WITH_PROFILES: 'cr.Judge.fit(model, ordinary, profile="doubtful")',
}


def alarms_table(alarms: Alarms) -> Table:
    """One row per set: the share of alarms of each method with its interval; then the price."""
    rows = [
        [kind, *(_percent(found[name]) for name in alarms.passes)]
        for kind, found in alarms.shares.items()
    ]
    rows.append(["passes per input", *(number(price, 2) for price in alarms.passes.values())])
    title = (
        f"Called not ordinary (%), thresholds set for {alarms.rate:.0%} of false alarms by "
        f"{alarms.fitted_on} ordinary inputs"
    )
    return Table(rows, ["inputs", *alarms.passes], title)


def advice_on_alarms(alarms: Alarms) -> list[str]:
    """Which method to build."""
    best = alarms.best()
    build = _BUILD.get(best, f"a threshold on {best}")
    price = number(alarms.passes[best], 2)
    return [f"To tell inputs that do not belong: {build}, {price} passes per input."]


def alarms_figure(shares: Mapping[str, Mapping[str, Interval]]) -> Figure:
    """Shares of alarms with intervals: one group of bars per set, one bar per method."""
    shown = dict(list(shares.items())[:DRAWN])
    names = list(next(iter(shown.values())))
    colors = COLORS if len(names) == len(COLORS) else (COLORS[0], *COLORS[2:])
    figure, (panel,) = style.panels(1, width=7.6, height=3.6)
    step = 0.81 / len(names)
    for k, (name, color) in enumerate(zip(names, colors, strict=True)):
        found = [of_set[name] for of_set in shown.values()]
        places = [place + step * (k - (len(names) - 1) / 2) for place in range(len(found))]
        panel.bar(
            places, [100 * interval.value for interval in found], 0.93 * step,
            color=color, label=name, yerr=_errors(found),
            error_kw={"elinewidth": 0.8, "ecolor": style.QUIET},
        )  # fmt: skip
    panel.set_xticks(range(len(shown)), [_in_lines(name) for name in shown])
    style.tidy(panel, y="called not ordinary (%)")
    panel.set_ylim(0, 105)
    style.legend(panel)
    return figure


def _errors(found: Sequence[Interval]) -> list[list[float]]:
    """How far each interval reaches below and above its value, in percent."""
    below = [100 * max(0.0, one.value - one.low) for one in found]
    return [below, [100 * max(0.0, one.high - one.value) for one in found]]


def _in_lines(name: str) -> str:
    return style.plain(name, 24).replace(" ", "\n")


def _percent(share: object) -> str:
    value, low, high = (
        round(100 * getattr(share, name)) for name in ("value", "low", "high")
    )  # whole numbers have no -0
    return f"{value} [{low}, {high}]"
