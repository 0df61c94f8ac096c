"""What a study found for one set of inputs, and its file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from credibly._validation import real_number, require
from credibly.errors import FileFormatError
from credibly.io.files import check_format, load_tensors, save_tensors
from credibly.io.run_folder import RunFolder
from credibly.types import CPU

FORMAT, FORMAT_VERSION = "credibly.study", 1

Kind = Literal["ordinary", "shifted", "attacked", "outliers"]
NO_CLASS = -1
"""The label of an outlier, and the prediction where there is none."""

_COLUMNS = ("labels", "predicted", "credible")


@dataclass(frozen=True, eq=False)
class Rows:
    """What was found for one set: columns with one row per sample.

    Attributes:
        kind: of the set.
        labels: (n,), -1 for outliers.
        predicted: the model's class (n,), -1 where its output is not a number.
        credible: the most credible class (n,), or -1 in the same way.
        scores: name -> score (n,), higher is more trustworthy; NaN without a profile.
        facts: numbers about the run: gamma, median passes, samples without a profile.

    Example: see `summarise`.
    """

    kind: Kind
    labels: Tensor
    predicted: Tensor
    credible: Tensor
    scores: Mapping[str, Tensor]
    facts: Mapping[str, float]

    @property
    def correct(self) -> Tensor:
        """Whether the model's class is right (n,): system A."""
        return (self.predicted == self.labels) & (self.predicted != NO_CLASS)

    @property
    def credible_correct(self) -> Tensor:
        """Whether the most credible class is right (n,): system B, the paper's."""
        return (self.credible == self.labels) & (self.credible != NO_CLASS)

    def complete(self) -> tuple[dict[str, Tensor], Tensor]:
        """The scores with a number anywhere, and the samples (n,) for which all of these have."""
        known = {name: values for name, values in self.scores.items() if not values.isnan().all()}
        missing = torch.zeros(len(self.labels), dtype=torch.bool, device=CPU)
        for values in known.values():
            missing |= values.isnan()
        return known, ~missing


def find_ordinary(argument: str, kinds: Mapping[str, str]) -> str:
    """The name of the one ordinary set among names and kinds of sets."""
    found = [name for name, kind in kinds.items() if kind == "ordinary"]
    got, remedy = f"{found} of {list(kinds)}", "It is the reference for detection."
    require(len(found) == 1, argument, "exactly one set of kind 'ordinary'", got, remedy)
    return found[0]


def study_folder(folder: str | Path) -> RunFolder:
    """The folder of a study, whose manifest is `study.json`."""
    return RunFolder(folder, kind=FORMAT, version=FORMAT_VERSION, manifest="study.json")


def study_settings(folder: str | Path) -> dict[str, Any]:
    """The settings of a study as its folder has them, with the gamma it used."""
    record = study_folder(folder).read()
    return {**record["settings"], **record["resolved"]}


def part_name(name: str) -> str:
    """The file name of a set."""
    return f"{slug(name)}.safetensors"


def slug(name: str) -> str:
    """The name of a set without what file names cannot have."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def read_rows(path: Path, expected: Mapping[str, str] | None = None) -> Rows:
    """Read one set of a study; a part whose marks differ from the `expected` ones is refused."""
    return _read(path, expected or {})[1]


def read_study(folder: str | Path) -> dict[str, Rows]:
    """Read every set that a study has in its folder, by name.

    Example: see docs/reference/command-line.md.
    """
    found = dict(_read(path, {}) for path in sorted(Path(folder).glob("*.safetensors")))
    if not found:
        raise FileFormatError(f"{folder}: it has no part of a study.")
    return found


def _read(path: Path, expected: Mapping[str, str]) -> tuple[str, Rows]:
    tensors, marks = load_tensors(path)
    check_format(path, marks, FORMAT, FORMAT_VERSION)
    for name, value in expected.items():
        got = f"{marks.get(name)} in {path.name}"
        remedy = "Choose another folder, or remove this part."
        require(marks.get(name) == value, "folder", f"parts with {name} {value}", got, remedy)
    scores = {k.removeprefix("score."): v for k, v in tensors.items() if k.startswith("score.")}
    try:
        kind: Any = marks["kind"]
        labels, predicted, credible = (tensors[name] for name in _COLUMNS)
        rows = Rows(kind, labels, predicted, credible, scores, json.loads(marks["facts"]))
    except (KeyError, ValueError, OverflowError, RecursionError) as error:
        raise FileFormatError(f"{path}: cannot be read ({error!r}).") from error
    _check(path, rows)
    return marks.get("set", path.stem), rows


def _check(path: Path, rows: Rows) -> None:
    """Refuse columns that are not one number per sample, and facts that are not numbers by name."""
    own = {name: getattr(rows, name) for name in _COLUMNS}
    scores = {f"score.{name}": values for name, values in rows.scores.items()}
    for name, values in {**own, **scores}.items():
        if values.is_floating_point() == (name in own) or values.shape != (rows.labels.numel(),):
            kind = "whole number" if name in own else "number"
            raise FileFormatError(
                f"{path}: {name!r} has shape {tuple(values.shape)} of {values.dtype}; expected one "
                f"{kind} for each of {rows.labels.numel()} samples."
            )
    numbers = rows.facts.values() if isinstance(rows.facts, dict) else [None]
    if rows.kind not in get_args(Kind) or any(real_number(value) is None for value in numbers):
        raise FileFormatError(
            f"{path}: expected a kind of sets and numbers as facts, got {rows.kind!r} and "
            f"{str(rows.facts)[:80]}."
        )


def write_rows(path: Path, rows: Rows, marks: Mapping[str, str]) -> None:
    """Write one set completely or not at all."""
    tensors = {name: getattr(rows, name) for name in _COLUMNS}
    tensors |= {f"score.{name}": values for name, values in rows.scores.items()}
    own = {name: values.contiguous().clone() for name, values in tensors.items()}
    fixed = {"format": FORMAT, "format_version": str(FORMAT_VERSION), "kind": rows.kind}
    facts = json.dumps(dict(rows.facts))
    save_tensors(own, path, metadata={**marks, **fixed, "facts": facts})
