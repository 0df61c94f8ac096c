"""The work behind `credibly evaluate`: sets from options, the study, its files."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from credibly.attacks.ball import Norm
from credibly.attacks.pgd import PGD
from credibly.baselines.catalogue import LogitBaseline, all_baselines
from credibly.batch.shards import require_table_extra, writing
from credibly.cli import options as o
from credibly.errors import CrediblyWarning, FileFormatError, InvalidArgumentError, OutputError
from credibly.io.columns import naming_columns
from credibly.io.fingerprints import digest_of_parts
from credibly.io.labels import read_labels
from credibly.io.lock import locked
from credibly.io.models import LoadedClassifier
from credibly.io.whole_files import whole_file
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.inputs import enter, finite_rows
from credibly.profile.arguments import check_bounds
from credibly.solve.hybrid import Hybrid
from credibly.study.corruptions import KINDS, Corruption
from credibly.study.shares import sizes_of
from credibly.study.study import InputSet, Study
from credibly.study.study_result import StudyResult
from credibly.study.summary import summarise
from credibly.types import Bounds

SEVERITIES = (1, 3, 5)

Bar = Callable[[str, int, str], AbstractContextManager[Callable[[float], None]]]
"""What is done, how many of what: a function of the share done, which shows it."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs that were read, and where they came from."""

    name: str
    x: Tensor
    facts: Mapping[str, Any]

    def fitted(self, clf: Classifier) -> Inputs:
        """The same on the device and in the precision of the model."""
        return replace(self, x=self.x.to(device=clf.device, dtype=clf.dtype))


