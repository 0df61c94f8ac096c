"""A study: scores of sets of inputs, computed once, kept in a folder, resumable after a kill."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from credibly._validation import chunk_size as check_chunk_size
from credibly._validation import require
from credibly.baselines.base import Baseline
from credibly.decide.scores import SCORES, Score
from credibly.io.fingerprints import digest_of_space, digest_of_tensor, quick_digest
from credibly.io.run_folder import RunFolder
from credibly.model.batches import check_classifier
from credibly.model.classifier import Classifier
from credibly.problem.weights import auto_gamma, check_gamma, same_gamma
from credibly.profile.arguments import check_pair, check_solver, ticking
from credibly.profile.credibility import credibility
from credibly.profile.profile import Profile
from credibly.solve.base import Solver
from credibly.solve.gradient_descent import Hybrid
from credibly.solve.loop import Tick
from credibly.study import input_set
from credibly.study.input_set import InputSet, check_usable, labels_of
from credibly.study.rows import NO_CLASS, Rows, part_name, read_rows, study_folder, write_rows
from credibly.types import Bounds, Progress

_ASKED = "asked gamma"


@dataclass(frozen=True, kw_only=True, eq=False)
class Study:
    """What to compute for every set.

    Attributes:
        clf: the classifier.
        gamma: a number, or 'auto', resolved once on the ordinary set and recorded.
        solver: of the profiles; `Hybrid()` by default.
        bounds: as in `credibility`.
        scores: name -> score of a profile; all plain ones by default.
        baselines: name -> `Baseline`, or a function of a classifier and inputs with one number per
            sample. In the folder a function is identified by its name only.
        chunk_size: samples solved at a time.

    Example:
        >>> import tempfile, torch, credibly as cr
        >>> study = cr.study.Study(clf=cr.Classifier(torch.nn.Linear(4, 3)), gamma=10.0)
        >>> clean = cr.study.InputSet(torch.zeros(2, 4), [0, 1], "ordinary")
        >>> study.run({"clean": clean}, tempfile.mkdtemp())["clean"].labels.tolist()
        [0, 1]
    """

    clf: Classifier
    gamma: float | Literal["auto"] = "auto"
    solver: Solver = field(default_factory=Hybrid)
    bounds: Bounds | None = None
    scores: Mapping[str, Score] = field(default_factory=lambda: dict(SCORES))
    baselines: Mapping[str, Baseline | Callable[[Classifier, Tensor], Tensor]] = field(
        default_factory=dict
    )
    chunk_size: int = 128

    def __post_init__(self) -> None:
        object.__setattr__(self, "clf", check_classifier(self.clf))
        check_chunk_size(self.chunk_size)
        check_gamma(self.gamma, self.clf.dtype)
        check_solver(self.solver, default=self.solver)
        object.__setattr__(self, "bounds", check_pair(self.bounds))
        both = sorted(set(self.scores) & set(self.baselines))
        expected = "names that no score has"
        require(not both, "baselines", expected, f"{both}", "Rename one of them.")

    def run(
        self, sets: Mapping[str, InputSet], folder: str | Path, *, progress: Progress = False
    ) -> dict[str, Rows]:
        """Compute what is missing in the folder, and return everything.

        Every set is written when it is done; started again with the same settings, the study
        continues with the next, and gives the same numbers. `progress` is as in `credibility`, and
        counts the inputs of all sets; those of an earlier run are done from the start.
        """
        input_set.check_sets(sets)
        sets, place, gamma = self._begin(sets, folder)
        sizes = input_set.sizes_of(sets)
        total = sum(sizes.values())
        done = sum(size for name, size in sizes.items() if place.has(part_name(name)))
        found: dict[str, Rows] = {}
        with ticking(progress) as tick:
            report = tick or (lambda _: None)
            report(done / total)
            for name, inputs in sets.items():
                size = 0 if place.has(part_name(name)) else sizes[name]

                def within(share: float, before: int = done, size: int = size) -> None:
                    report((before + size * share) / total)

                found[name] = self._part(name, inputs, place, gamma, within)
                done += size
                if size:
                    report(done / total)
        return found

    def part(self, name: str, inputs: InputSet, folder: str | Path) -> Rows:
        """One set: computed if it is missing in the folder, and read.

        Several processes may share a folder, each with its own sets. With gamma='auto' the first
        of them is the ordinary one, which determines it.
        """
        input_set.check_names([name])
        sets, place, gamma = self._begin({name: inputs}, folder)
        return self._part(name, sets[name], place, gamma)

    def check(self, sets: Mapping[str, InputSet], folder: str | Path) -> None:
        """Refuse the folder of another study, and a gamma, bounds or labels that do not fit.

        Nothing is written, and no inputs are made; `run` and `part` call it.
        """
        place = study_folder(folder)
        check_gamma(self.gamma, self._precision(sets))
        place.check(self._settings(), same=self._same(sets))
        for name, inputs in sets.items():
            if isinstance(inputs.inputs, Tensor) and not place.has(part_name(name)):
                check_usable(self.clf, inputs, inputs.inputs, self.bounds)

    def _begin(
        self, sets: Mapping[str, InputSet], folder: str | Path
    ) -> tuple[Mapping[str, InputSet], RunFolder, float]:
        """The sets, the folder with its manifest, and gamma, which is resolved only once."""
        self.check(sets, folder)
        place = study_folder(folder)
        if not place.manifest.exists():
            sets = self._make_first(sets)

        def resolve() -> dict[str, float]:
            if self.gamma == "auto":
                return {"gamma": auto_gamma(self.clf, input_set.ordinary_of(sets).load())}
            return {"gamma": float(self.gamma)}

        resolved = place.begin(self._settings(), resolve, same=self._same(sets))
        return sets, place, float(resolved["gamma"])

    def _make_first(self, sets: Mapping[str, InputSet]) -> Mapping[str, InputSet]:
        """Make and check the sets that come first, before a new folder is written to.

        Otherwise settings that do not fit them would be recorded, and the corrected ones refused.
        """
        needed = [next(iter(sets.values()))]
        if self.gamma == "auto":
            needed.append(input_set.ordinary_of(sets))
        known = dict(sets)
        for name, inputs in sets.items():
            if inputs in needed and callable(inputs.inputs):
                x = inputs.load()
                check_usable(self.clf, inputs, x, self.bounds)
                known[name] = replace(inputs, inputs=x.detach)  # still a function: same origin
        return known

    def _precision(self, sets: Mapping[str, InputSet]) -> torch.dtype | None:
        """In which gamma is used; None for a function on inputs that are not made yet."""
        given = [part.inputs.dtype for part in sets.values() if isinstance(part.inputs, Tensor)]
        return self.clf.dtype or next(iter(given), None)

    def _same(self, sets: Mapping[str, InputSet]) -> Callable[[str, Any, Any], bool]:
        dtype = self._precision(sets)
        return lambda name, old, new: (
            same_gamma(old, new, dtype) if name == _ASKED else bool(old == new)
        )

    def _settings(self) -> dict[str, Any]:
        """Everything that the numbers depend on."""
        clf = self.clf
        return {
            "model": quick_digest(clf),
            _ASKED: "auto" if self.gamma == "auto" else float(self.gamma),
            "solver": repr(self.solver),
            "loss": _describe(clf.loss),
            "outputs": clf.outputs,
            "module": clf.module,
            "space": None if clf.space is None else digest_of_space(clf.space),
            "preprocess": _describe(clf.preprocess),
            "pick": _describe(clf.pick),
            "bounds": list(self.bounds) if self.bounds else None,
            "scores": sorted(self.scores),
            "baselines": {name: _describe(b) for name, b in sorted(self.baselines.items())},
        }

    def _part(
        self, name: str, inputs: InputSet, place: RunFolder, gamma: float, tick: Tick | None = None
    ) -> Rows:
        origin, part = inputs.origin(), place.part(part_name(name))
        marks = {} if origin is None else {"inputs": origin}
        marks |= {"set": name, "kind": inputs.kind, "gamma": repr(gamma)}
        marks |= {"model": quick_digest(self.clf), "solver": repr(self.solver)}
        if not part.exists():
            x = inputs.load()
            rows = self._compute(inputs, x, gamma, tick)
            write_rows(part, rows, {**marks, "input bytes": digest_of_tensor(x)})
        found = read_rows(part, marks)
        expected = f"parts of these sets; the labels in {part.name} differ"
        same = torch.equal(found.labels, labels_of(inputs, len(found.labels)))
        remedy = "Choose another folder, or remove this part."
        require(same, "folder", expected, "a set of the same name", remedy)
        return found

    def _compute(self, inputs: InputSet, x: Tensor, gamma: float, tick: Tick | None) -> Rows:
        check_usable(self.clf, inputs, x, self.bounds)  # before the work
        profile = credibility(
            self.clf, x, gamma=gamma, solver=self.solver, bounds=self.bounds,
            chunk_size=self.chunk_size, progress=tick or False,
        )  # fmt: skip
        scores = {name: score(profile) for name, score in self.scores.items()}
        scores |= {name: baseline(self.clf, x) for name, baseline in self.baselines.items()}
        input_set.check_columns(inputs, scores, len(x))
        return Rows(
            kind=inputs.kind,
            labels=labels_of(inputs, len(x)),
            predicted=profile.predicted.cpu(),
            credible=_largest(profile.credibility),
            scores={name: values.detach().double().cpu() for name, values in scores.items()},
            facts={"gamma": gamma, **_facts(profile)},
        )


def _describe(value: object) -> str | None:
    """A setting as text that is the same in the next process: without addresses."""
    return None if value is None else re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


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
