"""Models by name: Python factories, exported programs, fitted scikit-learn models on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from credibly.errors import FileFormatError, InvalidArgumentError
from credibly.model.classifier import Classifier, Outputs
from credibly.model.losses import Loss

Trust = bool | Sequence[str]

_PICKLES = (".pkl", ".pickle", ".joblib")
REMEDIES = {
    ".safetensors": "weights alone do not say what to compute. Name the network as "
    "package.module:factory and pass this file as its weights (--weights)",
    ".onnx": "ONNX graphs are not read (the usual converter, onnx2torch, needs torchvision, which "
    "credibly does without). Export the network with torch.export to a .pt2 file, or pass "
    "package.module:factory",
    **dict.fromkeys(
        (".pt", ".pth", ".ckpt", ".bin"),
        "this format is a pickle, which runs code when it is opened, and is not read. Save the "
        "weights with safetensors.torch.save_file(net.state_dict(), 'weights.safetensors') and "
        "pass package.module:factory with --weights weights.safetensors",
    ),
}


@dataclass(frozen=True)
class LoadedClassifier:
    """A classifier, and where it came from.

    Attributes:
        classifier: ready to use.
        kind: 'python', 'torch.export', 'skops' or 'pickle'.
        fingerprint: SHA-256 over the weights and files it was made of, in hex.
        description: what was loaded, in a line.
        notes: what was done to it, such as a switch to evaluation mode.
        parts: what the fingerprint is made of, to tell what differs: weights, code, a name, a file.
    """

    classifier: Classifier
    kind: str
    fingerprint: str
    description: str
    notes: tuple[str, ...] = ()
    parts: tuple[tuple[str, str], ...] = ()

    def parts_by_name(self) -> dict[str, str]:
        """The parts as settings of a run: 'model weights', 'model code', ..."""
        return {f"model {name}": value for name, value in self.parts}


@dataclass(frozen=True)
class Wanted:
    """What the caller asked of a model, checked once."""

    weights: Path | None = None
    outputs: Outputs | None = None
    loss: str | Loss | None = None
    classes: Sequence[str] | None = None
    preprocess: Callable[[Tensor], Tensor] | str | None = None
    trusted: Trust = False
    dtype: torch.dtype | None = None
    device: str | torch.device | None = None

    def given(self, *names: str) -> list[str]:
        """Which of these were asked for."""
        return [name for name in names if getattr(self, name) is not None]


def load_classifier(
    spec: str | Path,
    *,
    weights: str | Path | None = None,
    outputs: Outputs | None = None,
    loss: str | Loss | None = None,
    classes: Sequence[str] | None = None,
    preprocess: Callable[[Tensor], Tensor] | str | None = None,
    trusted: Trust = False,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
) -> LoadedClassifier:
    """Load a classifier by its name or from a file.

    Args:
        spec: `package.module:attribute` or `path/to/file.py:attribute`, a module, a `Classifier` or
            a factory of either, called without arguments; a `.pt2` program of `torch.export`; a
            fitted scikit-learn model as `.skops`; or `.pkl`, `.pickle`, `.joblib`. A factory is
            called twice where no weights are passed: random ones differ, and are refused.
        weights: a safetensors file, loaded strictly into the module that `spec` names.
        outputs: as of `Classifier`; 'logits' where nothing else is said.
        loss: as of `Classifier`.
        classes: names of the classes; a fitted scikit-learn model knows its own.
        preprocess: a function, or `package.module:attribute` of one.
        trusted: True opens files that can run code when opened (`.pkl`, `.pickle`, `.joblib`,
            `.pt2`); a list of types is what a `.skops` file may hold beyond those that skops knows
            to be harmless. A Python `spec` is code and is always run.
        dtype: precision to convert a module to.
        device: where to move a module to.
    """
    _check_choice("outputs", outputs, get_args(Outputs))
    wanted = Wanted(
        None if weights is None else Path(weights),
        outputs, loss, classes, preprocess, trusted, dtype, device,
    )  # fmt: skip
    text = str(spec)
    if ":" in text and not Path(text).exists():
        from credibly.io.python_models import load_python

        return load_python(text, wanted)
    path = Path(text)
    if wanted.weights is not None:
        raise InvalidArgumentError(
            "weights",
            expected="weights only with package.module:factory",
            got=f"{wanted.weights} with the file {path}",
            remedy="A model file holds its own weights.",
        )
    return _load_file(path, wanted)


def _load_file(path: Path, wanted: Wanted) -> LoadedClassifier:
    from credibly.io import model_archives as archives

    suffix = path.suffix.lower()
    if suffix in REMEDIES:
        raise FileFormatError(f"{path}: {REMEDIES[suffix]}.")
    if not path.is_file():
        raise FileFormatError(
            f"{path}: no such file. A model is package.module:attribute, path/to/file.py:attribute "
            "or a .pt2, .skops, .pkl, .pickle or .joblib file."
        )
    if suffix == ".pt2":
        return archives.load_program(path, wanted)
    if suffix == ".skops":
        return archives.load_skops(path, wanted)
    if suffix in _PICKLES:
        return archives.load_pickled(path, wanted)
    if suffix == ".py":
        raise FileFormatError(f"{path}: name what to take from it, for example {path}:make_model.")
    raise FileFormatError(f"{path}: {suffix or 'no ending'!r} is not a known kind of model file.")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise InvalidArgumentError(
            name,
            expected=" or ".join(map(repr, choices)),
            got=repr(value),
            remedy="Log-probabilities are logits.",
        )
