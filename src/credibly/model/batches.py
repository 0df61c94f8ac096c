"""A batch of numbers that a caller passes, checked once at the edge."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from credibly._validation import require
from credibly.errors import InvalidArgumentError, ModelError
from credibly.model.classifier import Classifier, same_place
from credibly.model.tables import numbers_of_table
from credibly.types import Array, from_numpy

HALF = (torch.float16, torch.bfloat16)
"""Precisions whose rounding hides the trade-off."""


def check_classifier(clf: object) -> Classifier:
    """The classifier, also that of a fitted CredibilityClassifier; anything else is refused."""
    found = getattr(clf, "classifier_", clf)
    if isinstance(found, Classifier):
        return found
    raise InvalidArgumentError(
        "clf",
        expected="a credibly.Classifier",
        got=type(clf).__name__,
        remedy=classifier_inside(clf) or "Wrap your model first: credibly.Classifier(net).",
    )


def classifier_inside(thing: object) -> str | None:
    """What to pass instead of an object that holds a classifier, or will, if it does."""
    if isinstance(getattr(thing, "classifier", None), Classifier):  # of load_classifier
        return "Pass the classifier inside it: model.classifier."
    if type(thing).__name__ == "CredibilityClassifier":
        return "Fit it first: model.fit(X, y)."
    if hasattr(thing, "fit") and hasattr(thing, "predict"):
        return "Make a twin of a fitted scikit-learn model: credibly.from_sklearn(model)."
    return None


def check_evaluation_mode(clf: Classifier) -> None:
    """Refuse a model in training mode before it runs: batch norm would change its statistics."""
    if not isinstance(clf.net, nn.Module):
        return
    sensitive = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)  # noqa: SLF001
    for name, module in clf.net.named_modules():
        # torch's own recurrent and attention layers keep their dropout as a number
        inner_dropout = getattr(module, "dropout", 0.0)
        active_dropout = isinstance(inner_dropout, float) and inner_dropout > 0
        if module.training and (isinstance(module, sensitive) or active_dropout):
            raise ModelError(
                f"the model is in training mode: {name or 'the module itself'} "
                f"({type(module).__name__}) would be random or would mix the samples of a batch",
                remedy="Call net.eval() first; credibly never changes a model's mode.",
            )


def check_batch(clf: Classifier, x: Array, name: str) -> Tensor:
    """Give a detached floating tensor (n, ...) on the classifier's device and precision."""
    tensor = x if isinstance(x, Tensor) else _as_tensor(numbers_of_table(clf, x), name)
    _check_shape(tensor, name)
    _check_precision(clf, tensor, name)
    _check_device(clf, tensor, name)
    return tensor.detach()


def _as_tensor(x: Array, name: str) -> Tensor:
    if isinstance(x, Tensor):
        return x
    got, remedy = type(x).__name__, _how_to_pass(x, name)
    if isinstance(x, np.ndarray):
        try:
            return from_numpy(x)
        except (TypeError, ValueError):
            got = f"an array of {x.dtype}, which torch cannot take"
    expected = "a tensor or a NumPy array of numbers (n, ...)"
    raise InvalidArgumentError(name, expected=expected, got=got, remedy=remedy)


def _how_to_pass(x: object, name: str) -> str:
    if hasattr(x, "to_numpy"):
        return (
            f"Pass its numbers: {name}.to_numpy(dtype='float32'), or 'float64' for scikit-learn "
            "twins. A classifier that knows the names of the columns, as in Classifier(net, "
            "space=Space(columns=names)), takes a table in any order."
        )
    if hasattr(x, "edge_index"):
        return (
            "Ask about the nodes of a graph, credibility(graph_nodes(clf, data), gamma=...), or "
            "about several graphs, graph_samples(clf, graphs)."
        )
    return f"Stack samples with torch.stack; convert arrays, such as {name}.astype('float32')."


def _check_shape(x: Tensor, name: str) -> None:
    dense, got = x.layout == torch.strided, f"shape {tuple(x.shape)}"
    layout = f"a tensor of layout {x.layout}"
    require(dense, name, "a dense batch (n, ...)", layout, f"Convert it: {name}.to_dense().")
    remedy = f"For a single sample pass {name}.unsqueeze(0)."
    require(x.dim() >= 2, name, "a batch (n, ...) with the sample axis first", got, remedy)
    expected = "at least one sample of at least one feature"
    require(x.numel() > 0, name, expected, got, "Skip empty batches.")


def _check_precision(clf: Classifier, x: Tensor, name: str) -> None:
    layer = embedding_of(clf)
    tokens = f" Token ids cannot move, but their embeddings can: Classifier(net, module={layer!r})."
    require(
        x.is_floating_point(),
        name,
        "floating-point inputs, which can be moved a little",
        f"{x.dtype}",
        f"Convert as the model was trained, for example {name}.float() / 255."
        + (tokens if layer else ""),
    )
    require(
        x.dtype not in HALF and clf.dtype not in HALF,
        name,
        "float32 or float64: the rounding of lower precisions hides the trade-off",
        f"{x.dtype}" if x.dtype in HALF else f"a model in {clf.dtype}",
        f"Convert both: net.float() and {name}.float(). A net that computes in half precision "
        "inside, from float32 inputs, is fine: Classifier(net, dtype=torch.float32, "
        "preprocess=torch.Tensor.half).",
    )
    require(
        clf.dtype is None or x.dtype == clf.dtype,
        name,
        f"precision {clf.dtype}, as the model has",
        f"{x.dtype}",
        f"Convert one of them: {name}.to({clf.dtype}), for an array "
        f"{name}.astype({str(clf.dtype).removeprefix('torch.')!r}), or net.to({x.dtype}).",
    )


def embedding_of(clf: Classifier) -> str | None:
    """The name of the model's first embedding layer, if it has one."""
    parts = clf.net.named_modules() if isinstance(clf.net, nn.Module) else ()
    return next((name for name, part in parts if name and isinstance(part, nn.Embedding)), None)


def float_tokens(clf: Classifier, error: Exception) -> str | None:
    """What to do if token ids were passed as floats, as arrays are read from files."""
    if "scalar types: Long, Int" not in str(error):
        return None
    layer = clf.module or embedding_of(clf) or "embedding"
    return (
        "Token ids were passed as floats. What moves are their embeddings: "
        f"Classifier(net, module={layer!r}, preprocess=torch.Tensor.long)."
    )


def _check_device(clf: Classifier, x: Tensor, name: str) -> None:
    meta = isinstance(clf.net, nn.Module) and any(p.is_meta for p in clf.net.parameters())
    remedy = (
        "Tensors on meta have shapes only: load the weights first, for example with "
        "net.to_empty(device='cpu') and net.load_state_dict(...)."
    )
    require(not meta, name, "a model that holds numbers", "one on the meta device", remedy)
    good = clf.device is None or same_place(clf.device, x.device)
    remedy = f"Move them: {name}.to({str(clf.device)!r})."
    require(good, name, f"inputs on {clf.device}, where the model is", f"{x.device}", remedy)
