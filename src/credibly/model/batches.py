"""A batch of numbers a caller passes, checked once at the edge."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from credibly.errors import InvalidArgumentError, ModelError
from credibly.model.classifier import Classifier
from credibly.model.failures import embedding_of
from credibly.model.tables import numbers_of_table
from credibly.types import Array, from_numpy

HALF = (torch.float16, torch.bfloat16)
"""Precisions whose rounding is larger than what a profile is about."""


def check_classifier(classifier: object) -> None:
    """Refuse what is not a classifier of this package."""
    if not isinstance(classifier, Classifier):
        raise InvalidArgumentError(
            "clf",
            expected="a credibly.Classifier",
            got=type(classifier).__name__,
            remedy=classifier_inside(classifier)
            or "Wrap your model first: credibly.Classifier(net).",
        )


def classifier_inside(thing: object) -> str | None:
    """What to pass instead of something that has a classifier inside, if it has."""
    kind = type(thing).__name__
    for name in ("classifier_", "classifier"):  # of CredibilityClassifier, of load_classifier
        if isinstance(getattr(thing, name, None), Classifier):
            return f"Pass the classifier inside of it: .{name}, as in model.{name}."
    if kind == "CredibilityClassifier":
        return "Fit it first, then pass the classifier inside of it: model.classifier_."
    return None


def check_evaluation_mode(classifier: Classifier) -> None:
    """Refuse a model in training mode before it runs: batch norm would change its statistics."""
    if not isinstance(classifier.net, nn.Module):
        return
    sensitive = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)  # noqa: SLF001
    for name, module in classifier.net.named_modules():
        # torch's own recurrent and attention layers carry their dropout as a number
        inner_dropout = getattr(module, "dropout", 0.0)
        active_dropout = isinstance(inner_dropout, float) and inner_dropout > 0
        if module.training and (isinstance(module, sensitive) or active_dropout):
            raise ModelError(
                f"the model is in training mode: {name or 'the module itself'} "
                f"({type(module).__name__}) would be random or would mix the samples of a batch",
                remedy="Call net.eval() first; credibly never changes a model's mode.",
            )


def check_batch(classifier: Classifier, x: Array, name: str) -> Tensor:
    """Give a detached floating tensor (n, ...) on the classifier's device and precision."""
    tensor = _as_tensor(numbers_of_table(classifier, x), name)
    _check_shape(tensor, name)
    _check_precision(classifier, tensor, name)
    _check_device(classifier, tensor, name)
    return tensor.detach()


def _as_tensor(x: Array, name: str) -> Tensor:
    if isinstance(x, Tensor):
        return x
    if isinstance(x, np.ndarray) and x.dtype != object:
        try:
            return from_numpy(x)
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(
                name,
                expected="a tensor or a NumPy array of numbers (n, ...)",
                got=f"an array of {x.dtype}, which torch cannot take",
                remedy=f"Convert it first, for example {name}.astype('float32').",
            ) from error
    raise InvalidArgumentError(
        name,
        expected="a tensor or a NumPy array of numbers (n, ...)",
        got=f"{type(x).__name__}" + (" of objects" if isinstance(x, np.ndarray) else ""),
        remedy=_how_to_pass(x, name),
    )


def _how_to_pass(x: object, name: str) -> str:
    if hasattr(x, "to_numpy"):
        return (
            f"Pass its numbers: {name}.to_numpy(dtype='float32'), or 'float64' for scikit-learn "
            "twins. Where the classifier knows the names of the columns, as in Classifier(net, "
            "space=Space(columns=names)), it takes a table, in any order."
        )
    if hasattr(x, "edge_index"):
        return (
            "Of a graph pass its nodes, credibility(graph_nodes(clf, data), gamma=...), or several "
            "graphs, graph_samples(clf, graphs)."
        )
    return "Stack your samples first, for example with torch.stack."


def _check_shape(x: Tensor, name: str) -> None:
    if x.layout != torch.strided:
        raise InvalidArgumentError(
            name,
            expected="a dense batch (n, ...)",
            got=f"a tensor of layout {x.layout}",
            remedy=f"Convert it: {name}.to_dense().",
        )
    if x.dim() < 2:
        raise InvalidArgumentError(
            name,
            expected="a batch (n, ...) with the sample axis first",
            got=f"shape {tuple(x.shape)}",
            remedy=f"For a single sample pass {name}.unsqueeze(0).",
        )
    if x.numel() == 0:
        raise InvalidArgumentError(
            name,
            expected="at least one sample of at least one feature",
            got=f"shape {tuple(x.shape)}",
            remedy="Skip empty batches.",
        )


def _check_precision(classifier: Classifier, x: Tensor, name: str) -> None:
    if not x.is_floating_point():
        raise InvalidArgumentError(
            name,
            expected="floating-point inputs, which can be moved a little",
            got=f"{x.dtype}",
            remedy=_of_whole_numbers(classifier, name),
        )
    if x.dtype in HALF or classifier.dtype in HALF:
        raise InvalidArgumentError(
            name,
            expected="float32 or float64: the trade-off is lost in the rounding of less",
            got=f"{x.dtype}" if x.dtype in HALF else f"a model in {classifier.dtype}",
            remedy=f"Convert both: net.float() and {name}.float(). A net that computes in half "
            "precision inside, from float32 inputs, is fine: Classifier(net, dtype=torch.float32, "
            "preprocess=torch.Tensor.half).",
        )
    if classifier.dtype is not None and x.dtype != classifier.dtype:
        raise InvalidArgumentError(
            name,
            expected=f"precision {classifier.dtype}, as the model has",
            got=f"{x.dtype}",
            remedy=f"Convert one of them: {name}.to({classifier.dtype}), of an array "
            f"{name}.astype({str(classifier.dtype).removeprefix('torch.')!r}), or "
            f"net.to({x.dtype}).",
        )


def _of_whole_numbers(classifier: Classifier, name: str) -> str:
    convert = f"Convert as the model was trained, for example {name}.float() / 255."
    layer = embedding_of(classifier)
    if layer is None:
        return convert
    return (
        "Numbers of words cannot move, but their embeddings can: "
        f"Classifier(net, module={layer!r}). Of anything else: {convert}"
    )


def _check_device(classifier: Classifier, x: Tensor, name: str) -> None:
    wanted, found = classifier.device, x.device
    if isinstance(classifier.net, nn.Module) and any(
        p.is_meta for p in classifier.net.parameters()
    ):
        raise InvalidArgumentError(
            name,
            expected="a model that holds numbers",
            got="one on the meta device",
            remedy="Tensors on meta have shapes only: load the weights first, for example with "
            "net.to_empty(device='cpu') and net.load_state_dict(...).",
        )
    if wanted is None or (
        wanted.type == found.type
        and (wanted.index == found.index or None in (wanted.index, found.index))
    ):
        return
    raise InvalidArgumentError(
        name,
        expected=f"inputs on {wanted}, where the model is",
        got=f"{x.device}",
        remedy=f"Move them: {name}.to({str(wanted)!r}).",
    )
