"""Models by name: Python factories, exported programs, fitted scikit-learn models on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from credibly._validation import choice
from credibly.errors import FileFormatError
from credibly.io.loaded import LoadedClassifier, Trust, Wanted, refuse_format
from credibly.io.model_archives import load_pickled, load_program, load_skops
from credibly.io.onnx_files import load_onnx
from credibly.io.python_models import load_python
from credibly.model.classifier import Outputs
from credibly.model.losses import Loss

__all__ = ["LoadedClassifier", "load_classifier"]

_LOADERS = {
    ".pt2": load_program,
    ".onnx": load_onnx,
    ".skops": load_skops,
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), load_pickled),
}

ONLY_ONNX = {
    "expected": "the output of a graph only with an .onnx file",
    "remedy": "Leave it out.",
}


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
    graph_output: str | None = None,
) -> LoadedClassifier:
    """Load a classifier by its name or from a file.

    Args:
        spec: `package.module:attribute` or `path/to/file.py:attribute`, a module, a `Classifier` or
            a factory of either, called without arguments; a `.pt2` program of `torch.export`; an
            `.onnx` graph; a fitted scikit-learn model as `.skops`; or `.pkl`, `.pickle`, `.joblib`.
            Without
            `weights` a factory is called twice: random weights differ, and are refused.
        weights: a safetensors file, loaded strictly into the module that `spec` names.
        outputs: see `Classifier`; 'logits' by default.
        loss: see `Classifier`.
        classes: names of the classes; a fitted scikit-learn model knows its own.
        preprocess: a function, or `package.module:attribute` of one.
        trusted: True opens files that can run code when opened (`.pkl`, `.pickle`, `.joblib`,
            `.pt2`); a list names the types that a `.skops` file may hold beyond those that skops
            knows to be harmless. A Python `spec` is code and is always run.
        dtype: precision to convert a module to.
        device: where to move a module to.
        graph_output: name of the output of an `.onnx` graph that holds the logits or
            probabilities, or of any value inside it; needed only where several are possible.

    Example:
        >>> import credibly as cr
        >>> loaded = cr.load_classifier("credibly.data.sample:classifier")
        >>> loaded.kind, loaded.classifier.classes[:2]
        ('python', ('T-shirt', 'trouser'))
    """
    if outputs is not None:
        choice("outputs", outputs, get_args(Outputs), "Log-probabilities are logits.")
    place = None if weights is None else Path(weights)
    wanted = Wanted(place, outputs, loss, classes, preprocess, trusted, dtype, device, graph_output)
    return replace(_load(spec, wanted), origin=(str(spec), wanted))


def _load(spec: str | Path, wanted: Wanted) -> LoadedClassifier:
    if ":" in str(spec) and not Path(spec).exists():
        wanted.refuse("graph_output", **ONLY_ONNX)
        return load_python(str(spec), wanted)
    path = Path(spec)
    expected = f"weights only with package.module:factory, not with the file {path}"
    wanted.refuse("weights", expected=expected, remedy="A model file holds its own weights.")
    if path.suffix.lower() != ".onnx":
        wanted.refuse("graph_output", **ONLY_ONNX)
    refuse_format(path)
    if not path.is_file():
        raise FileFormatError(
            f"{path}: no such file. A model is package.module:attribute, path/to/file.py:attribute "
            "or an .onnx, .pt2, .skops, .pkl, .pickle or .joblib file."
        )
    suffix = path.suffix.lower()
    if suffix == ".py":
        raise FileFormatError(f"{path}: name what to take from it, for example {path}:make_model.")
    if suffix not in _LOADERS:
        kind = suffix or "no ending"
        raise FileFormatError(f"{path}: {kind!r} is not a known kind of model file.")
    return _LOADERS[suffix](path, wanted)
