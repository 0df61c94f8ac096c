"""The table of alarms that `credibly evaluate` prints, and what follows from it."""

from __future__ import annotations

from credibly.report.tables import Table, number
from credibly.study.alarms import JUDGE, WITH_PROFILES, Alarms

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


def _percent(share: object) -> str:
    value, low, high = (100 * getattr(share, name) for name in ("value", "low", "high"))
    return f"{value:.0f} [{low:.0f}, {high:.0f}]"
