"""How many inputs a Judge and thresholds on plain scores call not ordinary, at one rate."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from credibly.baselines.base import Baseline
from credibly.baselines.logit_baselines import Energy, MaxSoftmax
from credibly.decide.judge import Judge
from credibly.decide.surprise import inputs_needed
from credibly.errors import CrediblyWarning
from credibly.metrics.intervals import Interval
from credibly.model.classifier import Classifier
from credibly.model.derivatives import FORWARD
from credibly.study.input_set import InputSet, ordinary_of
from credibly.types import finite_rows

RATES = (0.01, 0.05)
"""Rates of false alarms; the first one that the inputs allow is used."""

JUDGE, WITH_PROFILES = "Judge", "Judge, doubtful profiles"
BASELINES: dict[str, Baseline] = {"energy": Energy(), "max softmax": MaxSoftmax()}


@dataclass(frozen=True)
class Alarms:
    """Shares of alarms. Every other ordinary input set the thresholds; the others were judged.

    Attributes:
        rate: of false alarms that was asked for.
        fitted_on: ordinary inputs behind the thresholds.
        shares: by set and method; those of the ordinary set are the false alarms.
        passes: per ordinary input, by method.
    """

    rate: float
    fitted_on: int
    shares: dict[str, dict[str, Interval]]
    passes: dict[str, float]

    def best(self) -> str:
        """The cheapest method whose mean share over the other sets is at most .01 below the best.

        Without other sets, the cheapest Judge.
        """
        others = list(self.shares.values())[1:]
        means = {
            name: sum(found[name].value for found in others) / max(len(others), 1)
            for name in self.passes
        }
        most = max(means.values())
        near = [name for name, value in means.items() if value >= most - 0.01]
        return min(near, key=self.passes.__getitem__) if others else JUDGE

    def as_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Alarms:
        """Read what `as_json` wrote."""
        shares = {
            kind: {name: Interval(**ends) for name, ends in found.items()}
            for kind, found in content["shares"].items()
        }
        return cls(content["rate"], content["fitted_on"], shares, dict(content["passes"]))


def count_alarms(clf: Classifier, sets: Mapping[str, InputSet]) -> Alarms | None:
    """Fit Judges on half of the ordinary inputs and count alarms; None if these are too few.

    Sets that are made from the ordinary inputs are judged by the rows that set no threshold.
    """
    ordinary = ordinary_of(sets).load()
    good = finite_rows(ordinary).nonzero().squeeze(1)
    known, new = good[0::2], good[1::2]
    rate = next((rate for rate in RATES if inputs_needed(rate) <= len(known)), None)
    if rate is None or not len(new):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CrediblyWarning)  # said when the inputs were read
        judges = {
            JUDGE: Judge.fit(clf, ordinary[known], false_alarms=rate),
            WITH_PROFILES: Judge.fit(clf, ordinary[known], false_alarms=rate, profile="doubtful"),
        }
    least = {name: threshold(b(clf, ordinary[known]), rate) for name, b in BASELINES.items()}
    passes = {name: judge.facts.cost for name, judge in judges.items()}
    passes |= dict.fromkeys(BASELINES, FORWARD)
    shares = {}
    for kind, inputs in sets.items():
        x = inputs.load()
        part = x[finite_rows(x)] if inputs.kind == "outliers" else x[new][finite_rows(x[new])]
        hits = {name: judge(part, keep=False).p_ordinary <= rate for name, judge in judges.items()}
        hits |= {name: b(clf, part).cpu() <= least[name] for name, b in BASELINES.items()}
        shares[kind] = {name: share_with_interval(values) for name, values in hits.items()}
    return Alarms(rate, len(known), shares, passes)


def threshold(scores: Tensor, rate: float) -> float:
    """The score of trust at or below which an input is called not ordinary."""
    known = scores.sort().values
    return float(known[int(rate * (len(known) + 1) + 1e-9) - 1])


def share_with_interval(hits: Tensor) -> Interval:
    """The share of hits with its 95 % interval (Wilson's)."""
    count, z = len(hits), 1.96
    if not count:
        return Interval(torch.nan, torch.nan, torch.nan)
    p = float(hits.double().mean())
    middle, square = p + z * z / (2 * count), z * z / count
    wide = z * (p * (1 - p) / count + square / (4 * count)) ** 0.5
    return Interval(p, (middle - wide) / (1 + square), (middle + wide) / (1 + square))
