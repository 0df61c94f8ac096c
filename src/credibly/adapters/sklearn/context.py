"""What every builder of a twin is told, and the words with which it refuses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from credibly.errors import MissingExtraError, ModelError

SvcOutputs = Literal["soft_minimum", "mean", "probabilities"]


@dataclass(frozen=True)
class Context:
    """Where in a pipeline we are, and in which precision numbers are kept."""

    dtype: torch.dtype
    svc_outputs: SvcOutputs = "soft_minimum"
    path: tuple[str, ...] = ()

    def inside(self, step: str) -> Context:
        """The context of one step of a pipeline."""
        return replace(self, path=(*self.path, step))

    def name(self, estimator: object) -> str:
        """The estimator as its owner knows it: by step and class."""
        kind = estimator if isinstance(estimator, str) else type(estimator).__name__
        if not self.path:
            return kind
        steps = " > ".join(repr(step) for step in self.path)
        return f"step {steps} of the pipeline: {kind}"

    def refusal(self, estimator: object, why: str, *, remedy: str) -> ModelError:
        """The error that names the step, says why, and what to do instead."""
        return ModelError(f"{self.name(estimator)}: {why}", remedy=remedy)

    def tensor(self, values: Any) -> Tensor:
        """Fitted numbers as a tensor of its own; sparse ones become dense."""
        dense = values.toarray() if hasattr(values, "toarray") else values
        return torch.tensor(np.asarray(dense, dtype=np.float64), dtype=self.dtype)


def require_fitted(estimator: Any, context: Context) -> None:
    """Raise `ModelError` for an estimator that has not seen data."""
    try:
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import check_is_fitted
    except ImportError as error:
        raise missing_sklearn("A twin of a scikit-learn model") from error
    try:
        check_is_fitted(estimator)
    except NotFittedError as error:
        raise context.refusal(
            estimator, "it is not fitted", remedy="Call fit(X, y) first."
        ) from error
    except TypeError as error:  # not an estimator at all
        raise context.refusal(
            estimator,
            "it is not a scikit-learn estimator",
            remedy="Pass a fitted classifier or Pipeline of scikit-learn; for a torch module use "
            "credibly.Classifier.",
        ) from error


def missing_sklearn(purpose: str) -> MissingExtraError:
    """What to say where scikit-learn is not installed."""
    return MissingExtraError(package="scikit-learn", extra="sklearn", purpose=purpose)


def kind_of(estimator: object) -> str:
    """The class name of scikit-learn's own estimators, '' for all others.

    A subclass may compute anything, so that only the very classes are known.
    """
    kind = type(estimator)
    return kind.__name__ if kind.__module__.split(".")[0] == "sklearn" else ""
