"""A Judge on disk: a folder with judge.json and judge.safetensors, and nothing that runs."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from credibly._validation import chunk_size as check_chunk_size
from credibly._validation import positive, require
from credibly._validation import whole as whole_number
from credibly.decide.agreement import Agreement
from credibly.decide.alarm import QUESTIONS, Alarm, Scales
from credibly.decide.calibration import VennAbers
from credibly.decide.examine import Examiner, watched
from credibly.decide.judge_checks import check_together
from credibly.decide.judge_facts import Facts
from credibly.decide.ordinary import with_space
from credibly.decide.ranges import Ranges
from credibly.decide.recipe import TrustRecipe
from credibly.decide.signals import Typicality
from credibly.decide.typicality import (
    Correlations,
    InputMetric,
    Neighbours,
    TypicalInputs,
)
from credibly.errors import FileFormatError, InvalidArgumentError, OutputError
from credibly.io.files import (
    json_text,
    load_tensors,
    read_json,
    reading,
    tensors_content,
    whole_file,
    writing,
)
from credibly.io.fingerprints import (
    digest_of_parts,
    digest_of_tensor,
    in_words,
    name_of_callable,
    quick_digest,
)
from credibly.io.streams import as_classifier
from credibly.model.batches import TakesTables
from credibly.model.classifier import Classifier
from credibly.model.features import LastHidden
from credibly.model.memory import size_here
from credibly.model.space import Space
from credibly.model.views import View
from credibly.solve.fixed import FixedDescent
from credibly.types import CPU

if TYPE_CHECKING:
    from credibly.decide.judge import Judge

FORMAT, VERSION = "credibly.judge", 4
NUMBERS, TENSORS = "judge.json", "judge.safetensors"


def save(judge: Judge, path: Path) -> None:
    """Write both files, or none: an old Judge survives a full disk."""
    if path.exists() and not path.is_dir():
        raise OutputError(f"{path} is a file", remedy="A Judge is saved as a folder: name one.")
    data = tensors_content(_tensors(judge), {"format": FORMAT})
    content = {**_content(judge), "sha256": hashlib.sha256(data).hexdigest()}
    made = not path.exists()
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    try:
        with whole_file(path / TENSORS) as tensors, whole_file(path / NUMBERS) as numbers:
            tensors.write_bytes(data)
            numbers.write_text(json_text(content), encoding="utf-8")
    except OutputError:
        if made:
            for name in (TENSORS, NUMBERS):
                (path / name).unlink(missing_ok=True)
            with suppress(OSError):
                path.rmdir()
        raise


def digest(judge: Judge) -> str:
    """Return a SHA-256, in hex, of all that decides verdicts; it tells Judges apart."""
    content = {k: v for k, v in _content(judge).items() if not k.startswith("chunk_")}
    words = json.dumps(content, sort_keys=True)
    tensors = [(name, digest_of_tensor(value)) for name, value in sorted(_tensors(judge).items())]
    return digest_of_parts([("content", words), *tensors])


def _content(judge: Judge) -> dict[str, Any]:
    """The numbers and words of a Judge."""
    inputs = judge.typicality.inputs
    return {
        "format": FORMAT,
        "format_version": VERSION,
        "facts": judge.facts.as_json(),
        "gamma": judge.examiner.gamma,
        "descent": asdict(judge.examiner.descent),
        "features": None if judge.examiner.hidden is None else judge.examiner.hidden.name,
        "views": [name_of_callable(view) for view in judge.examiner.views],
        "top": judge.examiner.top,
        "chunk_size": judge.examiner.chunk_size,
        "chunk_auto": judge.examiner.auto,
        "scales": [part.as_json() for part in (judge.alarm.whole, *judge.alarm.parts)],
        "trust": judge.recipe.as_json(),
        "columns": None if inputs is None else inputs.ranges.names,
        "shape": None if inputs is None else inputs.shape,
        "classes": judge.examiner.clf.classes,
        "classifier": _use_of(judge.examiner.clf),
    }


def _use_of(clf: Classifier) -> dict[str, str | None]:
    """How a network is used, which its weights do not tell."""
    return {
        "outputs": clf.outputs,
        "loss": repr(clf.loss),
        "module": clf.module,
        "preprocess": name_of_callable(clf.preprocess),
        "pick": name_of_callable(clf.pick),
    }


def load(path: Path, net: Any, views: tuple[View, ...]) -> dict[str, Any]:
    """The fields of a Judge, checked against the network."""
    if not (path / NUMBERS).is_file():
        raise FileFormatError(f"{path}: not the folder of a Judge; it has no {NUMBERS}.")
    content = read_json(path / NUMBERS, FORMAT, VERSION)
    tensors, _ = load_tensors(path / TENSORS)
    if hashlib.sha256((path / TENSORS).read_bytes()).hexdigest() != content.get("sha256"):
        raise FileFormatError(f"{path / TENSORS}: not the file that {NUMBERS} was saved with.")
    clf = as_classifier(net)
    with reading(path / NUMBERS):
        facts = Facts.from_json(content["facts"])
        clf = _in_own_units(net, clf, tensors)
        stored = {name: content["classifier"][name] for name in _use_of(clf)}
    _check_network(clf, facts, path)
    _check_use(clf, stored, path)
    with reading(path / NUMBERS):
        named = [str(name) for name in content["views"]]
    _check_views(named, views)
    with reading(path / NUMBERS):
        return _fields(content, tensors, clf, facts, views)


def _in_own_units(net: Any, clf: Classifier, tensors: dict[str, Tensor]) -> Classifier:
    """The classifier, in the units that a table of its ordinary inputs had."""
    own = isinstance(clf.net, TakesTables) and clf.space is None
    if own and not isinstance(net, Classifier) and "space.scale" in tensors:
        locked = tensors["space.locked"]
        return with_space(clf, Space(scale=tensors["space.scale"], locked=locked))
    return clf


def _check_network(clf: Classifier, facts: Facts, path: Path) -> None:
    found = quick_digest(clf)
    if found != facts.model:
        raise InvalidArgumentError(
            "net",
            expected=f"the network the Judge in {path} was fitted for, {in_words(facts.model)}",
            got=in_words(found),
            remedy="Load that network, or fit a Judge for this one: scores of different networks "
            "are not comparable.",
        )


def _check_use(clf: Classifier, stored: dict[str, Any], path: Path) -> None:
    used = _use_of(clf)
    other = [f"{n} {v!r} and not {stored[n]!r}" for n, v in used.items() if v != stored[n]]
    require(
        not other,
        "net",
        f"the network used as the Judge in {path} was fitted",
        ", ".join(other),
        "Pass the same options of the classifier, or fit a Judge for this one.",
    )


def _check_views(stored: list[str], views: tuple[View, ...]) -> None:
    """Refuse other views than those of the fit; their names are all that is known of them."""
    given = [str(name_of_callable(view)) for view in views]
    expected = f"the views it was fitted with, {stored or 'none'}"
    remedy = "Pass the same functions in the same order: Judge.load(path, net, views=...)."
    require(given == stored, "views", expected, f"{given or 'none'}", remedy)


def _fields(
    content: dict[str, Any],
    tensors: dict[str, Tensor],
    clf: Classifier,
    facts: Facts,
    views: tuple[View, ...],
) -> dict[str, Any]:
    known = {field.name for field in fields(FixedDescent)}
    if not isinstance(content["descent"], dict) or content["descent"].keys() != known:
        raise FileFormatError(f"expected the settings of a descent, got {content['descent']}")
    descent = FixedDescent(**content["descent"])
    name = content["features"]
    hidden = None if name is None else LastHidden.of(clf, name)
    gamma, size = positive("gamma", content["gamma"]), check_chunk_size(content["chunk_size"])
    top = None if content["top"] is None else whole_number("top", content["top"])
    auto = content["chunk_auto"] is True
    size = size_here(size, clf.device) if auto else size
    examiner = Examiner(clf, gamma, descent, hidden, top, size, views, auto, watched(clf))
    whole, *parts = (Scales.from_json(part) for part in content["scales"])
    ordinary = tuple(
        {question: tensors[f"ordinary.{question}.{k}"].double() for question in QUESTIONS}
        for k in range(len(parts))
    )
    calibration = None
    if "calibration.scores" in tensors:
        steps = (tensors[f"calibration.{part.name}"] for part in fields(VennAbers))
        calibration = VennAbers(*steps)
    found = {
        "examiner": examiner,
        "typicality": _typicality(content, tensors, clf),
        "alarm": Alarm(whole, tuple(parts), ordinary),
        "recipe": TrustRecipe.from_json(content["trust"]),
        "ordinary_trust": tensors["ordinary.trust"].double(),
        "thresholds": tensors["thresholds"].double(),
        "calibration": calibration,
        "facts": facts,
    }
    check_together(content, found)
    return found


def _typicality(content: dict[str, Any], tensors: dict[str, Tensor], clf: Classifier) -> Typicality:
    device = clf.device or CPU
    named = {name.partition(".")[0] for name in tensors}
    features, agreement = None, None
    if "features" in named:
        features = Neighbours(tensors["features.points"].to(device))
        agreement = Agreement(features.points, tensors["features.classes"].to(device))
    if "points" not in named:
        return Typicality(features, None, agreement)
    metric, alike = (
        InputMetric(*(tensors[f"{name}.{part.name}"] for part in fields(InputMetric)))
        for name in ("metric", "alike")
    )
    points, statistics = (
        Neighbours(tensors[f"{name}.points"].to(place))
        for name, place in (("points", device), ("statistics", CPU))
    )
    low, high, unit, fractions = (
        tensors[f"ranges.{name}"].double() for name in ("low", "high", "unit", "fractions")
    )
    names = tuple(str(name) for name in content["columns"])
    ranges = Ranges(low, high, tensors["ranges.in_logs"].bool(), unit, fractions, names)
    shape = tuple(int(n) for n in content["shape"])
    correlations = None
    if "correlations" in named:
        correlations = Correlations(tensors["correlations.centre"], tensors["correlations.root"])
    inputs = TypicalInputs(metric, points, alike, statistics, ranges, correlations, shape)
    return Typicality(features, inputs, agreement)


def _tensors(judge: Judge) -> dict[str, Tensor]:
    """The tensors of a Judge by name, on the CPU."""
    known = judge.typicality
    found: dict[str, Tensor] = {
        **{
            f"ordinary.{question}.{k}": values
            for k, part in enumerate(judge.alarm.ordinary)
            for question, values in part.items()
        },
        "ordinary.trust": judge.ordinary_trust,
        "thresholds": judge.thresholds,
    }
    if known.features is not None:
        found["features.points"] = known.features.points
    if known.agreement is not None:
        found["features.classes"] = known.agreement.classes
    inputs = known.inputs
    if inputs is not None:
        for name, part in vars(inputs).items():
            known_tensors = vars(part) if hasattr(part, "__dict__") else {}
            found |= {f"{name}.{k}": v for k, v in known_tensors.items() if isinstance(v, Tensor)}
    if judge.calibration is not None:
        found |= {f"calibration.{name}": v for name, v in vars(judge.calibration).items()}
    space = judge.examiner.clf.space
    if space is not None and isinstance(space.scale, Tensor) and isinstance(space.locked, Tensor):
        found |= {"space.scale": space.scale, "space.locked": space.locked}
    return {name: value.detach().cpu().contiguous() for name, value in found.items()}
