"""A study: sets of inputs x scores, computed once, kept in a folder, resumable after a kill."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from credibly.decide.scores import SCORES, Score
from credibly.errors import FileFormatError, InvalidArgumentError
from credibly.model.classifier import Classifier
from credibly.model.fingerprint import digest_of_parts, quick_digest
from credibly.problem.weights import auto_gamma
from credibly.profile.arguments import Progress, check_chunk_size, ticking
from credibly.profile.credibility import credibility
from credibly.profile.profile import Profile
from credibly.solve.base import Solver
from credibly.solve.hybrid import Hybrid
from credibly.types import Bounds

FORMAT, FORMAT_VERSION = "credibly.study", 1

Kind = Literal["ordinary", "shifted", "attacked", "outliers"]


class Baseline(Protocol):
    """A rival: a score of trust that needs no profile."""

    def __call__(self, clf: Classifier, x: Tensor) -> Tensor:
        """One number a sample, higher is more trustworthy."""


@dataclass(frozen=True, eq=False)
class InputSet:
    """Inputs of one kind.

    Attributes:
        inputs: (n, ...), or a function that makes them, called only when they are needed.
        labels: (n,); None for outliers, which have none.
        kind: 'ordinary' inputs are the reference for detection; exactly one set is such.
    """

    inputs: Tensor | Callable[[], Tensor]
    labels: Tensor | None
    kind: Kind

    def load(self) -> Tensor:
        """The inputs themselves."""
        return self.inputs() if callable(self.inputs) else self.inputs


@dataclass(frozen=True, eq=False)
class Rows:
    """What was found for one set: columns with a row a sample.

    Attributes:
        kind: as of the set.
        labels: (n,), -1 for outliers.
        predicted: the model's class (n,).
        credible: the most credible class (n,).
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
        return self.predicted == self.labels

    @property
    def credible_correct(self) -> Tensor:
        """Whether the most credible class is right (n,): system B, the paper's."""
        return self.credible == self.labels


