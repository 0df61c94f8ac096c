"""What every builder of a twin needs to know, and how it refuses a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from credibly._extras import load_extra
from credibly.errors import ModelError
from credibly.types import CPU

SvcOutputs = Literal["soft_minimum", "mean", "probabilities"]


@dataclass(frozen=True)
class Context:
    """The current step of a pipeline, and the precision of the twin."""

    dtype: torch.dtype
    svc_outputs: SvcOutputs = "soft_minimum"
    path: tuple[str, ...] = ()

    def inside(self, step: str) -> Context:
        """The context of one step of a pipeline."""
        return replace(self, path=(*self.path, step))

    def name(self, estimator: object) -> str:
        """The estimator by its step and class."""
        kind = estimator if isinstance(estimator, str) else type(estimator).__name__
        if not self.path:
            return kind
        steps = " > ".join(repr(step) for step in self.path)
        return f"step {steps} of the pipeline: {kind}"

    def refusal(self, estimator: object, why: str, remedy: str) -> ModelError:
        """The error that names the step, says why, and what to do instead."""
        return ModelError(f"{self.name(estimator)}: {why}", remedy=remedy)

    def require(
        self,
        holds: bool,  # noqa: FBT001  # reads as a sentence: require(degree > 0, ...)
        estimator: object,
        why: str,
        remedy: str,
    ) -> None:
        """Refuse the estimator unless the condition holds."""
        if not holds:
            raise self.refusal(estimator, why, remedy)

    def tensor(self, values: Any) -> Tensor:
        """A copy of fitted numbers as a tensor; sparse ones become dense."""
        dense = values.toarray() if hasattr(values, "toarray") else values
        return torch.tensor(np.asarray(dense, dtype=np.float64), dtype=self.dtype, device=CPU)


def require_fitted(estimator: Any, context: Context) -> None:
    """Raise `ModelError` for an estimator that is not fitted, or not on one class per sample."""
    load_extra("sklearn", extra="sklearn", purpose="A twin of a scikit-learn model")
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(estimator)
    except NotFittedError as error:
        raise context.refusal(estimator, "it is not fitted", "Call fit(X, y) first.") from error
    except TypeError as error:
        raise context.refusal(
            estimator,
            "it is not a scikit-learn estimator",
            "Pass a fitted classifier or Pipeline of scikit-learn; for a torch module use "
            "credibly.Classifier.",
        ) from error
    binarizer = getattr(estimator, "_label_binarizer", getattr(estimator, "label_binarizer_", None))
    context.require(
        not getattr(binarizer, "y_type_", "").startswith("multilabel"),
        estimator,
        "it was fitted on several labels per sample",
        "Fit one classifier per label, each with one class per sample.",
    )


def kind_of(estimator: object) -> str:
    """The class name of scikit-learn's own estimators, '' for all others.

    A subclass may compute anything, so only scikit-learn's own classes count.
    """
    kind = type(estimator)
    return kind.__name__ if kind.__module__.split(".")[0] == "sklearn" else ""


class Fixed(nn.Module):
    """A function of x and of fixed tensors, which it takes by name.

    The tensors are buffers, so they follow the module to other devices and precisions.
    """

    def __init__(self, function: Callable[..., Any], **tensors: Tensor) -> None:
        super().__init__()
        self.function = function
        for name, value in tensors.items():
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Any:
        return self.function(x, **self._buffers)


def affine(weight: Tensor, bias: Tensor) -> Fixed:
    """W x + b."""
    bias = bias.reshape(-1).expand(len(weight)).clone()
    return Fixed(functional.linear, weight=weight, bias=bias)


def power(exponent: float) -> Fixed:
    """The power of x, which also exists for a negative x if the exponent is whole."""
    whole = int(exponent) if float(exponent).is_integer() else exponent
    return Fixed(partial(torch.pow, exponent=whole))
