"""The work of `credibly evaluate`: sets of inputs from options, the study, its files."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from credibly._extras import require_table_extra
from credibly._validation import require
from credibly.attacks.ball import Norm
from credibly.attacks.pgd import PGD
from credibly.baselines import LogitBaseline, all_baselines
from credibly.batch.first_rows import naming_columns
from credibly.cli import options as o
from credibly.cli.console import print_line, show_progress
from credibly.cli.labels import LabelPlace
from credibly.errors import CrediblyWarning, FileFormatError
from credibly.io.files import read_json, whole_file, write_json
from credibly.io.fingerprints import digest_of_tensor
from credibly.io.models import LoadedClassifier
from credibly.io.run_folder import RunFolder
from credibly.io.source import Ids
from credibly.model.bind import bind
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.report.alarms import advice_on_alarms, alarms_table
from credibly.report.study_page import accuracies, findings, study_page, what_to_use
from credibly.report.study_view import StudyView
from credibly.report.tables import Table
from credibly.study import InputSet, Study
from credibly.study.alarms import Alarms, count_alarms
from credibly.study.corruptions import KINDS, Corruption
from credibly.study.input_set import sizes_of
from credibly.study.rows import study_settings
from credibly.study.summary import summarise
from credibly.types import Bounds, finite_rows

SEVERITIES = (1, 3, 5)


@dataclass(frozen=True, eq=False)
class LoadedInputs:
    """Inputs from a file, and where they came from; the ids are those of a column, if named."""

    name: str
    x: Tensor
    facts: Mapping[str, Any]
    ids: Ids


def read_inputs(path: Path, how: o.DataOptions, clf: Classifier) -> LoadedInputs:
    """Read all rows of a file, on the device and in the precision of the model."""
    source = how.open(path).for_model(clf)
    ids, x = source.read(0, len(source))
    if not bool(finite_rows(x).any()):
        raise FileFormatError(
            f"{path}: none of its {len(x)} rows can be used: each has a missing or infinite value, "
            "or cannot be read."
        )
    facts = {**source.describe(), "fingerprint": source.fingerprint()}
    name = path.stem if path.is_file() else path.name
    return LoadedInputs(name, x.to(device=clf.device, dtype=clf.dtype), facts, ids)


def read_classes(clf: Classifier, ordinary: LoadedInputs, place: LabelPlace) -> tuple[Tensor, int]:
    """True classes of the rows, and how many classes the model has."""
    few = bind(clf, ordinary.x[:2])
    with naming_columns(ordinary.facts.get("columns")):
        check_model(few)
    with torch.no_grad():
        count = few.losses(few.start).shape[1]
    return place.read(clf, len(ordinary.x), lambda: count), count


def attacked_sets(
    clf: Classifier, x: Tensor, y: Tensor, attacks: Sequence[str], bounds: Bounds | None
) -> dict[str, InputSet]:
    """The ordinary set, and one for each attack; they are made when they are needed."""
    sets = {"ordinary": InputSet(x, y, "ordinary")}
    for text in attacks:
        attack = parse_attack(text, bounds)
        moved = "a space" if clf.module is None else f"module={clf.module!r}"
        require(
            clf.space is None and clf.module is None,
            "attack",
            "none with this model: attacks move every number of the input, on one scale",
            f"{text!r} and a Classifier with {moved}",
            "Leave out --attack, or name a factory whose Classifier is without it.",
        )
        _warn_of_radius(attack, x)
        name = f"PGD {attack.norm} {attack.eps:g}"
        once = cache(partial(_attacked, name, attack, clf, x, y))  # a set is looked at twice
        sets[name] = InputSet(once, y, "attacked")
    return sets


def parse_attack(text: str, bounds: Bounds | None) -> PGD:
    """An attack from text such as linf:0.01."""
    norm, _, radius = text.replace("=", ":").replace(" ", ":").partition(":")
    try:
        eps = float(radius)
    except ValueError:
        eps = float("nan")
    require(
        norm in get_args(Norm) and 0 < eps < float("inf"),
        "attack",
        "NORM:EPS with the norm linf or l2 and a radius above 0",
        repr(text),
        "For example linf:0.01, in the units of the inputs.",
    )
    chosen: Any = norm
    return PGD(eps=eps, norm=chosen, bounds=bounds)


def _attacked(name: str, attack: PGD, clf: Classifier, x: Tensor, y: Tensor) -> Tensor:
    print_line(f"attacking: {name}")  # the bar stands still meanwhile
    return attack(clf, x, y)


def _warn_of_radius(attack: PGD, x: Tensor) -> None:
    """Warn of a radius larger than the range of the inputs: it may be in other units."""
    known = x[finite_rows(x)]
    spans = (known.amax(0) - known.amin(0)).flatten()
    reach = float(spans.max() if attack.norm == "linf" else spans.norm())
    if attack.eps > reach:
        warnings.warn(
            f"the attack {attack.norm}:{attack.eps:g} has a radius larger than the range of the "
            f"ordinary inputs ({reach:.3g}; values from {float(known.min()):.3g} to "
            f"{float(known.max()):.3g}). It is in the units of the inputs; --bounds keeps attacked "
            "inputs in their range",
            CrediblyWarning,
            stacklevel=2,
        )


def outlier_sets(files: Sequence[LoadedInputs], ordinary: LoadedInputs) -> dict[str, InputSet]:
    """One set for each file of inputs of no class."""
    names = [inputs.name for inputs in files]
    twice = [name for name in names if names.count(name) > 1]
    got = f"{twice[:1]} twice"
    require(not twice, "outliers", "files with different names", got, "Rename one.")
    expected = tuple(ordinary.x.shape[1:])
    for inputs in files:
        require(
            tuple(inputs.x.shape[1:]) == expected,
            "outliers",
            f"inputs of shape {expected}",
            f"{tuple(inputs.x.shape[1:])} in {inputs.facts['name']}",
            "Give them the shape of the data first; --size resizes images.",
        )
    return {f"outliers {f.name}": InputSet(f.x, None, "outliers") for f in files}


def corrupted_sets(x: Tensor, y: Tensor) -> dict[str, InputSet]:
    """One set for each kind and severity of corruption."""
    known = x[finite_rows(x)]
    low, high = float(known.min()), float(known.max())
    require(
        x.dim() == 4 and low >= 0 and high <= 1,
        "corruptions",
        "images (channels, height, width) with pixels in [0, 1]",
        f"shape {tuple(x.shape[1:])}, values {low:.3g} to {high:.3g}",
        "Leave out --corruptions, or use --scale and --preprocess.",
    )
    return {
        f"{kind} {severity}": InputSet(
            partial(_corrupted, Corruption(kind, severity), x), y, "shifted"
        )
        for severity in SEVERITIES
        for kind in KINDS
    }


def _corrupted(corruption: Corruption, x: Tensor) -> Tensor:
    """Images with missing values stay as they are; they are left out later."""
    good = finite_rows(x)
    found = x.clone()
    found[good] = corruption(x[good])
    return found


def baselines() -> dict[str, Any]:
    """Baselines that need only the outputs of the model, and so cost little."""
    every = all_baselines(gamma=1.0)  # those that are kept do not use gamma
    return {f"{name} (baseline)": b for name, b in every.items() if isinstance(b, LogitBaseline)}


def read_alarms(path: Path) -> Alarms:
    """Read what an earlier run counted."""
    content = read_json(path, "credibly.alarms", 1)
    try:
        return Alarms.from_json(content["alarms"])
    except (AttributeError, KeyError, TypeError) as error:
        raise FileFormatError(f"{path}: damaged. Remove it: it is made again.") from error


@dataclass(frozen=True, eq=False)
class EvaluationRun:
    """A study, its sets, and where they came from."""

    study: Study
    sets: Mapping[str, InputSet]
    loaded: LoadedClassifier
    ordinary: LoadedInputs
    labels: Tensor
    classes: int
    outliers: Sequence[LoadedInputs]

    def write(self, out: Path, *, resamples: int) -> tuple[list[str], list[Table]]:
        """Compute what is missing in the folder; write the numbers, the rows and the page."""
        require_table_extra("A table of all scores")
        self.study.check(self.sets, out)  # before anything is written
        folder = RunFolder(out, kind="credibly.evaluation", manifest="evaluation.json")
        with folder.lock():
            folder.begin(
                {
                    "data": digest_of_tensor(self.ordinary.x),
                    "labels": digest_of_tensor(self.labels),
                    **self.loaded.parts_by_name(),
                }
            )
            with show_progress("solving", sum(sizes_of(self.sets).values()), "inputs") as tick:
                rows = self.study.run(self.sets, out, progress=tick)
            settings = {**self._facts(), **study_settings(out)}
            with show_progress("intervals", len(rows), "sets with intervals") as tick:
                result = summarise(rows, resamples=resamples, settings=settings, progress=tick)
            result.save(out, ids=self._ids())
            alarms = self._alarms(folder)
            with whole_file(out / "index.html") as place:
                place.write_text(study_page(result, alarms), encoding="utf-8")
        view = StudyView(result)
        tables = [what_to_use(view), accuracies(view)]
        if alarms is None:
            return findings(view), tables
        return [*findings(view), *advice_on_alarms(alarms)], [*tables, alarms_table(alarms)]

    def _alarms(self, folder: RunFolder) -> Alarms | None:
        """What a Judge calls not ordinary; counted once, then read from the folder."""
        place = folder.part("alarms.json")
        stored = read_alarms(place) if place.exists() else None
        if stored is not None and list(stored.shares) == list(self.sets):
            return stored
        found = count_alarms(self.study.clf, self.sets)
        if found is not None:
            marks = {"format": "credibly.alarms", "format_version": 1}
            write_json(place, {**marks, "alarms": found.as_json()})
        return found

    def _ids(self) -> dict[str, Ids] | None:
        """The ids of the rows of every set, if a column names them."""
        if self.ordinary.facts.get("id_column") is None:
            return None
        foreign = {f"outliers {inputs.name}": inputs.ids for inputs in self.outliers}
        return {name: foreign.get(name, self.ordinary.ids) for name in self.sets}

    def _facts(self) -> dict[str, Any]:
        """Where the study came from, to be kept with its result."""
        return {
            "data": dict(self.ordinary.facts),
            "classes": self.classes,
            "model file": self.loaded.description,
            "fingerprint": self.loaded.fingerprint,
            **self.loaded.parts_by_name(),
            "outliers": {inputs.name: dict(inputs.facts) for inputs in self.outliers},
        }
