"""A study: sets of inputs x scores, computed once, kept in a folder, resumable after a kill."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from credibly.decide.scores import SCORES, Score
from credibly.errors import FileFormatError, InvalidArgumentError
from credibly.io.code_digest import digest_of_callable, words_of_loss
from credibly.io.fingerprints import (
    digest_of_parts,
    digest_of_space,
    digest_of_tensor,
    in_words,
    quick_digest,
)
from credibly.model.batches import check_classifier
from credibly.model.classifier import Classifier
from credibly.problem.weights import auto_gamma, check_gamma, same_gamma
from credibly.profile.arguments import (
    Progress,
    check_bounds,
    check_chunk_size,
    check_solver,
    ticking,
)
from credibly.profile.credibility import credibility
from credibly.profile.profile import Profile
from credibly.solve.base import Solver
from credibly.solve.hybrid import Hybrid
from credibly.solve.loop import Tick
from credibly.study.input_set import (
    InputSet,
    check_columns,
    check_names,
    check_same_labels,
    check_sets,
    check_usable,
    labels_of,
    ordinary_of,
)
from credibly.study.rows import (
    FORMAT,
    FORMAT_VERSION,
    NO_CLASS,
    Kind,
    Rows,
    read_rows,
    read_study,
    slug,
    write_once,
    write_rows,
)
from credibly.study.shares import ticks_of
from credibly.types import Bounds

__all__ = ["Baseline", "InputSet", "Kind", "Rows", "Study", "read_rows", "read_study"]

_ASKED = "asked gamma"

_LATER = ("loss", "outputs", "module", "space", "preprocess", "pick")
"""What the first records did not have; of theirs it is not known."""


class Baseline(Protocol):
    """A rival: a score of trust that needs no profile."""

    def __call__(self, clf: Classifier, x: Tensor) -> Tensor:
        """One number a sample, higher is more trustworthy."""


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
        check_classifier(self.clf)
        check_chunk_size(self.chunk_size)
        # all before anything is written
        check_gamma(self.gamma, self.clf.dtype)
        check_solver(self.solver, default=self.solver)
        object.__setattr__(self, "bounds", check_bounds(self.bounds, torch.empty(0, 1)))
        both = set(self.scores) & set(self.baselines)
        if both:
            raise InvalidArgumentError(
                "baselines",
                expected="names that no score has",
                got=f"{sorted(both)}",
                remedy="Rename one of them.",
            )

    def run(
        self, sets: Mapping[str, InputSet], folder: str | Path, *, progress: Progress = False
    ) -> dict[str, Rows]:
        """Compute what is missing in the folder, and return everything.

        Every set is written when it is done; started again with the same settings, the study goes
        on with the next, and gives the same numbers. `progress` is as in `credibility`, and counts
        the inputs of all sets; those of an earlier run are done from the start.
        """
        check_sets(sets)
        place = Path(folder)
        self.check(sets, place)
        sets = self._begun(sets, place)
        gamma = self._resolved_gamma(sets, place)
        found: dict[str, Rows] = {}
        with ticking(progress) as tick:
            missing = [name for name in sets if not _place_of(name, place).exists()]
            ticks = ticks_of(tick, sets, missing)
            for name, inputs in sets.items():
                own = ticks.get(name)
                found[name] = self._part(name, inputs, place, gamma, own)
                if own is not None:
                    own(1.0)
        return found

    def part(self, name: str, inputs: InputSet, folder: str | Path) -> Rows:
        """One set by itself: computed if it is missing in the folder, and read.

        Several processes may share a folder, each with sets of its own. With gamma='auto' the
        first of them is the ordinary one, which settles it.
        """
        check_names([name])
        place = Path(folder)
        self.check({name: inputs}, place)
        sets = self._begun({name: inputs}, place)
        return self._part(name, sets[name], place, self._resolved_gamma(sets, place))

    def check(self, sets: Mapping[str, InputSet], folder: str | Path) -> None:
        """Refuse a folder of another study, and a gamma, bounds or labels that do not suit.

        Nothing is written, and no inputs are made; `run` and `part` do this by themselves.
        """
        check_gamma(self.gamma, self._precision(sets))
        manifest = Path(folder) / "study.json"
        if manifest.exists():
            self._gamma_on_record(manifest, sets)
        for name, inputs in sets.items():
            if isinstance(inputs.inputs, Tensor) and not _place_of(name, Path(folder)).exists():
                check_usable(self.clf, inputs, inputs.inputs, self.bounds)

    def _begun(self, sets: Mapping[str, InputSet], place: Path) -> Mapping[str, InputSet]:
        """The sets, those that come first made and checked before a new folder is written to.

        So settings that do not suit them are no record that the corrected study would not match.
        """
        if (place / "study.json").exists():
            return sets
        needed = [next(iter(sets.values())), *([ordinary_of(sets)] if self.gamma == "auto" else [])]
        known = dict(sets)
        for name, inputs in sets.items():
            if inputs in needed and callable(inputs.inputs):
                x = inputs.load()
                check_usable(self.clf, inputs, x, self.bounds)
                known[name] = replace(inputs, inputs=x.detach)  # a function still: its origin stays
        return known

    def _precision(self, sets: Mapping[str, InputSet]) -> torch.dtype | None:
        """In which gamma is used; None for a function on inputs that are not made yet."""
        given = [part.inputs.dtype for part in sets.values() if isinstance(part.inputs, Tensor)]
        return self.clf.dtype or next(iter(given), None)

    def _part(
        self, name: str, inputs: InputSet, place: Path, gamma: float, tick: Tick | None = None
    ) -> Rows:
        part = _place_of(name, place)
        marks = self._marks(name, inputs, gamma)
        if not part.exists():
            x = inputs.load()
            own = {"input bytes": digest_of_tensor(x)}
            write_rows(part, self._compute(inputs, x, gamma, tick), {**own, **marks})
        found = read_rows(part, marks)
        check_same_labels(part, inputs, found)
        return found

    def _resolved_gamma(self, sets: Mapping[str, InputSet], place: Path) -> float:
        """Resolve 'auto' once, and keep it in the folder with what the study is."""
        place.mkdir(parents=True, exist_ok=True)
        manifest = place / "study.json"
        if not manifest.exists():
            if self.gamma == "auto":
                gamma = auto_gamma(self.clf, ordinary_of(sets).load())
            else:
                gamma = float(self.gamma)
            write_once(manifest, json.dumps({**self._own(), "gamma": gamma}, indent=2) + "\n")
        return self._gamma_on_record(manifest, sets)  # another process may have been first

    def _gamma_on_record(self, manifest: Path, sets: Mapping[str, InputSet]) -> float:
        return _gamma_of(manifest, self._own(), self._precision(sets))

    def _own(self) -> dict[str, Any]:
        """What this study is, as it is kept in the folder."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "model": quick_digest(self.clf),
            _ASKED: "auto" if self.gamma == "auto" else float(self.gamma),
            "solver": repr(self.solver),
            **_question(self.clf),
            "bounds": list(self.bounds) if self.bounds else None,
            "scores": sorted(self.scores),
            "baselines": {name: _words(value) for name, value in sorted(self.baselines.items())},
        }

    def _marks(self, name: str, inputs: InputSet, gamma: float) -> dict[str, str]:
        origin = inputs.origin()
        return {
            **({} if origin is None else {"inputs": origin}),
            "format": FORMAT,
            "format_version": str(FORMAT_VERSION),
            "set": name,
            "kind": inputs.kind,
            "gamma": repr(gamma),
            "study": digest_of_parts(
                [("model", quick_digest(self.clf)), ("solver", repr(self.solver))]
            ),
        }

    def _compute(self, inputs: InputSet, x: Tensor, gamma: float, tick: Tick | None) -> Rows:
        check_usable(self.clf, inputs, x, self.bounds)  # before the work
        profile = credibility(
            self.clf, x, gamma=gamma, solver=self.solver, bounds=self.bounds,
            chunk_size=self.chunk_size, progress=tick or False,
        )  # fmt: skip
        scores = {name: score(profile) for name, score in self.scores.items()}
        scores |= {name: baseline(self.clf, x) for name, baseline in self.baselines.items()}
        check_columns(inputs, scores, len(x))
        return Rows(
            kind=inputs.kind,
            labels=labels_of(inputs, len(x)),
            predicted=_largest(profile.credence),
            credible=_largest(profile.credibility),
            scores={name: values.detach().double().cpu() for name, values in scores.items()},
            facts={"gamma": gamma, **_facts(profile)},
        )


