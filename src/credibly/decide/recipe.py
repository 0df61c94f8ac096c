"""Which signals a Judge uses, and how: the one place where that is chosen.

The signals were chosen on two ResNet18, small networks and tables, and the shares of trust on the
networks that docs/evidence.md says choose. Other networks confirm.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
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

FROM_PROFILE = frozenset({"shift", "gain", "elasticity", "predicted_ratio"})
"""Signals that need a profile; one forward gives all others."""

DOUBTFUL = 0.25
"""Share of the ordinary inputs that are looked at again, with a profile."""

BEYOND = 5.0
"""Surprise beyond that of one in a hundred ordinary inputs from which an input is trusted less."""

RECIPES = 2
"""Recipes of trust between which labels choose: that of confidence, and the one with all shares."""

FAR = 30.0
"""Surprise from which an input among the ordinary ones is set aside as not ordinary."""

MANY_CLASSES, TOP = 50, 10
"""From how many classes a profile is asked over the most probable ones, and over how many."""


@dataclass(frozen=True)
class TrustRecipe:
    """The ranking of "is this class right?" as a sum of signals, each in units of its spread.

    Large overconfident networks give nearly all inputs a high confidence, whose size then says
    little: there the shape of the logits and the profile rank better. Small calibrated networks
    rank best by confidence alone. What tells them apart without labels is the median of the log
    odds in units of their spread. With labels, they choose.

    Attributes:
        units: interquartile range of each signal among ordinary inputs.
        centre: median of `predicted_ratio` among ordinary inputs that are looked at again.
        shares: the weight of each signal.
        drop: by how much an input that is far too strange is trusted less: the range of nine tenths
            of the ordinary inputs. It is constant, so that such inputs keep their order.
    """

    units: dict[str, float]
    centre: float
    shares: dict[str, float]
    drop: float = 0.0

    @classmethod
    def fit(
        cls, signals: dict[str, Tensor], looked_at: Tensor, right: Tensor | None = None
    ) -> TrustRecipe:
        """From the signals (n,) of ordinary inputs, of which `looked_at` had a profile.

        Where it is known which of them are `right` (n,), the recipe that ranks these better is
        taken, of two: the confidence alone, or with the full shares of the other signals.
        """
        known = {name: signals[name] for name in shares_of(0.0) if name in signals}
        if "predicted_ratio" in known:
            known["predicted_ratio"] = known["predicted_ratio"][looked_at]
        middles = {name: _quartiles(values) for name, values in known.items()}
        units = {name: high - low for name, (low, _, high) in middles.items() if high > low}
        centre = middles.get("predicted_ratio", (0.0, 0.0, 0.0))[1]
        sharpness = middles["confidence"][1] / units.get("confidence", 1.0)
        # with labels always these two: the promise of an error rate counts them (RECIPES)
        some = [sharpness] if right is None else [0.0, float("inf")]
        recipes = [cls._of(units, centre, shares_of(value)) for value in some]
        ranked = [recipe(signals) for recipe in recipes]
        areas = [0.0 if right is None else aurc(trust, right) for trust in ranked]
        best = min(range(len(areas)), key=areas.__getitem__)
        low, high = ranked[best].quantile(ranked[best].new_tensor([0.05, 0.95])).tolist()
        return replace(recipes[best], drop=high - low)

    @classmethod
    def _of(cls, units: dict[str, float], centre: float, shares: dict[str, float]) -> TrustRecipe:
        kept = {name: share for name, share in shares.items() if name in units and share > 0}
        return cls({name: units[name] for name in kept}, centre, kept)

    def __call__(self, signals: dict[str, Tensor]) -> Tensor:
        """One number per input (n,), higher is more trustworthy."""
        total = signals["confidence"] * 0
        for name, share in self.shares.items():
            if name == "predicted_ratio":  # only those that are looked at again have one
                part = (signals[name] - self.centre).nan_to_num(0.0)
            else:
                part = signals[name]
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
        if not units.keys() <= shares_of(0.0).keys():
            raise FileFormatError(f"expected signals of trust, got {sorted(units)}")
        drop = _number(content["drop"])
        if drop < 0:
            raise FileFormatError(f"expected a drop of trust that is not negative, got {drop:g}")
        return cls(units, _number(content["centre"]), shares, drop)


def affordable(available: Collection[str], inputs: int, rate: float) -> frozenset[str]:
    """The signals that so many ordinary inputs allow at this rate of false alarms."""
    most = max(2, int(SIGNALS_PER_RANK * rate * (inputs + 1)))
    return frozenset([name for name in PRIORITY if name in available][:most])


def shares_of(sharpness: float) -> dict[str, float]:
    """The weights of the signals of trust, from the median log odds over their spread."""
    part = min(max((sharpness - 1.7) / 0.3, 0.0), 1.0)
    return {"confidence": 1.0, "p_norm": 0.5 * part, "predicted_ratio": 0.25 * part}


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
