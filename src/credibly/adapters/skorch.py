"""Fitted classifiers of skorch, as they are."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from torch import Tensor, nn

from credibly.errors import InvalidArgumentError, MissingExtraError, ModelError
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
    `BCEWithLogitsLoss`, probabilities with `NLLLoss` (whose logarithm skorch takes by itself) and
    `BCELoss`; a `predict_nonlinearity` of your own is applied and gives probabilities. A copy of
    the module in eval mode is wrapped, so `net` can be trained on. A `threshold` other than 0.5
    changes what `net.predict` says, but no probability and hence no profile.

    Args:
        net: fitted, or initialised with loaded parameters.
        preprocess: as in `Classifier`.
        space: as in `Classifier`.
        module: name of a submodule of `net.module_` whose output is moved instead of the input.
    """
    binary = _checked(net)
    outputs, pick = _meaning(net, binary=binary)
    names = getattr(net, "classes_", None)
    return Classifier(
        deepcopy(net.module_).eval(),
        preprocess=preprocess,
        classes=None if names is None else [str(name) for name in names],
        outputs=outputs,
        space=space,
        module=module,
        unpack=True,  # mappings become keywords, as skorch passes them
        pick=pick,
    )


def _checked(net: Any) -> bool:
    """Whether a usable net is one of the binary kind."""
    try:
        import skorch
    except ImportError as error:
        raise MissingExtraError(
            package="skorch", extra="skorch", purpose="A classifier of skorch"
        ) from error
    binary = isinstance(net, skorch.NeuralNetBinaryClassifier)
    if not binary and not isinstance(net, skorch.NeuralNetClassifier):
        raise InvalidArgumentError(
            "net",
            expected="a NeuralNetClassifier or NeuralNetBinaryClassifier of skorch",
            got=f"the class {net.__name__}" if isinstance(net, type) else type(net).__name__,
            remedy="Modules and functions go into Classifier, fitted scikit-learn models into "
            "from_sklearn.",
        )
    if not getattr(net, "initialized_", False):
        raise ModelError(
            f"this {type(net).__name__} is not fitted",
            remedy="Call net.fit(X, y) first, or net.initialize() and net.load_params(...).",
        )
    return binary


def _meaning(net: Any, *, binary: bool) -> tuple[Outputs, Callable[[Any], Tensor]]:
    """What the module returns, and how to get at it."""
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
