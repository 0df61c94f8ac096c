"""Models made by Python code that the caller names: `package.module:attribute`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from credibly._validation import require
from credibly.adapters.sklearn.dispatch import unwrapped
from credibly.adapters.sklearn.twin import from_sklearn
from credibly.errors import CrediblyError, FileFormatError, InvalidArgumentError, ModelError
from credibly.io.files import load_tensors
from credibly.io.fingerprints import (
    FROM_FILE,
    digest_of_classifier,
    digest_of_file,
    digest_of_parts,
)
from credibly.io.loaded import LoadedClassifier, Parts, Wanted, refuse_format
from credibly.model.classifier import Classifier
from credibly.model.losses import Loss, resolve_loss


def load_python(spec: str, wanted: Wanted) -> LoadedClassifier:
    """Import what `spec` names, call it if it is a factory, and wrap the result."""
    if wanted.weights is not None:  # checked before code is run that may take its time
        refuse_format(wanted.weights, allowed=".safetensors")
        if not wanted.weights.is_file():
            raise FileFormatError(f"{wanted.weights}: no such file of weights.")
    found, code = import_spec(spec)
    model, notes = _make(found, spec, wanted)
    more: Parts = ()
    if isinstance(model, Classifier):
        settings = ("weights", "outputs", "loss", "classes", "preprocess", "dtype", "device")
        expected = "no such setting with a Classifier, which is taken as it is"
        remedy = f"Set it where {spec} makes the Classifier."
        wanted.refuse(*settings, expected=expected, remedy=remedy)
        clf = model
    elif is_estimator(model):
        remedy = f"Leave it out, or return a credibly.Classifier from {spec}."
        expected = "no such setting with a scikit-learn model, which fixes it"
        wanted.refuse(
            "weights", "outputs", "device", "preprocess", expected=expected, remedy=remedy
        )
        clf, also = twin_of(model, wanted)
        notes += also
    else:
        clf, more = wrap(model, wanted)
    weights = digest_of_classifier(clf) or "none"
    parts = (("name", spec.rpartition(":")[2]), ("weights", weights), ("code", code), *more)
    kind = type(model if is_estimator(model) else clf.net).__name__
    description = f"{kind} from {spec}"
    return LoadedClassifier(clf, "python", description, parts, tuple(notes))


def import_spec(spec: str) -> tuple[object, str]:
    """Return what a spec names, and a digest of the file it is in."""
    place, _, attribute = spec.rpartition(":")
    require(
        bool(place) and attribute.isidentifier(),
        "spec",
        "package.module:attribute or path/to/file.py:attribute",
        repr(spec),
        "For example credibly.data.sample:classifier.",
    )
    try:
        from_file = place.endswith(".py")
        module = _import_file(Path(place)) if from_file else importlib.import_module(place)
    except CrediblyError:
        raise
    except Exception as error:
        raise ModelError(
            f"{place} cannot be imported: {type(error).__name__}: {error}",
            remedy=_trust_remedy(error)
            or "Try it with `python -c 'import ...'` in the same folder and environment.",
        ) from error
    if not hasattr(module, attribute):
        public = [name for name in vars(module) if not name.startswith("_")]
        raise ModelError(
            f"{place} has no attribute {attribute!r}",
            remedy=f"It has {', '.join(public[:12]) or 'none'}.",
        )
    file = getattr(module, "__file__", None)
    code = digest_of_file(file) if file and Path(file).is_file() else "none"
    return getattr(module, attribute), code


def wrap(net: Any, wanted: Wanted) -> tuple[Classifier, Parts]:
    """Make a classifier of a network; return also what identifies the code of `preprocess`."""
    preprocess: Any = wanted.preprocess
    parts: Parts = ()
    if isinstance(preprocess, str):
        name = preprocess
        preprocess, code = import_spec(name)
        expected = "the name of a function from a batch to a batch"
        got = f"{name}, a {type(preprocess).__name__}"
        remedy = "It is applied to every batch before the model."
        require(callable(preprocess), "preprocess", expected, got, remedy)
        parts = (("preprocess name", name.rpartition(":")[2]), ("preprocess code", code))
    clf = Classifier(
        net,
        preprocess=preprocess,
        classes=wanted.classes,
        loss=wanted.loss or "cross_entropy",
        outputs=wanted.outputs or "logits",
        device=wanted.device,
        dtype=wanted.dtype,
    )
    return clf, parts


def is_estimator(model: object) -> bool:
    """Whether it looks like an estimator of scikit-learn, which is not called but fitted."""
    return not callable(model) and hasattr(model, "fit") and hasattr(model, "predict")


def twin_of(estimator: Any, wanted: Wanted) -> tuple[Classifier, list[str]]:
    """Return the classifier of a fitted scikit-learn model, and notes about it."""
    clf = from_sklearn(
        estimator,
        loss=None if wanted.loss is None else resolve_loss(wanted.loss),
        dtype=wanted.dtype or torch.float64,
    )
    if wanted.classes is not None:
        clf = copy(clf)
        clf.classes = Classifier(clf.net, classes=wanted.classes).classes
    own = getattr(unwrapped(estimator), "gamma_", None)
    if own is None:
        return clf, []
    return clf, [f"its own profiles are made with gamma={float(own)!r} (--gamma {float(own)!r})"]


def _trust_remedy(error: Exception) -> str | None:
    """What to do where skops, inside the user's code, refused a file for the types in it."""
    if type(error).__name__ != "UntrustedTypesFoundException":
        return None
    return (
        "If you trust these types, name them in your code: skops.io.load(FILE, trusted=[...]); "
        "skops.io.get_untrusted_types(file=FILE) lists them."
    )


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileFormatError(f"{path}: no such file.")
    resolved = path.resolve()
    name = f"{FROM_FILE}{digest_of_parts([('path', str(resolved))])[:12]}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise FileFormatError(f"{path}: not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses, for one, look up their module
    folder = str(resolved.parent)
    sys.path.insert(0, folder)  # the file may import its neighbours, as if it were run
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module


