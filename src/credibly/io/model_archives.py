"""Model files: torch.export programs, and fitted scikit-learn models in skops or pickle format."""

from __future__ import annotations

import json
import warnings
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from credibly._extras import load_extra
from credibly.adapters.sklearn.dispatch import inside_of, refuse_flat
from credibly.adapters.sklearn.twin import Twin
from credibly.errors import CrediblyError, FileFormatError, ModelError
from credibly.io.fingerprints import digest_of_file
from credibly.io.loaded import LoadedClassifier, Parts, Wanted
from credibly.io.python_models import twin_of, wrap
from credibly.model.classifier import Classifier
from credibly.types import CPU

_TRUST = "pass trusted=True (--unsafe-pickle) only if you made the file or trust who did"
_PURPOSE = "A fitted scikit-learn model"

_OWN = (
    "numpy.dtype",  # of imputers: the kind of numbers, no code
    "credibly.estimator.CredibilityClassifier",
    "credibly.model.space.Space",
    *(f"credibly.model.losses.{name}" for name in (
        "CrossEntropy", "Logistic", "Hinge", "OneVersusRestHinge",
    )),
    *(f"credibly.solve.{name}" for name in (
        "lbfgs.LBFGS", "gradient_descent.GradientDescent", "gradient_descent.Hybrid",
        "gauss_newton.GaussNewton", "arrow_hurwicz.ArrowHurwicz",
    )),
)  # fmt: skip
"""Types of this package that an estimator may hold: settings and numbers, nothing that runs."""


def load_program(path: Path, wanted: Wanted) -> LoadedClassifier:
    """Load a `.pt2` program. torch unpickles and evaluates parts of it, so it must be trusted."""
    if wanted.trusted is not True:
        raise FileFormatError(
            f"{path}: opening a .pt2 file can run code that is hidden in it (torch.export.load "
            f"unpickles constants and evaluates expressions); {_TRUST}."
        )
    _refuse(path, wanted, "dtype", "device")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about torch's own internals
            program = torch.export.load(path)
    except Exception as error:
        raise FileFormatError(f"{path}: torch.export.load failed ({_shorten(error)}).") from error
    _check_dynamic_batch(path, program)
    classifier, parts = wrap(program, wanted)
    return _loaded(classifier, "torch.export", path, "torch.export program", parts)


def _check_dynamic_batch(path: Path, program: torch.export.ExportedProgram) -> None:
    names = set(program.graph_signature.user_inputs)
    values = [
        node.meta["val"] for node in program.graph.nodes
        if node.op == "placeholder" and node.name in names and "val" in node.meta
    ]  # fmt: skip
    if len(values) != 1:
        raise ModelError(
            f"{path} takes {len(values)} inputs",
            remedy="Export a module that takes one batch of inputs.",
        )
    if values[0].dim() == 0 or isinstance(values[0].shape[0], int):
        raise ModelError(
            f"{path} was exported for batches of shape {tuple(values[0].shape)} only",
            remedy="Export it with a dynamic batch: torch.export.export(net, (x,), "
            "dynamic_shapes=({0: torch.export.Dim('n')},)).",
        )


def load_skops(path: Path, wanted: Wanted) -> LoadedClassifier:
    """Load a fitted model in skops format, made of types that are known or named as trusted."""
    io = load_extra("skops.io", extra="sklearn", purpose=_PURPOSE)
    try:
        unknown = io.get_untrusted_types(file=path)
        named = [*_OWN, *(wanted.trusted or ())] if wanted.trusted is not True else unknown
        trusted = [name for name in unknown if name in named]
        refused = [name for name in unknown if name not in trusted]
        estimator = None if refused else io.load(path, trusted=trusted)
    except Exception as error:
        raise FileFormatError(f"{path}: not a readable skops file ({_shorten(error)}).") from error
    if refused:
        _refuse_flat(path)  # which no trust would help
        flags = " ".join(f"--trust {name}" for name in refused)
        raise FileFormatError(
            f"{path}: holds types that skops does not know to be harmless: {', '.join(refused)}. "
            f"If you trust them, pass trusted={refused!r} ({flags})."
        )
    return _convert(estimator, "skops", path, wanted)


def _refuse_flat(path: Path) -> None:
    """Refuse a forest and the like by the class names in the file, without loading it."""
    node = None
    with suppress(Exception), zipfile.ZipFile(path) as archive:  # the caller refuses it anyway
        node = json.loads(archive.read("schema.json"))
        while (inner := _find_deciding(node)) is not None:
            node = inner
        node = node if node["__module__"].split(".")[0] == "sklearn" else None
    if node is not None:
        refuse_flat(node["__class__"])


def _find_deciding(node: Any) -> Any:
    """Return the part that decides in a pipeline, a search or a freezer of skops, else None."""
    if node["__class__"] in ("BaggingClassifier", "CredibilityClassifier"):
        return node["content"]["content"]["estimator_"]
    if node["__class__"] == "Pipeline":
        return node["content"]["content"]["steps"]["content"][-1]["content"][1]
    attribute = inside_of(node["__class__"])
    return None if attribute is None else node["content"]["content"].get(attribute)


def load_pickled(path: Path, wanted: Wanted) -> LoadedClassifier:
    """Load a pickled model. That runs any code in the file, so it must be trusted."""
    if wanted.trusted is not True:
        raise FileFormatError(
            f"{path}: a pickle runs code when it is opened; {_TRUST}. Better, save the fitted "
            "model with skops.io.dump(model, 'model.skops'), which runs nothing."
        )
    joblib = load_extra("joblib", extra="sklearn", purpose=_PURPOSE)
    try:
        estimator = joblib.load(path)
    except Exception as error:
        raise FileFormatError(f"{path}: cannot be unpickled ({_shorten(error)}).") from error
    return _convert(estimator, "pickle", path, wanted)


def _convert(estimator: Any, kind: str, path: Path, wanted: Wanted) -> LoadedClassifier:
    """Convert a fitted scikit-learn model to torch."""
    if isinstance(estimator, nn.Module):
        raise FileFormatError(f"{path}: holds a torch module. Name its factory and pass --weights.")
    _refuse(path, wanted, "outputs", "device", "preprocess")
    try:
        clf, notes = twin_of(estimator, wanted)
        if isinstance(clf.net, Twin):  # numbers that do not fit together show when it runs
            clf.net(torch.zeros(1, clf.net.features, dtype=clf.dtype, device=CPU))
    except CrediblyError:
        raise
    except Exception as error:
        raise FileFormatError(f"{path}: its model is damaged ({_shorten(error)}).") from error
    found = _loaded(clf, kind, path, f"scikit-learn {type(estimator).__name__}", ())
    return replace(found, notes=tuple(notes))


def _refuse(path: Path, wanted: Wanted, *names: str) -> None:
    remedy = "Leave it out, or write a factory and pass package.module:factory."
    expected = f"no such setting with the file {path.name}, which fixes it"
    wanted.refuse(*names, expected=expected, remedy=remedy)


def _shorten(error: Exception) -> str:
    """Return the first line of an error, which for torch may be pages long."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:300]


def _loaded(
    classifier: Classifier, kind: str, path: Path, what: str, parts: Parts
) -> LoadedClassifier:
    every = (("file", digest_of_file(path)), *parts)
    return LoadedClassifier(classifier, kind, f"{what} from {path.name}", every)
