"""What to say when a model fails, or returns something else than outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from credibly.errors import ModelError

if TYPE_CHECKING:
    from credibly.model.classifier import Classifier


def failure(classifier: Classifier, tried: Tensor, passed: Tensor, error: Exception) -> ModelError:
    """The model raised `error` on the samples `tried`, which were taken from those `passed`."""
    shape = tuple(passed.shape)
    if len(passed) == 1:
        where = f"x of shape {shape}, or on two such samples together,"
    else:
        more = f" (of x of shape {shape})" if len(passed) > len(tried) else ""
        where = f"a batch of shape {tuple(tried.shape)}{more}"
    return ModelError(
        f"the model failed on {where} with {type(error).__name__}: {error}",
        remedy=about_tokens(classifier, error)
        or _missing_axis(classifier, passed)
        or _remedy(classifier, error),
    )


def _missing_axis(classifier: Classifier, passed: Tensor) -> str | None:
    """Where the model works once an axis is added, say which."""
    from credibly.model.bound import Bound

    if isinstance(classifier, Bound):
        return None  # what moves need not be what was passed
    shape = tuple(passed.shape)
    if _works(classifier, passed[None]):
        return f"It works on x[None]: pass x[None] if these are one sample of shape {shape}."
    if _works(classifier, passed[:2, None]):
        return (
            f"It works on x[:, None]: pass x[:, None] if these are {shape[0]} samples of one "
            "channel."
        )
    return None


def _works(classifier: Classifier, x: Tensor) -> bool:
    try:
        with torch.no_grad():
            classifier.raw_outputs(x.clone())
    except Exception:  # noqa: BLE001  # a model may raise anything
        return False
    return True


def _remedy(classifier: Classifier, error: Exception) -> str:
    hints = [
        "Try it yourself with x[:1] and x[:2]: it must take batches of any size, sample axis first."
    ]
    if "training" in str(error):
        hints.append("Batch norm and dropout must be in eval mode: call net.eval().")
    if isinstance(classifier.net, torch.fx.GraphModule):
        hints.append("A torch.export program needs a dynamic batch dimension.")
    if classifier.unpack:
        hints.append(
            "With unpack=True a mapping is passed as keywords and a list or tuple as positional "
            "arguments."
        )
    elif isinstance(error, TypeError) and "positional argument" in str(error):
        hints.append(
            "A model of several arguments takes a mapping of them, or a tuple, by "
            "Classifier(net, unpack=True, space=Space(vary=...))."
        )
    return " ".join(hints)


def about_tokens(classifier: Classifier, error: Exception) -> str | None:
    """What to do where numbers of words came as floats, as files of arrays are read."""
    if "scalar types: Long, Int" not in str(error):
        return None
    found = classifier.module or embedding_of(classifier) or "embedding"
    return (
        "Numbers of words came as floats. What moves are their embeddings: "
        f"Classifier(net, module={found!r}, preprocess=torch.Tensor.long)."
    )


def embedding_of(classifier: Classifier) -> str | None:
    """The name of the model's first layer of embeddings, if it has one."""
    if not isinstance(classifier.net, nn.Module):
        return None
    parts = classifier.net.named_modules()
    return next((name for name, part in parts if name and isinstance(part, nn.Embedding)), None)


def no_tensor(outputs: object) -> ModelError:
    """The model returned something else than a tensor."""
    problem = (
        f"the model returned a {type(outputs).__name__} where a tensor of outputs (n, m) is needed"
    )
    if isinstance(outputs, Mapping):
        keys = list(outputs)
        problem += f"; its keys are {', '.join(map(repr, keys[:8]))}"
    return ModelError(problem, remedy=_how_to_pick(outputs))


def _how_to_pick(outputs: object) -> str:
    if isinstance(outputs, np.ndarray):
        return (
            "A model must stay in torch to be differentiated: leave out .detach() and .numpy(). Of "
            "a fitted scikit-learn model make a twin: credibly.from_sklearn(model)."
        )
    if isinstance(outputs, Mapping) and outputs:
        return f"Pick the logits out: Classifier(net, pick=lambda found: found[{_key(outputs)!r}])."
    if hasattr(outputs, "logits"):
        return "Pick the logits out: Classifier(net, pick=lambda found: found.logits)."
    return (
        "Pick the logits out: Classifier(net, pick=lambda found: found[0]) for a tuple, "
        "pick=lambda found: found.logits for an output object."
    )


def _key(outputs: Mapping[object, object]) -> object:
    """The key that most likely holds the outputs: by its name, else by its shape."""
    if "logits" in outputs:
        return "logits"
    rows = (
        key
        for key, value in outputs.items()
        if isinstance(value, Tensor) and value.dim() == 2 and value.is_floating_point()
    )
    return next(rows, next(iter(outputs)))
