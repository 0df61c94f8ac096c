"""What a study found for one set of inputs, and its files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from credibly.errors import FileFormatError, InvalidArgumentError
from credibly.io.tensor_files import save_tensors

FORMAT, FORMAT_VERSION = "credibly.study", 1

Kind = Literal["ordinary", "shifted", "attacked", "outliers"]
NO_CLASS = -1
"""Stands for the label of an outlier, and for the prediction where there is none."""


@dataclass(frozen=True, eq=False)
class Rows:
    """What was found for one set: columns with a row a sample.

    Attributes:
        kind: as of the set.
        labels: (n,), -1 for outliers.
        predicted: the model's class (n,), -1 where its output is not a number.
        credible: the most credible class (n,), likewise.
        scores: name -> score (n,), higher is more trustworthy; NaN without a profile.
        facts: numbers about the run: gamma, median passes, samples without a profile.
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
        """The scores that are numbers anywhere, and the samples (n,) for which all of these are."""
        known = {name: values for name, values in self.scores.items() if not values.isnan().all()}
        missing = torch.zeros(len(self.labels), dtype=torch.bool)
        for values in known.values():
            missing |= values.isnan()
        return known, ~missing


def slug(name: str) -> str:
    """A file name for a set."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def read_rows(path: Path, expected: Mapping[str, str] | None = None) -> Rows:
    """One set of a study; with `expected` marks, of that very study."""
    try:
        with safe_open(path, "pt") as file:
            marks = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise FileFormatError(f"{path}: not a readable safetensors file ({error}).") from error
    if marks.get("format") != FORMAT:
        raise FileFormatError(f"{path}: not a part of a study.")
    if marks.get("format_version") != str(FORMAT_VERSION):
        raise FileFormatError(
            f"{path}: format version {marks.get('format_version')!r}; this credibly reads "
            f"{FORMAT_VERSION}. Install a newer one."
        )
    for name, value in (expected or {}).items():
        if marks.get(name) != value:
            raise InvalidArgumentError(
                "folder",
                expected=f"parts with {name} {value}",
                got=f"{marks.get(name)} in {path.name}",
                remedy="Choose another folder, or remove this part.",
            )
    scores = {k.removeprefix("score."): v for k, v in tensors.items() if k.startswith("score.")}
    try:
        kind: Any = marks["kind"]
        labels, predicted, credible = (tensors[n] for n in ("labels", "predicted", "credible"))
        return Rows(kind, labels, predicted, credible, scores, json.loads(marks["facts"]))
    except (KeyError, ValueError) as error:
        raise FileFormatError(f"{path}: cannot be read ({error!r}).") from error


def read_study(folder: str | Path) -> dict[str, Rows]:
    """Every set that a study has in its folder, by name."""
    found = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        rows = read_rows(path)
        with safe_open(path, "pt") as file:
            found[(file.metadata() or {}).get("set", path.stem)] = rows
    if not found:
        raise FileFormatError(f"{folder}: no part of a study is there.")
    return found


def write_rows(path: Path, rows: Rows, marks: dict[str, str]) -> None:
    """Write one set whole or not at all."""
    tensors = {"labels": rows.labels, "predicted": rows.predicted, "credible": rows.credible}
    tensors |= {f"score.{name}": values for name, values in rows.scores.items()}
    half = path.with_suffix(".half")
    facts = {"facts": json.dumps(dict(rows.facts))}
    own = {name: values.contiguous().clone() for name, values in tensors.items()}
    save_tensors(own, half, metadata={**marks, **facts})
    os.replace(half, path)  # noqa: PTH105  # atomic: a killed study leaves no half a part


def write_once(path: Path, text: str) -> None:
    """Write a text whole, unless a file is there: of several processes the first one wins."""
    half = path.with_name(f"{path.name}.{os.getpid()}.half")
    half.write_text(text, encoding="utf-8")
    try:
        os.link(half, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        if not path.exists():
            half.replace(path)
    half.unlink(missing_ok=True)
