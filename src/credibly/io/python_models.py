"""Models made by Python code that the caller names: `package.module:attribute`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from torch import Tensor, nn

from credibly.errors import CrediblyError, FileFormatError, InvalidArgumentError, ModelError
from credibly.io.fingerprints import (
    FROM_FILE,
    digest_of_classifier,
    digest_of_file,
    digest_of_parts,
)
from credibly.io.models import REMEDIES, LoadedClassifier, Wanted
from credibly.model.classifier import Classifier
from credibly.model.losses import Loss


def load_python(spec: str, wanted: Wanted) -> LoadedClassifier:
    """Import what `spec` names, call it if it is a factory, and wrap what it gives."""
    if wanted.weights is not None:
        _check_weights_file(wanted.weights)  # before code is run that may take its time
    found, home = imported(spec)
    made, notes = _made(found, spec, filled_later=wanted.weights is not None)
    if isinstance(made, Classifier):
        _refuse_settings(spec, wanted)
        return _loaded(made, spec, [("code", _code(home))], notes)
    if not callable(made):
        raise ModelError(
            f"{spec} is a {type(made).__name__}, not a model",
            remedy="Name an nn.Module, a credibly.Classifier, or a factory of one.",
        )
    if wanted.weights is not None:
        notes += _load_weights(made, wanted.weights, spec)
    if isinstance(made, nn.Module):
        made = _moved(made, wanted)
    preprocess, parts = as_preprocess(wanted)
    classifier = Classifier(
        made,
        preprocess=preprocess,
        classes=wanted.classes,
        loss=wanted.loss or "cross_entropy",
        outputs=wanted.outputs or "logits",
        device=wanted.device,
        dtype=wanted.dtype,
    )
    return _loaded(classifier, spec, [("code", _code(home)), *parts], notes)


def imported(spec: str) -> tuple[object, ModuleType]:
    """What a spec names, and the module it lives in."""
    place, _, attribute = spec.rpartition(":")
    if not place or not attribute.isidentifier():
        raise InvalidArgumentError(
            "spec",
            expected="package.module:attribute or path/to/file.py:attribute",
            got=repr(spec),
            remedy="For example credibly.data.sample:classifier.",
        )
    try:
        module = _from_file(Path(place)) if place.endswith(".py") else _by_name(place)
    except CrediblyError:
        raise
    except Exception as error:
        raise ModelError(
            f"{place} cannot be imported: {type(error).__name__}: {error}",
            remedy="Try it with `python -c 'import ...'` in the same folder and environment.",
        ) from error
    if not hasattr(module, attribute):
        public = [name for name in vars(module) if not name.startswith("_")]
        raise ModelError(
            f"{place} has no attribute {attribute!r}",
            remedy=f"It has {', '.join(public[:12]) or 'none'}.",
        )
    return getattr(module, attribute), module


def as_preprocess(
    wanted: Wanted,
) -> tuple[Callable[[Tensor], Tensor] | None, list[tuple[str, str]]]:
    """The preprocess as a function, and what identifies its code."""
    if not isinstance(wanted.preprocess, str):
        return wanted.preprocess, []
    found, home = imported(wanted.preprocess)
    if not callable(found):
        raise InvalidArgumentError(
            "preprocess",
            expected="the name of a function from a batch to a batch",
            got=f"{wanted.preprocess}, a {type(found).__name__}",
            remedy="It is applied to every batch before the model.",
        )
    name = wanted.preprocess.rpartition(":")[2]
    parts = [("preprocess name", name), ("preprocess code", _code(home))]
    return found, parts  # any callable: its answers are checked where it is used


def _by_name(name: str) -> ModuleType:
    return importlib.import_module(name)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileFormatError(f"{path}: no such file.")
    resolved = path.resolve()
    name = f"{FROM_FILE}{digest_of_parts([('path', str(resolved))])[:12]}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise FileFormatError(f"{path}: not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and the like look their module up
    with _beside(resolved.parent):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """Let a file import its neighbours, as it could if it were run."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _made(found: object, spec: str, *, filled_later: bool) -> tuple[object, list[str]]:
    """The model itself: a factory is called, and a module that it made is put into eval mode."""
    if isinstance(found, nn.Module | Classifier | Loss):
        return found, []
    if not (inspect.isclass(found) or inspect.isroutine(found)):
        return found, []
    made = _called(found, spec)
    if not filled_later:
        once = _some_weights(made)
        if once:
            del made  # two copies of a large model may be too much
            made = _called(found, spec)
            _refuse_random(once, made, spec)
    if isinstance(made, nn.Module) and any(module.training for module in made.modules()):
        made.eval()
        return made, ["the factory's module was in training mode; .eval() was called on it"]
    return made, []


