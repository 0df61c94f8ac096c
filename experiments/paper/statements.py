"""The claims in the text of the paper's experiments, as statements about measured numbers.

Those about single networks and their profiles are in `statements_profiles`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.paper.adaptive import of_space, spaces
from experiments.paper.claims import Claim, Statement, Value
from experiments.paper.measures import GRID
from experiments.paper.statements_profiles import (
    accuracy_claims,
    compromise_claims,
    divergence_claims,
    profile_claims,
)

Records = Mapping[str, Mapping[str, Any]]
Found = Mapping[str, Any]
Statements = list[Statement]

CIFAR, FASHION = "filtering-cifar10", "filtering-fashion-mnist"


def all_claims(records: Records) -> list[Claim]:
    """Return all claims, with what was measured so far."""
    return [
        *accuracy_claims(records),
        *compromise_claims(records),
        *divergence_claims(records),
        *profile_claims(records),
        *cifar10_claims(records),
        *fashion_mnist_claims(records),
    ]


def nearest_readings(records: Records, count: int = 5) -> list[dict[str, Any]]:
    """Return the readings nearest to the paper's numbers, both classifiers together."""
    results = spaces(records.get("readings", {"results": {}}))
    rows = [
        {
            "space": space,
            "reading": row["name"],
            "distance": round(row["distance"] + numbers["softmax distance"], 6),
            "of which softmax": numbers["softmax distance"],
            "accuracy": row["accuracy"],
        }
        for space, numbers in results.items()
        for row in numbers["rows"]
    ]
    return sorted(rows, key=lambda row: row["distance"])[:count]


def cifar10_claims(records: Records) -> list[Claim]:
    """Return the claims about filtering and attacks on CIFAR-10."""
    record = records.get(CIFAR)
    return [
        *_of_both(record, "CIFAR-10"),
        Claim("drops at .01", "eps .01: accuracy lost by softmax and by c+ (± 5 points)",
              "almost 78, 17 points", _readings(record, _drops), _known(record, 0)),
        Claim("left at .03", "eps .03: softmax has at most one of 1000 right in half of the "
              "restarts, c+ stays above 23 %", "≤ 1, > 23 %", _readings(record, _left),
              _known(record, -1)),
        Claim("no help from filtering", "eps .03: filtering by softmax does not help (at most 5 "
              "points at coverages from 10 %)", "no", _readings(record, _no_help),
              _known(record, -1)),
        Claim("given up at .01", "eps .01: coverage softmax gives up to reach c+ at full coverage",
              "over 70 %", _readings(record, _over_70), _known(record, 0)),
        _robust(record, "CIFAR-10"),
    ]  # fmt: skip


def fashion_mnist_claims(records: Records) -> list[Claim]:
    """Return the same for Fashion-MNIST, from the appendix."""
    record = records.get(FASHION)
    return [
        *_of_both(record, "Fashion-MNIST"),
        Claim("regains", "Fashion-MNIST: coverage at which the c+ filter has the model's accuracy "
              "(± 10 points)", "about 80 %", _readings(record, _regains)),
        Claim("softmax drops", "Fashion-MNIST, weakest attack: accuracy softmax loses (± 5 "
              "points)", "almost 60 points", _readings(record, _drops_60), _known(record, 0)),
        Claim("given up, Fashion-MNIST", "Fashion-MNIST, weakest attack: coverage softmax gives "
              "up to reach c+ (± 10 points)", "about 40 %", _readings(record, _about_40),
              _known(record, 0)),
        _robust(record, "Fashion-MNIST"),
    ]  # fmt: skip


def _of_both(record: Found | None, data: str) -> list[Claim]:
    """Return the claims about both data sets."""
    return [
        Claim(f"lower at full coverage, {data}", f"{data}: answering everything, c+ is less "
              "accurate", "lower", _readings(record, _lower)),
        Claim(f"discriminates, {data}", f"{data}, clean images: c+ separates certain from "
              "uncertain as softmax cannot (and smoothly, as the paper requires)", "yes",
              _readings(record, _discriminates)),
        Claim(f"overconfident, {data}", f"{data}: the model is overconfident, also under "
              "attack", "yes", _readings(record, _overconfident)),
    ]  # fmt: skip


def _robust(record: Found | None, data: str) -> Claim:
    words = (
        f"{data}: c+ trades nominal accuracy for robustness: less accurate on clean images, more "
        "on attacked ones"
    )
    return Claim(f"robust, {data}", words, "yes", _readings(record, _trades), _known(record, 0))


