"""A batch of numbers that a caller passes, an array or a table, checked once at the edge."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from credibly._validation import require
from credibly.errors import InvalidArgumentError, ModelError
from credibly.model.classifier import Classifier, same_place
from credibly.types import Array, from_numpy, is_table, table_numbers

UNLIKE = 100.0
"""Columns whose spreads differ by more than this factor hardly share a unit."""

FEWEST = 10
"""Rows below which a column may have a small spread by chance."""

_NUMBERS = ("float", "int", "uint", "bool")
"""How the names of the types of numeric columns begin, in any library."""


class TakesTables(nn.Module):
    """A module that was fitted on a table and can read one.

    Attributes:
        feature_names: the columns it was fitted on, if they had names.
        deviations: their standard deviations at fit, if the model knows them.
    """

    feature_names: tuple[str, ...] | None
    deviations: NDArray[np.float64] | None = None

    @abstractmethod
    def of_table(self, table: Any) -> Any:
        """The inputs in a table, columns by name."""


def column_names(clf: Classifier) -> tuple[str, ...] | None:
    """What a classifier calls the columns of its inputs, in its order; None if it has no names.

    A scikit-learn twin has the names of its fit, any other model those of its `Space`.
    """
    # with a preprocess the columns of a table are not those of the fit
    if isinstance(clf.net, TakesTables) and clf.preprocess is None and clf.net.feature_names:
        return clf.net.feature_names
    space = clf.space
    if space is None or space.columns is None or space.vary is not None or clf.module is not None:
        return None  # no names, or those of a part of a nested input, or of what a layer gives
    return tuple(str(name) for name in space.columns)


def unlike_units(clf: Classifier, x: Tensor) -> str | None:
    """What to say of a model of columns that moves them in units of very different sizes.

    A few rows say little about spreads; then those that the model met at its fit count.
    """
    net = clf.net if isinstance(clf.net, TakesTables) else None
    plain = clf.module is None and (clf.space is None or clf.space.is_plain)
    if x.dim() != 2 or not plain or (net is None and column_names(clf) is None):
        return None
    known = None if net is None or clf.preprocess is not None else net.deviations
    if known is not None and len(x) < FEWEST:
        return _describe_unlike(torch.as_tensor(known))
    return unlike_spreads(x)


def unlike_spreads(x: Tensor) -> str | None:
    """What to say of columns (n, d) whose spreads differ so much that they hardly share a unit."""
    finite = x[x.isfinite().all(1)]
    return None if len(finite) < FEWEST else _describe_unlike(finite.double().std(0, correction=0))


def _describe_unlike(spreads: Tensor) -> str | None:
    spreads = spreads[spreads > 0]  # a constant column says nothing about its unit
    if not len(spreads) or float(spreads.max() / spreads.min()) <= UNLIKE:
        return None
    return (
        f"columns spread by {float(spreads.min()):.3g} to {float(spreads.max()):.3g}: distances "
        "are in the units of the inputs, so columns with large units hardly move, even with a "
        "scaler inside the model. Pass space='standardised' or space=Space.standardised(x), which "
        "measure them on one scale, or scale the inputs before the model. For the command line, "
        "see docs/reference/command-line.md, Units"
    )


def numbers_of_table(clf: Classifier, x: Any) -> Any:
    """A table as the numbers the classifier takes, columns by name; anything else as it is.

    For a network without names a table stays a table, which is refused: only the caller knows
    whether its columns are in order.
    """
    if not is_table(x):
        return x
    names, net = column_names(clf), clf.net if clf.preprocess is None else None
    if isinstance(net, TakesTables) and names in (None, net.feature_names):
        return net.of_table(x)
    return x if names is None else _in_order(clf, x, names)


def _in_order(clf: Classifier, table: Any, names: tuple[str, ...]) -> Tensor:
    """The columns of these names, in the precision and on the device of the model."""
    found = [str(name) for name in table.columns]
    missing = [name for name in names if name not in found]
    unknown = [name for name in found if name not in names]
    differ = f"missing {missing[:5]}, unknown {unknown[:5]}"
    require(
        not missing and not unknown and len(found) == len(names),
        "x",
        f"the {len(names)} columns that the space names: {', '.join(names[:5])}"
        + ", ..." * (len(names) > 5),
        differ if missing or unknown else "some of them twice",
        "Columns are found by name, in any order: pass x[list(clf.space.columns)].",
    )
    try:
        values = table_numbers(table)
    except (TypeError, ValueError) as error:
        kinds = zip(found, map(str, table.dtypes), strict=True)
        words = [f"{name!r} of type {k}" for name, k in kinds if not k.lower().startswith(_NUMBERS)]
        raise InvalidArgumentError(
            "x",
            expected="a table of numbers",
            got=", ".join(words[:5]),
            remedy="Encode text and categories as numbers, as for the training of the model.",
        ) from error
    ordered = values[:, [found.index(name) for name in names]]
    single = all(str(kind).lower() == "float32" for kind in table.dtypes)
    own = torch.float32 if single else torch.float64
    return torch.as_tensor(ordered, dtype=clf.dtype or own, device=clf.device)


HALF = (torch.float16, torch.bfloat16)
"""Precisions whose rounding hides the trade-off."""


def refuse_sparse(x: Any, name: str) -> None:
    """Raise for a sparse matrix."""
    require(
        isinstance(x, np.ndarray) or not hasattr(x, "toarray"),
        name,
        "a dense matrix or table",
        f"a sparse {type(x).__name__}",
        f"Convert it: {name}.toarray(). Profiles move every feature, also those at zero.",
    )


def check_classifier(clf: object) -> Classifier:
    """The classifier, also that of a fitted CredibilityClassifier; anything else is refused."""
    found = getattr(clf, "classifier_", clf)
    if isinstance(found, Classifier):
        return found
    raise InvalidArgumentError(
        "clf",
        expected="a credibly.Classifier",
        got=f"the class {clf.__name__}" if isinstance(clf, type) else type(clf).__name__,
        remedy=classifier_inside(clf) or "Wrap your model first: credibly.Classifier(net).",
    )


def classifier_inside(thing: object) -> str | None:
    """What to pass instead of an object that holds a classifier, or will, if it does."""
    if isinstance(thing, type):
        return f"You passed a class; call it, and wrap it: credibly.Classifier({thing.__name__}())."
    if isinstance(getattr(thing, "classifier", None), Classifier):  # of load_classifier
        return "Pass the classifier inside it: model.classifier."
    if type(thing).__name__ == "CredibilityClassifier":
        return "Fit it first: model.fit(X, y)."
    if hasattr(thing, "fit") and hasattr(thing, "predict"):
        return "Make a twin of a fitted scikit-learn model: credibly.from_sklearn(model)."
    return None


def check_ready(clf: Classifier) -> None:
    """Refuse a model in training mode, and a faster copy of one that has changed; it is cheap."""
    check_evaluation_mode(clf)
    if clf.watched is not None:
        clf.watched.require_same()


def check_evaluation_mode(clf: Classifier) -> None:
    """Refuse a model in training mode before it runs: batch norm would change its statistics."""
    if not isinstance(clf.net, nn.Module):
        return
    sensitive = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)  # noqa: SLF001
    for name, module in clf.net.named_modules():
        # torch's own recurrent and attention layers keep their dropout as a number
        inner_dropout = getattr(module, "dropout", 0.0)
        active_dropout = isinstance(inner_dropout, float) and inner_dropout > 0
        tracking = getattr(module, "track_running_stats", False)  # of any norm
        if module.training and (isinstance(module, sensitive) or active_dropout or tracking):
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
    remedy = f"For a single sample pass {name}[None]."
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