def _called(factory: Callable[[], object], spec: str) -> object:
    try:
        return factory()
    except CrediblyError:
        raise
    except Exception as error:
        raise ModelError(
            f"{spec} failed when called without arguments: {type(error).__name__}: {error}",
            remedy="Name a function that takes no arguments and returns the trained model.",
        ) from error


def _some_weights(made: object) -> str:
    """The first numbers of all parameters, in words: none where training has nothing to set."""
    net = made.net if isinstance(made, Classifier) else made
    parameters = net.parameters() if isinstance(net, nn.Module) else ()
    return " ".join(str(p.detach().flatten()[:8].tolist()) for p in parameters)


def _refuse_random(once: str, made: object, spec: str) -> None:
    """Weights that differ from call to call were drawn, not loaded."""
    if _some_weights(made) != once:
        raise ModelError(
            f"{spec} gives other weights each time it is called: they are random, not trained",
            remedy="Pass the trained ones (--weights FILE.safetensors, in Python weights=...), or "
            "load them inside the factory.",
        )


def _moved(net: nn.Module, wanted: Wanted) -> nn.Module:
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


def _refuse_settings(spec: str, wanted: Wanted) -> None:
    given = wanted.given("weights", "outputs", "loss", "classes", "preprocess", "dtype", "device")
    if given:
        raise InvalidArgumentError(
            given[0],
            expected="no such setting with a Classifier, which is taken as it is",
            got=f"{getattr(wanted, given[0])!r}",
            remedy=f"Set it where {spec} makes the Classifier.",
        )


def _check_weights_file(path: Path) -> None:
    suffix = path.suffix.lower()
    if suffix in REMEDIES and suffix != ".safetensors":
        raise FileFormatError(f"{path}: {REMEDIES[suffix]}.")
    if not path.is_file():
        raise FileFormatError(f"{path}: no such file of weights.")


def _load_weights(made: object, path: Path, spec: str) -> list[str]:
    """Fill a module strictly from a safetensors file; every difference is named."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file, load_model

    if not isinstance(made, nn.Module):
        raise InvalidArgumentError(
            "weights",
            expected=f"an nn.Module from {spec} to load weights into",
            got=type(made).__name__,
            remedy="Return the module itself from the factory.",
        )
    try:
        stored = {name: tuple(tensor.shape) for name, tensor in load_file(path).items()}
        own = {name: tuple(tensor.shape) for name, tensor in made.state_dict().items()}
        differ = [name for name in stored if name in own and stored[name] != own[name]]
        missing, unexpected = ([], []) if differ else load_model(made, path, strict=False)
    except (SafetensorError, OSError) as error:
        raise FileFormatError(f"{path}: not a readable safetensors file ({error}).") from error
    complaints = [
        *(f"{name} is {stored[name]} in the file and {own[name]} in the module" for name in differ),
        *(f"{name} is missing from the file" for name in sorted(missing)),
        *(f"{name} is not in the module" for name in sorted(unexpected)),
    ]
    if complaints:
        more = f" and {len(complaints) - 4} more differences" if len(complaints) > 4 else ""
        raise FileFormatError(
            f"{path}: these weights are not those of {spec}: {'; '.join(complaints[:4])}{more}. "
            f"{_about_names(set(stored), set(own))}"
        )
    return [f"weights from {path.name} ({len(stored)} tensors)"]


def _about_names(stored: set[str], own: set[str]) -> str:
    """What to do about other names: a wrapper puts its own before all of them."""
    before = _prefix(stored, own)
    if before is not None:
        return (
            f"Only {before!r} stands before every name in the file, from a wrapper such as "
            "DataParallel or torch.compile: save the weights of the network inside of it, or cut "
            f"it off, {{name.removeprefix({before!r}): tensor for name, tensor in state.items()}}."
        )
    before = _prefix(own, stored)
    if before is not None:
        return (
            f"Only {before!r} stands before every name of the module, from a wrapper: return the "
            "network inside of it from the factory."
        )
    return "Build the same architecture that was trained."


def _prefix(longer: set[str], shorter: set[str]) -> str | None:
    """What stands before every shorter name, if that is all that tells the names apart."""
    one = min(shorter, default="")
    found = {name.removesuffix(one) for name in longer if one and name.endswith(f".{one}")}
    return next((text for text in found if {text + name for name in shorter} == longer), None)


def _code(home: ModuleType) -> str:
    file = getattr(home, "__file__", None)
    return digest_of_file(file) if file and Path(file).is_file() else "none"


def _loaded(
    classifier: Classifier, spec: str, parts: list[tuple[str, str]], notes: list[str]
) -> LoadedClassifier:
    weights = digest_of_classifier(classifier) or "none"
    every = (("name", spec.rpartition(":")[2]), ("weights", weights), *parts)
    description = f"{type(classifier.net).__name__} from {spec}"
    return LoadedClassifier(
        classifier, "python", digest_of_parts(every), description, tuple(notes), every
    )
