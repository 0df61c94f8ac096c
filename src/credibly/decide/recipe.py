"""Which signals a Judge uses, and how: the one place where that is chosen.

The networks that chose it, and others that confirm it, are in docs/explanation/evidence.md.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from credibly._validation import real_number
from credibly.errors import FileFormatError
from credibly.metrics.selective import aurc

OUTLIER = {
    "features": 1, "inputs": 1, "statistics": 1, "correlations": 1, "range": 1, "energy": -1,
    "shift": -1, "gain": -1,
}  # fmt: skip
"""Signals of "does it not belong?"; 1 where large values are strange, -1 where small ones are."""

UNUSUAL = {"confidence": ("confidence",), "together": ("confidence", "shift", "elasticity")}
"""What is looked at for "was it tampered with?", strange on either side: by one forward, and with
what a profile adds."""

PRIORITY = (
    "correlations", "range", "inputs", "features", "statistics", "unusual confidence", "energy",
    "gain", "shift", "unusual together",
)  # fmt: skip
"""Signals in the order in which they are used where few ordinary inputs allow only some."""

SIGNALS_PER_RANK = 2.0
"""Signals that are used for each ordinary input that may be called strange, at the rate asked for.

The strangest of the ordinary inputs in any signal sets the threshold: at 1 % and 150 of them, the
single strangest. The more signals, the stranger that one is, and the less is caught.
"""

FROM_PROFILE = frozenset({"shift", "gain", "elasticity"})
"""Signals that need a profile; one forward gives all others."""

BLEND = 3.0
"""How signals of "does it not belong?" are joined: BLEND log sum exp(surprise / BLEND).

Near zero it is the strangest signal alone, for large values their mean. Between them, an input that
is a little strange in many ways is found, and one that is very strange in a single way as well.
"""

HELD_BACK = 1.0
"""Surprise by which "was it tampered with?" must exceed "does it not belong?" to raise the alarm:
it gets about a quarter of the false alarms."""

DOUBTFUL = 0.25
"""Share of the ordinary inputs that are looked at again, with a profile."""

AGREEMENT = 0.5
"""Share of the agreement of neighbours in trust, where they agree."""

DISAGREE = 0.15
"""Share of ordinary inputs whose neighbours disagree from which agreement does not count."""

RECIPES = 2
"""Recipes of trust between which labels choose: without agreement, and with it."""

FAR = 30.0
"""Surprise from which an input among the ordinary ones is set aside as not ordinary."""

MANY_CLASSES, TOP = 50, 10
"""From how many classes a profile is asked over the most probable ones, and over how many."""


@dataclass(frozen=True)
class TrustRecipe:
    """The ranking of "is this class right?" as a sum of signals, each in units of its spread.

    The confidence (log odds of the class, over views where there are any), and the agreement of the
    neighbours in the last hidden layer. Without labels, agreement counts less the more of the
    ordinary inputs have neighbours that disagree: there the classes overlap in that layer. With
    labels, the better one of "not at all" and "as much as ever" is taken.

    Attributes:
        units: interquartile range of each signal among ordinary inputs.
        centre: median of the agreement among ordinary inputs, for inputs that have none.
        shares: the weight of each signal.
    """

    units: dict[str, float]
    centre: float
    shares: dict[str, float]

    @classmethod
    def fit(cls, signals: dict[str, Tensor], right: Tensor | None = None) -> TrustRecipe:
        """From the signals (n,) of ordinary inputs, and which are `right` (n,), if it is known."""
        sure = "views" if "views" in signals else "confidence"
        middles = {n: _quartiles(signals[n]) for n in (sure, "agreement") if n in signals}
        units = {name: high - low for name, (low, _, high) in middles.items() if high > low}
        centre = middles.get("agreement", (0.0, 0.0, 0.0))[1]
        # with labels always these two: the promise of an error rate counts them (RECIPES)
        some = [agreement_share(signals)] if right is None else [0.0, AGREEMENT]
        recipes = [cls._of(units, centre, {sure: 1.0, "agreement": share}) for share in some]
        if right is None:
            return recipes[0]
        areas = [aurc(recipe(signals), right) for recipe in recipes]
        return recipes[areas.index(min(areas))]

    @classmethod
    def _of(cls, units: dict[str, float], centre: float, shares: dict[str, float]) -> TrustRecipe:
        kept = {name: share for name, share in shares.items() if name in units and share > 0}
        return cls({name: units[name] for name in kept}, centre, kept)

    def __call__(self, signals: dict[str, Tensor]) -> Tensor:
        """One number per input (n,), higher is more trustworthy."""
        total = signals["confidence"] * 0
        for name, share in self.shares.items():
            part = signals[name]
            if name == "agreement":  # no ordinary input may have the class
                part = (part - self.centre).nan_to_num(0.0)
            total = total + share / self.units[name] * part
        return total

    def as_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> TrustRecipe:
        """Read what `as_json` wrote."""
        units, shares = (
            {str(name): _number(value) for name, value in content[part].items()}
            for part in ("units", "shares")
        )
        if units.keys() != shares.keys() or any(unit <= 0 for unit in units.values()):
            raise FileFormatError("expected a share and a positive unit for each signal of trust")
        if not units.keys() <= {"confidence", "views", "agreement"}:
            raise FileFormatError(f"expected signals of trust, got {sorted(units)}")
        return cls(units, _number(content["centre"]), shares)


def agreement_share(signals: dict[str, Tensor]) -> float:
    """How much agreement counts, by the share of ordinary inputs whose neighbours disagree.

    Where no ordinary input has the class, nothing agrees.
    """
    if "agreement" not in signals:
        return 0.0
    disagree = float((~(signals["agreement"] > 0)).double().mean())
    return AGREEMENT * max(0.0, 1 - disagree / DISAGREE)


def affordable(available: Collection[str], inputs: int, rate: float) -> frozenset[str]:
    """The signals that so many ordinary inputs allow at this rate of false alarms."""
    most = max(2, int(SIGNALS_PER_RANK * rate * (inputs + 1)))
    return frozenset([name for name in PRIORITY if name in available][:most])


def _quartiles(values: Tensor) -> tuple[float, float, float]:
    known = values[~values.isnan()].double().cpu()
    if not len(known):
        return 0.0, 0.0, 0.0
    low, middle, high = known.quantile(known.new_tensor([0.25, 0.5, 0.75])).tolist()
    return low, middle, high


def _number(value: Any) -> float:
    number = real_number(value)
    if number is None or number != number or abs(number) == float("inf"):  # noqa: PLR0124
        raise FileFormatError(f"expected a finite number, got {value!r}")
    return number
