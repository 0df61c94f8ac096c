"""What every builder of a twin needs to know, and how it refuses a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from credibly.errors import MissingExtraError, ModelError
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
    try:
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import check_is_fitted
    except ImportError as error:
        raise missing_sklearn("A twin of a scikit-learn model") from error
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


def missing_sklearn(purpose: str) -> MissingExtraError:
    """The error for an environment without scikit-learn."""
    return MissingExtraError(package="scikit-learn", extra="sklearn", purpose=purpose)


def kind_of(estimator: object) -> str:
    """The class name of scikit-learn's own estimators, '' for all others.

    A subclass may compute anything, so only scikit-learn's own classes count.
    """
    kind = type(estimator)
    return kind.__name__ if kind.__module__.split(".")[0] == "sklearn" else ""
