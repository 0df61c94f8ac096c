"""Fitted classifiers of skorch, as they are."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from torch import Tensor, nn

from credibly._extras import load_extra
from credibly._validation import require
from credibly.errors import ModelError
from credibly.model.classifier import Classifier, Outputs
from credibly.model.space import Space


def from_skorch(
    net: Any,
    *,
    preprocess: Callable[[Tensor], Tensor] | None = None,
    space: Space | None = None,
    module: str | None = None,
) -> Classifier:
    """A fitted `NeuralNetClassifier` or `NeuralNetBinaryClassifier` of skorch.

    The criterion says what the module returns: logits with `CrossEntropyLoss` and
    `BCEWithLogitsLoss`, probabilities with `NLLLoss` (skorch takes their logarithm) and
    `BCELoss`; a `predict_nonlinearity` of your own is applied and gives probabilities. A copy of
    the module in eval mode is wrapped, so `net` can be trained further. A `threshold` other than
    0.5 changes what `net.predict` says, but no probability and hence no profile.

    Args:
        net: fitted, or initialised with loaded parameters.
        preprocess: as in `Classifier`.
        space: as in `Classifier`.
        module: name of a submodule of `net.module_` whose output is moved instead of the input.

    Example: `profile = credibility(from_skorch(net.fit(X, y)), X, gamma="auto")`.
    """
    binary = _checked(net)
    outputs, pick = _meaning(net, binary=binary)
    names = getattr(net, "classes_", None)
    classes = None if names is None else [str(name) for name in names]
    return Classifier(  # mappings become keywords, as skorch passes them
        deepcopy(net.module_).eval(), preprocess=preprocess, classes=classes, outputs=outputs,
        space=space, module=module, unpack=True, pick=pick,
    )  # fmt: skip


def _checked(net: Any) -> bool:
    """Whether a usable net is one of the binary kind."""
    skorch = load_extra("skorch", extra="skorch", purpose="A classifier of skorch")
    binary = isinstance(net, skorch.NeuralNetBinaryClassifier)
    require(
        binary or isinstance(net, skorch.NeuralNetClassifier),
        "net",
        "a NeuralNetClassifier or NeuralNetBinaryClassifier of skorch",
        f"the class {net.__name__}" if isinstance(net, type) else type(net).__name__,
        "Pass modules and functions to Classifier, fitted scikit-learn models to from_sklearn.",
    )
    if not getattr(net, "initialized_", False):
        raise ModelError(
            f"this {type(net).__name__} is not fitted",
            remedy="Call net.fit(X, y) first, or net.initialize() and net.load_params(...).",
        )
    return binary


def _meaning(net: Any, *, binary: bool) -> tuple[Outputs, Callable[[Any], Tensor]]:
    """What the module returns, and a function that takes its outputs out."""
    own = net.predict_nonlinearity
    if callable(own):
        return "probabilities", lambda found: own(_first(found))
    kinds: dict[type[nn.Module], Outputs] = (
        {nn.BCEWithLogitsLoss: "logits", nn.BCELoss: "probabilities"}
        if binary
        else {nn.CrossEntropyLoss: "logits", nn.NLLLoss: "probabilities"}
    )
    for kind, outputs in kinds.items():
        if isinstance(net.criterion_, kind):
            return outputs, _first
    raise ModelError(
        f"what a module trained with {type(net.criterion_).__name__} returns is not known",
        remedy="Say it: Classifier(net.module_.eval(), outputs=..., loss=...); known for this net "
        f"are {[kind.__name__ for kind in kinds]}.",
    )


def _first(found: Any) -> Tensor:
    """The outputs: skorch takes the first of several."""
    outputs: Tensor = found[0] if isinstance(found, tuple) else found
    return outputs