def _make(found: object, spec: str, wanted: Wanted) -> tuple[Any, list[str]]:
    """Return the model: call a factory, load the weights, move it to its device."""
    notes = []
    model = found
    ready = isinstance(found, nn.Module | Classifier | Loss)
    if not ready and (inspect.isclass(found) or inspect.isroutine(found)):
        model = _call(found, spec, check_random=wanted.weights is None)
        if isinstance(model, nn.Module) and any(part.training for part in model.modules()):
            model.eval()
            notes.append("the factory's module was in training mode; .eval() was called on it")
    taken = isinstance(model, Classifier) or is_estimator(model)
    if not callable(model) and not taken:
        raise ModelError(
            f"{spec} is a {type(model).__name__}, not a model",
            remedy="Name an nn.Module, a credibly.Classifier, a fitted scikit-learn model, or a "
            "factory of one.",
        )
    if wanted.weights is not None and not taken:
        notes.append(_load_weights(model, wanted.weights, spec))
    return move(model, wanted) if isinstance(model, nn.Module) else model, notes


def _call(factory: Callable[[], object], spec: str, *, check_random: bool) -> object:
    """Call a factory; weights that differ in a second call are random, and are refused."""
    try:
        made = factory()
        before = _first_weights(made)
        if not before or not check_random:
            return made
        del made  # two copies of a large model may be too much
        made = factory()
    except CrediblyError:
        raise
    except Exception as error:
        raise ModelError(
            f"{spec} failed when called without arguments: {type(error).__name__}: {error}",
            remedy=_trust_remedy(error)
            or "Name a function that takes no arguments and returns the trained model.",
        ) from error
    if _first_weights(made) != before:
        raise ModelError(
            f"{spec} gives other weights each time it is called: they are random, not trained",
            remedy="Pass the trained ones (--weights FILE.safetensors, in Python weights=...), or "
            "load them inside the factory.",
        )
    return made


def _first_weights(made: object) -> list[list[float]]:
    """Return the first numbers of every parameter."""
    net = made.net if isinstance(made, Classifier) else made
    parameters = net.parameters() if isinstance(net, nn.Module) else ()
    return [p.detach().flatten()[:8].nan_to_num().tolist() for p in parameters]


def move(net: nn.Module, wanted: Wanted) -> nn.Module:
    """Bring a module to the device and precision that were asked for."""
    try:
        return net.to(device=wanted.device, dtype=wanted.dtype)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidArgumentError(
            "device",
            expected="a device that this torch can use",
            got=f"{wanted.device!r} with precision {wanted.dtype} ({reason})",
            remedy="Leave it out for the CPU; `credibly env` lists the devices.",
        ) from error


def _load_weights(net: Any, path: Path, spec: str) -> str:
    """Fill a module strictly from a safetensors file; every difference is named."""
    expected = f"an nn.Module from {spec} to load weights into"
    remedy = "Return the module itself from the factory."
    require(isinstance(net, nn.Module), "weights", expected, type(net).__name__, remedy)
    tensors, _ = load_tensors(path)
    stored = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    own = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    differ = [name for name in stored if name in own and stored[name] != own[name]]
    differences = [
        *(f"{name} is {stored[name]} in the file and {own[name]} in the module" for name in differ),
        *(() if differ else _fill(net, tensors)),
    ]
    if differences:
        more = f" and {len(differences) - 4} more differences" if len(differences) > 4 else ""
        raise FileFormatError(
            f"{path}: these weights are not those of {spec}: {'; '.join(differences[:4])}{more}. "
            "Build the same architecture that was trained; a wrapper such as DataParallel or "
            "torch.compile puts a prefix before every name."
        )
    return f"weights from {path.name} ({len(stored)} tensors)"


def _fill(net: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[str]:
    """Copy tensors into a module, and say where the two differ.

    safetensors writes tensors that share memory once, so one of their names is enough.
    """
    missing, unexpected = net.load_state_dict(dict(tensors), strict=False)
    own, filled = net.state_dict(), dict[tuple[object, ...], str]()
    for name in sorted(own.keys() & tensors.keys()):
        first = filled.setdefault(_memory(name, own[name]), name)
        if not torch.equal(tensors[first], tensors[name]):
            yield f"{first} and {name} differ in the file and are one in the module"
    for name in sorted(missing):
        if _memory(name, own[name]) not in filled:
            yield f"{name} is missing from the file"
    for name in sorted(unexpected):
        yield f"{name} is not in the module"


def _memory(name: str, tensor: Tensor) -> tuple[object, ...]:
    """Return what tied tensors have in common."""
    if tensor.data_ptr() == 0:  # it has none
        return (name,)
    return tensor.device, tensor.data_ptr(), tuple(tensor.shape), tensor.stride()
