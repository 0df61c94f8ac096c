"""Columns of the evidence tables; all scales come from the held-out slice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from credibly.decide.trust_scores import FAILURE_PARTS, TAMPER_PARTS, outlier_score, spread_of
from credibly.errors import FileFormatError
from credibly.study import Rows, read_study

DEFAULT = "softmax and profile (default)"
PAIR = "p-norm and profile"
TAMPER_DEFAULT = f"two-sided {' + '.join(TAMPER_PARTS)} (default)"
SOFTMAX, MARGIN, P_NORM = "max softmax", "logit margin", "max logit, p-norm"
BASELINES = {
    SOFTMAX: "max softmax (baseline)",
    MARGIN: "logit margin (baseline)",
    P_NORM: "max logit p-norm (baseline)",
    "max logit, p-norm, p chosen": "max logit p-norm, p chosen (baseline)",
    "temperature scaling": "temperature scaling (baseline)",
    "DOCTOR": "DOCTOR (baseline)",
    "DOCTOR with step": "DOCTOR with step (baseline)",
    "negative entropy": "negative entropy (baseline)",
    "max logit": "max logit (baseline)",
    "energy": "energy (baseline)",
    "GEN": "GEN (baseline)",
    "ODIN": "ODIN (baseline)",
    "noise vote": "noise vote (baseline)",
}
OWN = {
    "predicted ratio": "predicted_ratio",
    "margin at x+": "margin",
    "ratio": "ratio",
    "shift": "shift",
    "gain": "gain",
    "risk": "negative_risk",
    "c0 under the same rule": "credence ratio (baseline)",
    "one gradient step": "one gradient step (baseline)",
    "one Gauss-Newton step": "one Gauss-Newton step (baseline)",
}
FOR_OUTLIERS = {
    "shift": "shift", "gain": "gain", "elasticity, reversed": "-elasticity",
    **{title: name for title, name in BASELINES.items() if title != MARGIN},
}  # fmt: skip
TWO_SIDED = {
    "shift": "shift", "gain": "gain", "elasticity": "elasticity",
    **{t: BASELINES[t] for t in (SOFTMAX, MARGIN, P_NORM, "energy", "GEN", "ODIN")},
}  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """Medians and spreads of all scores on the held-out images."""

    medians: Mapping[str, float]
    spreads: Mapping[str, float]

    @staticmethod
    def of(rows: Rows) -> Scale:
        """Measure the ordinary rows of the held-out slice."""
        return Scale(
            {name: float(v.nanquantile(0.5)) for name, v in rows.scores.items()},
            {name: spread_of(v) for name, v in rows.scores.items()},
        )

    def balanced(self, part: Rows, shares: Mapping[str, float]) -> Tensor:
        """Add scores, each divided by its spread."""
        terms = [share / self.spreads[n] * part.scores[n] for n, share in shares.items()]
        return torch.stack(terms).sum(0)

    def two_sided(self, part: Rows, name: str) -> Tensor:
        """Return minus the distance from the median, in units of the spread."""
        return -(part.scores[name] - self.medians[name]).abs() / self.spreads[name]


def read_parts(folder: Path) -> tuple[dict[str, Rows], dict[str, Rows], Scale]:
    """Read the measured sets, those of the held-out slice, and its scale."""
    held = read_study(folder / "held-out")
    if not any(part.kind == "ordinary" for part in held.values()):
        message = f"{folder}: the held-out images are missing; run --sets held-out first."
        raise FileFormatError(message)
    return read_study(folder), held, Scale.of(ordinary(held))


def ordinary(rows: Mapping[str, Rows]) -> Rows:
    """Return the reference set."""
    found = [part for part in rows.values() if part.kind == "ordinary"]
    if len(found) != 1:
        message = f"expected one ordinary set, got {len(found)}: run --sets ordinary first."
        raise FileFormatError(message)
    return found[0]


def failure_columns(part: Rows, scale: Scale) -> dict[str, Tensor]:
    """Return scores for "is this class wrong?", by title; higher is more trustworthy."""
    found = {DEFAULT: scale.balanced(part, FAILURE_PARTS)}
    found[PAIR] = scale.balanced(part, {"p_norm": 1.0, "predicted_ratio": 0.5})
    known = {**BASELINES, **OWN}
    return found | {t: part.scores[name] for t, name in known.items() if name in part.scores}


def outlier_columns(part: Rows, scale: Scale) -> dict[str, Tensor]:
    """Return scores for "is this an outlier?"; outliers should have the smaller ones."""
    default = outlier_score().name
    found = {f"{default} (default)": part.scores[default]}
    for title, name in FOR_OUTLIERS.items():
        own = name.removeprefix("-")
        if name != default and own in part.scores:
            found[title] = part.scores[own] if own == name else -part.scores[own]
    for title, other in (("shift and energy", "energy (baseline)"), ("shift and gain", "gain")):
        found[title] = scale.balanced(part, {"shift": 1.0, other: 1.0})
    return found


def tamper_columns(part: Rows, scale: Scale) -> dict[str, Tensor]:
    """Return scores for "was it tampered with?": distances from the held-out images."""
    parts = torch.stack([scale.two_sided(part, name) for name in TAMPER_PARTS])
    found = {TAMPER_DEFAULT: parts.sum(0)}
    for title, name in TWO_SIDED.items():
        found[f"two-sided {title}"] = scale.two_sided(part, name)
    found["elasticity, one side"] = part.scores["elasticity"]
    found["max softmax, too sure"] = -part.scores[BASELINES[SOFTMAX]]
    return found
