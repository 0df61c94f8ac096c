"""What to pass instead of something that is no model, and of a model that gives no tensor."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike

import numpy as np
from torch import Tensor

from credibly._validation import require
from credibly.errors import ModelError


def check_callables(net: object, preprocess: object, pick: object) -> None:
    """Refuse what cannot be called, and classes in the place of modules."""
    scaled, picked = "lambda x: (x - mean) / std", "lambda found: found.logits, or found[0]"
    for argument, value, meaning, remedy in (
        ("net", net, "from inputs to outputs", _instead_of(net)),
        ("preprocess", preprocess, "from a batch to a batch", f"Pass a function such as {scaled}."),
        ("pick", pick, "from what the model returns to its outputs", f"Pass {picked}."),
    ):
        good = callable(value) or value is None
        if argument == "net":
            good = callable(value) and not isinstance(value, type)
        got = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        require(good, argument, f"a callable {meaning}", got, remedy)


def _instead_of(net: object) -> str:
    """What to pass instead of something that is no model, or cannot be called."""
    if isinstance(net, type):
        return f"You passed the class; call it: {net.__name__}(), with its trained weights."
    if isinstance(net, Mapping) and any(isinstance(value, Tensor) for value in net.values()):
        return "Load these weights into your module first, net.load_state_dict(...), and pass net."
    if isinstance(net, str | PathLike):
        return "Load it first: credibly.load_classifier(...), or your own torch code."
    if hasattr(net, "fit") and hasattr(net, "predict"):
        return "Make a twin of a fitted scikit-learn model: credibly.from_sklearn(model)."
    return "Pass an nn.Module, a function or a torch.export program."


def not_a_tensor(outputs: object) -> ModelError:
    """The error for a model that returns something else, and how to pick the logits out."""
    problem = f"the model returned a {type(outputs).__name__}, expected a tensor of outputs (n, m)"
    if isinstance(outputs, np.ndarray):
        return ModelError(
            problem,
            remedy="A model must stay in torch to be differentiated: leave out .detach() and "
            ".numpy(). Make a twin of a fitted scikit-learn model: credibly.from_sklearn(model).",
        )
    picked = "found.logits" if hasattr(outputs, "logits") else "found[0]"
    if isinstance(outputs, Mapping) and outputs:
        problem += f"; its keys are {', '.join(map(repr, list(outputs)[:8]))}"
        matrices = [key for key, value in outputs.items() if getattr(value, "ndim", 0) == 2]
        picked = f"found[{'logits' if 'logits' in outputs else [*matrices, *outputs][0]!r}]"
    remedy = f"Pick the logits out: Classifier(net, pick=lambda found: {picked})."
    return ModelError(problem, remedy=remedy)
