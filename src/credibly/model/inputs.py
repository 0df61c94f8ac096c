"""What a caller passes as a batch of inputs, checked once at the edge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.model.batches import check_batch
from credibly.model.bound import Bound, bind
from credibly.model.classifier import Classifier
from credibly.model.structure import leaves
from credibly.types import Array


def enter(classifier: Classifier, x: Any, *, name: str = "x") -> tuple[Classifier, Tensor]:
    """The classifier as a function of what moves, and that at the inputs (n, ...)."""
    _check_classifier(classifier)
    if x is None and isinstance(classifier, Bound):
        return classifier, classifier.variable
    plain = classifier.space is None and classifier.module is None
    if isinstance(classifier, Bound) or (plain and not _is_nested(x)):
        return classifier, as_inputs(classifier, x, name=name)
    bound = bind(classifier, x)
    return bound, bound.variable


def as_inputs(classifier: Classifier, x: Array, *, name: str = "x") -> Tensor:
    """Give what is solved for, on the classifier's device and in its precision, from values."""
    _check_classifier(classifier)
    return classifier.encode(check_batch(classifier, x, name))


def _is_nested(x: object) -> bool:
    """Whether x is made of tensors; a list of anything else is a mistake to be told about."""
    if isinstance(x, Mapping):
        return True
    return isinstance(x, list | tuple) and any(
        isinstance(leaf, Tensor | np.ndarray) for _, leaf in leaves(x)
    )


def _check_classifier(classifier: object) -> None:
    if not isinstance(classifier, Classifier):
        raise InvalidArgumentError(
            "clf",
            expected="a credibly.Classifier",
            came=type(classifier).__name__,
            remedy="Wrap your model first: credibly.Classifier(net).",
        )


def finite_rows(x: Tensor) -> Tensor:
    """Say for each sample whether all of its values are finite (n,)."""
    return torch.isfinite(x).flatten(1).all(dim=1)