def _readings(
    record: Found | None, make: Callable[[Found], Statements]
) -> dict[str, Sequence[Statement]]:
    if record is None:
        return {}
    found = {
        f"{space}, {name}": make(conditions)
        for space, sets in spaces(record).items()
        for name, conditions in sets.items()
    }
    return {name: statements for name, statements in found.items() if statements}


def _known(record: Found | None, place: int) -> dict[str, Any]:
    """Return space -> what adaptive attacks leave at the weakest (0) or strongest (-1) eps."""
    if record is None:
        return {}
    return {space: list(of_space(record, space).values())[place] for space in spaces(record)}


def _weakest(conditions: Found) -> Any:
    return list(conditions.values())[1]


def _strongest(conditions: Found) -> Any:
    return list(conditions.values())[-1]


def _lower(conditions: Found) -> Statements:
    ahead = conditions["clean"]["drop"]["softmax ahead by"]
    return [Statement("softmax ahead by", ahead, 0, strict=True)]


def _trades(conditions: Found) -> Statements:
    attacked = [eps for eps in conditions if eps != "clean"]
    ahead = {name: conditions[name]["drop"]["softmax ahead by"] for name in conditions}
    return [
        Statement("softmax ahead by, clean", ahead["clean"], 0, strict=True),
        *(Statement(f"eps {eps}", ahead[eps], most=0, strict=True) for eps in attacked),
    ]


def _overconfident(conditions: Found) -> Statements:
    return [
        Statement(f"mean of the largest output less accuracy, {name}", numbers["overconfidence"], 0,
                  strict=True)
        for name, numbers in conditions.items()
    ]  # fmt: skip


def _discriminates(conditions: Found) -> Statements:
    clean = conditions["clean"]
    dip = largest_dip(clean["profile"]["mean"])
    return [
        Statement("AUROC of c+", clean["profile"]["auroc"], 0.5, strict=True),
        Statement("largest dip as coverage falls", [dip] * 3, most=0.02),
        Statement("AUROC, c+ less softmax", clean["auroc difference"], 0, strict=True),
    ]


def _drops(conditions: Found) -> Statements:
    drop = _weakest(conditions)["drop"]
    return [
        Statement("softmax loses", drop["softmax"], 0.73, 0.83),
        Statement("c+ loses", drop["profile"], 0.12, 0.22),
    ]


def _left(conditions: Found) -> Statements:
    numbers = _strongest(conditions)
    softmax, profile = numbers["softmax"], numbers["profile"]
    right = 1000 * statistics.median(softmax["right"]) / softmax["images"]
    middle, low, high = profile["accuracy"]
    least = min(profile["restarts"])  # its interval is as wide as that of the mean
    return [
        Statement("right of 1000 by softmax, median", [right] * 3, most=1),
        Statement("c+, least restart", [least, least - middle + low, least - middle + high], 0.23,
                  strict=True),
    ]  # fmt: skip


def _no_help(conditions: Found) -> Statements:
    found = _strongest(conditions)["softmax"]["mean"]
    kept = [v for c, v in zip(GRID, found, strict=True) if c >= 0.1]
    gain = max(kept) - kept[-1]
    return [Statement("most gained by filtering", [gain] * 3, most=0.05)]


def _over_70(conditions: Found) -> Statements:
    return [Statement("given up", _given_up(conditions), 0.7, strict=True)]


def _about_40(conditions: Found) -> Statements:
    return [Statement("given up", _given_up(conditions), 0.3, 0.5)]


def _regains(conditions: Found) -> Statements:
    coverage = conditions["clean"]["coverage"]["profile for softmax"]
    return [Statement("coverage", [coverage["mean"], *coverage["first"][1:]], 0.7, 0.9)]


def _drops_60(conditions: Found) -> Statements:
    return [Statement("softmax loses", _weakest(conditions)["drop"]["softmax"], 0.55, 0.65)]


def _given_up(conditions: Found) -> Value:
    coverage = _weakest(conditions)["coverage"]["softmax for profile"]
    _, low, high = coverage["first"]
    return [1 - coverage["mean"], 1 - high, 1 - low]


def largest_dip(curve: Sequence[float]) -> float:
    """Return the largest fall of accuracy while coverage goes from 1 down to a tenth."""
    best, dip = 0.0, 0.0
    for coverage, value in reversed(list(zip(GRID, curve, strict=True))):
        if coverage >= 0.1:
            best = max(best, value)
            dip = max(dip, best - value)
    return dip