def _place_of(name: str, folder: Path) -> Path:
    return folder / f"{slug(name)}.safetensors"


def _gamma_of(manifest: Path, own: Mapping[str, Any], dtype: torch.dtype | None) -> float:
    """The gamma on record, if the record is of this very study."""
    try:
        before = json.loads(manifest.read_text("utf-8"))
        gamma = float(before["gamma"])
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{manifest}: cannot be read ({error!r}).") from error
    for name, value in own.items():
        known = before.get(name)
        if name in _LATER and name not in before:
            continue
        if not (same_gamma(known, value, dtype) if name == _ASKED else known == value):
            words = in_words if name == "model" else str
            raise InvalidArgumentError(
                "folder",
                expected=f"a folder of this very study; its {name} is {words(known)}",
                got=words(value),
                remedy="Choose another folder, or remove this one.",
            )
    return gamma


def _question(clf: Classifier) -> dict[str, str | None]:
    """What is asked of the weights: another loss or space has other numbers with the same ones."""
    return {
        "loss": words_of_loss(clf.loss),
        "outputs": clf.outputs,
        "module": clf.module,
        "space": None if clf.space is None else digest_of_space(clf.space),
        "preprocess": None if clf.preprocess is None else digest_of_callable(clf.preprocess),
        "pick": None if clf.pick is None else digest_of_callable(clf.pick),
    }


def _words(value: object) -> str:
    """What a rival is, in words that are the same in the next process."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _largest(values: Tensor) -> Tensor:
    unknown = values.isnan().any(1)
    return values.nan_to_num(-torch.inf).argmax(1).masked_fill(unknown, NO_CLASS).cpu()


def _facts(profile: Profile) -> dict[str, float]:
    good = profile.usable
    passes = profile.passes[good]
    return {
        "samples": float(len(profile)),
        "without a profile": float((~good).sum()),
        "median passes": float(passes.median()) if len(passes) else float("nan"),
    }