@dataclass(frozen=True, kw_only=True, eq=False)
class Study:
    """What to compute for every set.

    Attributes:
        clf: the classifier.
        gamma: a number, or 'auto', resolved once on the ordinary set and recorded.
        solver: of the profiles; `Hybrid()` by default.
        bounds: as in `credibility`.
        scores: name -> score of a profile; all plain ones by default.
        baselines: name -> rival.
        chunk_size: samples solved at a time.
    """

    clf: Classifier
    gamma: float | Literal["auto"] = "auto"
    solver: Solver = field(default_factory=Hybrid)
    bounds: Bounds | None = None
    scores: Mapping[str, Score] = field(default_factory=lambda: dict(SCORES))
    baselines: Mapping[str, Baseline] = field(default_factory=dict)
    chunk_size: int = 128

    def __post_init__(self) -> None:
        check_chunk_size(self.chunk_size)
        both = set(self.scores) & set(self.baselines)
        if both:
            raise InvalidArgumentError(
                "baselines",
                expected="names that no score has",
                came=f"{sorted(both)}",
                remedy="Rename one of them.",
            )

    def run(
        self, sets: Mapping[str, InputSet], folder: str | Path, *, progress: Progress = False
    ) -> dict[str, Rows]:
        """Compute what is missing in the folder, and return everything.

        Every set is written when it is done; started again with the same settings, the study goes
        on with the next, and gives the same numbers.
        """
        _check_sets(sets)
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        gamma = self._resolved_gamma(sets, place)
        found: dict[str, Rows] = {}
        with ticking(progress) as tick:
            for number, (name, inputs) in enumerate(sets.items()):
                part = place / f"{slug(name)}.safetensors"
                marks = self._marks(name, inputs, gamma)
                if not part.exists():
                    _write(part, self._compute(inputs, gamma), marks)
                found[name] = read_rows(part, marks)
                if tick is not None:
                    tick((number + 1) / len(sets))
        return found

    def _resolved_gamma(self, sets: Mapping[str, InputSet], place: Path) -> float:
        """Resolve 'auto' once, and keep it in the folder with what the study is."""
        manifest = place / "study.json"
        own = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "model": quick_digest(self.clf),
            "asked gamma": self.gamma,
            "solver": repr(self.solver),
            "bounds": list(self.bounds) if self.bounds else None,
            "scores": sorted(self.scores),
            "baselines": {name: repr(value) for name, value in sorted(self.baselines.items())},
        }
        if manifest.exists():
            before = json.loads(manifest.read_text("utf-8"))
            for name, value in own.items():
                if before.get(name) != value:
                    raise InvalidArgumentError(
                        "folder",
                        expected=f"a folder of this very study; its {name} is {before.get(name)}",
                        came=f"{value}",
                        remedy="Choose another folder, or remove this one.",
                    )
            return float(before["gamma"])
        if self.gamma == "auto":
            reference = next(inputs for inputs in sets.values() if inputs.kind == "ordinary")
            gamma = auto_gamma(self.clf, reference.load())
        else:
            gamma = float(self.gamma)
        _write_text(manifest, json.dumps({**own, "gamma": gamma}, indent=2) + "\n")
        return gamma

    def _marks(self, name: str, inputs: InputSet, gamma: float) -> dict[str, str]:
        return {
            "format": FORMAT,
            "format_version": str(FORMAT_VERSION),
            "set": name,
            "kind": inputs.kind,
            "gamma": repr(gamma),
            "study": digest_of_parts(
                [("model", quick_digest(self.clf)), ("solver", repr(self.solver))]
            ),
        }

    def _compute(self, inputs: InputSet, gamma: float) -> Rows:
        x = inputs.load()
        profile = credibility(
            self.clf, x, gamma=gamma, solver=self.solver, bounds=self.bounds,
            chunk_size=self.chunk_size,
        )  # fmt: skip
        scores = {name: score(profile).cpu() for name, score in self.scores.items()}
        for name, baseline in self.baselines.items():
            scores[name] = baseline(self.clf, x).double().cpu()
        labels = inputs.labels
        return Rows(
            kind=inputs.kind,
            labels=torch.full((len(x),), -1) if labels is None else labels.long().cpu(),
            predicted=profile.fit.nan_to_num(-torch.inf).argmax(1).cpu(),
            credible=profile.credibility.nan_to_num(-torch.inf).argmax(1).cpu(),
            scores=scores,
            facts=_facts(profile),
        )


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
    for name, value in (expected or {}).items():
        if marks.get(name) != value:
            raise InvalidArgumentError(
                "folder",
                expected=f"parts with {name} {value}",
                came=f"{marks.get(name)} in {path.name}",
                remedy="Choose another folder, or remove this part.",
            )
    scores = {k.removeprefix("score."): v for k, v in tensors.items() if k.startswith("score.")}
    kind: Any = marks["kind"]
    return Rows(
        kind,
        tensors["labels"],
        tensors["predicted"],
        tensors["credible"],
        scores,
        json.loads(marks["facts"]),
    )


def read_study(folder: str | Path) -> dict[str, Rows]:
    """Every set that a study has in its folder, by name."""
    found = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            name = (file.metadata() or {}).get("set", path.stem)
        found[name] = read_rows(path)
    if not found:
        raise FileFormatError(f"{folder}: no part of a study is there.")
    return found


def _facts(profile: Profile) -> dict[str, float]:
    good = profile.usable
    passes = profile.passes[good]
    return {
        "samples": float(len(profile)),
        "without a profile": float((~good).sum()),
        "median passes": float(passes.median()) if len(passes) else float("nan"),
    }


def _write(path: Path, rows: Rows, marks: dict[str, str]) -> None:
    tensors = {"labels": rows.labels, "predicted": rows.predicted, "credible": rows.credible}
    tensors |= {f"score.{name}": values for name, values in rows.scores.items()}
    half = path.with_suffix(".half")
    facts = {"facts": json.dumps(dict(rows.facts))}
    save_file({k: v.contiguous() for k, v in tensors.items()}, half, metadata={**marks, **facts})
    os.replace(half, path)  # noqa: PTH105  # atomic: a killed study leaves no half a part


def _write_text(path: Path, text: str) -> None:
    half = path.with_suffix(".half")
    half.write_text(text, encoding="utf-8")
    os.replace(half, path)  # noqa: PTH105


def _check_sets(sets: Mapping[str, InputSet]) -> None:
    ordinary = [name for name, inputs in sets.items() if inputs.kind == "ordinary"]
    names = [slug(name) for name in sets]
    if len(ordinary) != 1 or len(set(names)) < len(names):
        raise InvalidArgumentError(
            "sets",
            expected="sets of different names, exactly one of kind 'ordinary'",
            came=f"{list(sets)}, ordinary: {ordinary}",
            remedy="The ordinary set is the reference that others are told apart from.",
        )
