"""What is said of rows, as plain numbers and words; and how profiles are added to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from credibly.decide.exploring import features_of
from credibly.decide.judgement import Judgement
from credibly.decide.verdict import Verdict
from credibly.explore.detail import detail
from credibly.plot.view import Features
from credibly.profile.profile import Profile

NUMBERS = ("trust", "p_ordinary", "p_outlier", "p_tampered", "p_wrong", "passes")

Columns = dict[str, list[Any]]
"""One value per row, by name."""

FORWARD, PROFILED = "forward", "profile"
"""Stages: a verdict by one forward, and one that looked at a profile."""

NO_TIME, FAILED = "no time", "failed"
"""Why a row is not complete: its profile would have come too late, or the model raised."""


@dataclass(frozen=True, eq=False)
class Explained:
    """The profile of one row.

    Attributes:
        profile: of this row alone.
        names: of the classes of its columns.
        features: names and scales of the columns of a table.
    """

    profile: Profile
    names: tuple[str, ...]
    features: Features

    @property
    def numbers(self) -> dict[str, Any]:
        """The profile, as JSON."""
        profile = self.profile
        return {
            "classes": list(self.names),
            "credibility": rounded(profile.credibility[0]),
            "credence": rounded(profile.credence[0]),
            "risk": finite(float(profile.risk[0])),
            "gamma": profile.gamma,
            "status": profile.status[0].label,
        }

    @property
    def counterfactual(self) -> dict[str, Any]:
        """What would change the model's mind: a picture before and after, or what moved most."""
        shown: dict[str, Any] = detail(self.profile, names=self.names, features=self.features)
        found: dict[str, Any] = cleaned(shown["input"])
        return found


@dataclass(frozen=True, eq=False)
class Answer:
    """What is said of the rows of one request.

    Attributes:
        columns: one value per row, by name; see `columns_of`.
        explained: the profiles of some rows.
        seconds: since the request was queued.
        batch: rows that were solved together.
    """

    columns: Columns
    explained: Mapping[int, Explained]
    seconds: float = 0.0
    batch: int = 0

    def __len__(self) -> int:
        return len(self.columns["verdict"])

    @property
    def complete(self) -> bool:
        """Whether everything was solved in time."""
        return all(self.columns["complete"])


def columns_of(found: Judgement) -> Columns:
    """The columns of a judgement by one forward.

    `class` is -1 where a row is unusable; `stage` says what the verdict looked at, `complete`
    whether all that was needed or asked for was done, and `incomplete` why not.
    """
    numbers = torch.stack([getattr(found, name) for name in NUMBERS]).tolist()
    predicted = found.predicted.tolist()
    count = len(found)
    return {
        "class": predicted,
        "class_name": [found.class_name(k) if k >= 0 else None for k in predicted],
        "verdict": [verdict.value for verdict in found.verdicts],
        "accepted": found.accepted.tolist(),
        **dict(zip(NUMBERS, numbers, strict=True)),
        "reason": [found.reasons[row] for row in range(count)],
        "stage": [FORWARD] * count,
        "complete": [True] * count,
        "incomplete": [None] * count,
    }


def failed(reason: str) -> Columns:
    """The columns of one row that cannot be judged."""
    return {
        "class": [-1],
        "class_name": [None],
        "verdict": [Verdict.UNUSABLE.value],
        "accepted": [False],
        **{name: [math.nan] for name in NUMBERS},
        "reason": [f"unusable: {reason}"],
        "stage": [FORWARD],
        "complete": [True],
        "incomplete": [None],
    }


def joined(parts: list[Columns]) -> Columns:
    """The columns of several parts, one after the other."""
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}


def part_of(columns: Columns, first: int, stop: int) -> Columns:
    """The rows first <= row < stop."""
    return {name: values[first:stop] for name, values in columns.items()}


def set_incomplete(columns: Columns, row: int, why: str) -> None:
    """Say of a row why it has not all that was needed or asked for."""
    columns["complete"][row], columns["incomplete"][row] = False, why


def explained_of(found: Judgement, row: int, profile: Profile) -> Explained:
    """The profile of a row that was judged with its input kept."""
    variable = None if found.inputs is None else found.inputs.variable_of(row)
    features = Features() if variable is None else features_of(variable)
    return Explained(profile, profile.column_names(0), features)


def finite(value: float) -> float | None:
    """A number as JSON can hold it: NaN and infinity are null."""
    return value if math.isfinite(value) else None


def rounded(values: Tensor) -> list[float | None]:
    """The numbers of a tensor, in the precision that they have."""
    return [finite(float(str(value))) for value in values.detach().cpu().numpy()]


def cleaned(value: Any) -> Any:
    """The same without numbers that JSON cannot hold."""
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, dict):
        return {name: cleaned(part) for name, part in value.items()}
    return [cleaned(part) for part in value] if isinstance(value, list) else value