def read_inputs(path: Path, how: o.DataOptions, clf: Classifier) -> Inputs:
    """All rows of a file that the options describe, in memory, as the model takes them."""
    source = how.open(path).for_model(clf)
    _, x = source.read(0, len(source))
    if not bool(finite_rows(x).any()):
        raise FileFormatError(
            f"{path}: none of its {len(x)} rows can be used: each has a missing value or infinity, "
            "or cannot be read."
        )
    facts = {**source.describe(), "fingerprint": source.fingerprint()}
    return Inputs(path.stem if path.is_file() else path.name, x, facts)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A study and its sets, checked before any work."""

    study: Study
    sets: Mapping[str, InputSet]
    facts: Mapping[str, Any]

    @staticmethod
    def of(
        loaded: LoadedClassifier,
        ordinary: Inputs,
        labels: tuple[Path, str | None],
        *,
        attacks: Sequence[str],
        corruptions: bool,
        outliers: Sequence[Inputs],
        gamma: float | Literal["auto"],
        bounds: Bounds | None,
        effort: float,
        chunk_size: int,
        limited: bool,
    ) -> Evaluation:
        """Everything that the command asks for; what cannot work is refused here."""
        clf, solver = loaded.classifier, Hybrid(effort=effort)
        ordinary, outliers = ordinary.fitted(clf), [inputs.fitted(clf) for inputs in outliers]
        x = ordinary.x
        y, count = _labels(clf, ordinary, labels, limited=limited)
        check_bounds(bounds, x)
        sets = {"ordinary": InputSet(x, y, "ordinary")}
        for text in attacks:
            attack = parsed_attack(text, bounds)
            _check_attackable(clf, text)
            _doubt_radius(attack, x)
            name = f"PGD {attack.norm} {attack.eps:g}"
            sets[name] = InputSet(partial(attack, clf, x, y), y, "attacked")
        for inputs in outliers:
            _check_shape(inputs, ordinary)
            check_bounds(bounds, inputs.x)
            sets[_unused(inputs.name, sets)] = InputSet(inputs.x, None, "outliers")
        for name, make in _damages(x).items() if corruptions else ():
            sets[name] = InputSet(make, y, "shifted")
        study = Study(
            clf=clf, gamma=gamma, solver=solver, bounds=bounds, baselines=rivals(),
            chunk_size=chunk_size,
        )  # fmt: skip
        facts = {
            "data": dict(ordinary.facts),
            "labels": digest_of_parts([("labels", str(y.tolist()))]),
            "classes": count,
            "model file": loaded.description,
            "fingerprint": loaded.fingerprint,
            **loaded.parts_by_name(),
            "outliers": {inputs.name: dict(inputs.facts) for inputs in outliers},
        }
        return Evaluation(study, sets, facts)

    def run(
        self, out: Path, *, resamples: int, bar: Bar, tell: Callable[[str], None]
    ) -> StudyResult:
        """Compute what is missing, and write the numbers, the rows and the page.

        Solving and the intervals each have a bar; that attacked inputs are being made is told.
        """
        from credibly.report.study_page import study_page

        require_table_extra()
        self.study.check(self.sets, out)
        with writing(out):
            out.mkdir(parents=True, exist_ok=True)
        with locked(out / "lock", out), writing(out):
            facts = self._agreed(out / "evaluation.json")
            sets = {name: _told(name, part, tell) for name, part in self.sets.items()}
            with bar("solving", sum(sizes_of(sets).values()), "inputs") as tick:
                rows = self.study.run(sets, out, progress=tick)
            settings = {**facts, **json.loads((out / "study.json").read_text("utf-8"))}
            with bar("intervals", len(rows), "sets with intervals") as tick:
                result = summarise(rows, resamples=resamples, settings=settings, progress=tick)
            result.save(out)
            page = study_page(result)
            (out / "index.html").write_text(page, encoding="utf-8")
        return result

    def _agreed(self, path: Path) -> dict[str, Any]:
        """Refuse a folder of other data: the study itself knows only the model."""
        own: dict[str, Any] = json.loads(json.dumps(self.facts))
        before: dict[str, Any] = {}
        if path.exists():
            try:
                before = dict(json.loads(path.read_text("utf-8")))
            except ValueError as error:
                raise FileFormatError(f"{path}: not readable as JSON ({error}).") from error
        _refuse_other(before, own, path.parent, but=("outliers", "model file"))
        _refuse_other(before.get("outliers", {}), own["outliers"], path.parent)
        known = {**own, "outliers": {**before.get("outliers", {}), **own["outliers"]}}
        with whole_file(path) as aside:
            aside.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        return own


def _told(name: str, part: InputSet, tell: Callable[[str], None]) -> InputSet:
    """The same set; if it has to be attacked first, that is said, since no bar moves meanwhile."""
    make = part.inputs
    if not callable(make) or part.kind != "attacked":
        return part

    def made() -> Tensor:
        tell(f"attacking: {name}")
        return make()

    return replace(part, inputs=made)


def _refuse_other(
    before: Mapping[str, Any], own: Mapping[str, Any], out: Path, but: Sequence[str] = ()
) -> None:
    shared = [name for name in own if name not in but and name in before]
    other = [name for name in shared if before[name] != own[name]]
    if any(name.startswith("model ") for name in other):
        other.remove("fingerprint")  # of all of them
    if other:
        raise OutputError(
            f"{out} holds an evaluation of other {', '.join(other)}",
            remedy="Choose another folder, or remove this one.",
        )


def rivals() -> dict[str, Any]:
    """Rivals that need only the outputs of the model, and so cost next to nothing."""
    every = all_baselines(gamma=1.0)  # none of those that are kept has a use for gamma
    return {f"{name} (baseline)": r for name, r in every.items() if isinstance(r, LogitBaseline)}


def parsed_attack(text: str, bounds: Bounds | None) -> PGD:
    """An attack from words such as linf:0.01."""
    norm, _, radius = text.replace("=", ":").replace(" ", ":").partition(":")
    try:
        eps = float(radius)
    except ValueError:
        eps = float("nan")
    if norm not in get_args(Norm) or not 0 < eps < float("inf"):
        raise InvalidArgumentError(
            "attack",
            expected="NORM:EPS with a norm of linf or l2 and a radius above 0",
            got=repr(text),
            remedy="For example linf:0.01, in the units of the inputs.",
        )
    chosen: Any = norm
    return PGD(eps=eps, norm=chosen, bounds=bounds)


def _check_attackable(clf: Classifier, text: str) -> None:
    """Attacks move plain inputs: say so now, and not when the ordinary inputs are solved."""
    if clf.space is None and clf.module is None:
        return
    moved = "a space" if clf.module is None else f"module={clf.module!r}"
    raise InvalidArgumentError(
        "attack",
        expected="none with this model: attacks move every number of the input, and alike",
        got=f"{text!r} and a Classifier with {moved}",
        remedy="Leave out --attack, or name a factory whose Classifier is without it.",
    )


def _doubt_radius(attack: PGD, x: Tensor) -> None:
    """Warn of a radius that leaves nothing of the inputs: it is probably meant in other units."""
    known = x[finite_rows(x)]
    if not len(known):
        return
    spans = (known.amax(0) - known.amin(0)).flatten()
    reach = float(spans.max() if attack.norm == "linf" else spans.norm())
    if attack.eps > reach:
        warnings.warn(
            f"the attack {attack.norm}:{attack.eps:g} goes farther than the ordinary inputs lie "
            f"apart ({reach:.3g} at most; values from {float(known.min()):.3g} to "
            f"{float(known.max()):.3g}): nothing of them is left. The radius is in the units of "
            "the inputs; --bounds keeps attacked inputs in their range.",
            CrediblyWarning,
            stacklevel=2,
        )


def _labels(
    clf: Classifier, ordinary: Inputs, place: tuple[Path, str | None], *, limited: bool
) -> tuple[Tensor, int]:
    """True classes of the rows, and how many classes the model has."""
    bound, few = enter(clf, ordinary.x[:2])
    with naming_columns(ordinary.facts.get("columns")):
        check_model(bound, few)
    with torch.no_grad():
        count = bound.losses(few).shape[1]
    labels = read_labels(*place, classes=clf.classes or count)
    rows = len(ordinary.x)
    if len(labels) < rows or (len(labels) > rows and not limited):
        raise InvalidArgumentError(
            "labels",
            expected=f"{rows}, one for each row of the data",
            got=f"{len(labels)} in {place[0].name}",
            remedy="They go with the rows in order; --limit takes the first of both.",
        )
    return labels[:rows], count


def _check_shape(inputs: Inputs, ordinary: Inputs) -> None:
    if inputs.x.shape[1:] != ordinary.x.shape[1:]:
        raise InvalidArgumentError(
            "outliers",
            expected=f"inputs of shape {tuple(ordinary.x.shape[1:])}",
            got=f"{tuple(inputs.x.shape[1:])} in {inputs.facts['name']}",
            remedy="Bring them to the shape of the data first; images are resized by --size.",
        )


def _unused(name: str, sets: Mapping[str, InputSet]) -> str:
    if f"outliers {name}" in sets:
        raise InvalidArgumentError(
            "outliers",
            expected="files of different names",
            got=f"{name!r} twice",
            remedy="Rename one.",
        )
    return f"outliers {name}"


def _damages(x: Tensor) -> dict[str, Callable[[], Tensor]]:
    known = x[finite_rows(x)]
    if x.dim() != 4 or bool(((known < 0) | (known > 1)).any()):
        raise InvalidArgumentError(
            "corruptions",
            expected="images (channels, height, width) with pixels in [0, 1]",
            got=f"shape {tuple(x.shape[1:])}, values {float(known.min()):.3g} to "
            f"{float(known.max()):.3g}",
            remedy="Leave out --corruptions, or let --scale and --preprocess do the rest.",
        )
    return {
        f"{kind} {severity}": partial(_damaged, Corruption(kind, severity), x)
        for severity in SEVERITIES
        for kind in KINDS
    }


def _damaged(corruption: Corruption, x: Tensor) -> Tensor:
    """Images that are no numbers stay so: they are left out later, and stop nobody."""
    good = finite_rows(x)
    found = x.clone()
    found[good] = corruption(x[good])
    return found
