"""What a caller passes as a batch of inputs, checked once at the edge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.model.batches import check_batch, check_classifier
from credibly.model.bound import Bound, InSpace, bind
from credibly.model.classifier import Classifier
from credibly.model.structure import leaves
from credibly.types import Array


def enter(classifier: Classifier, x: Any, *, name: str = "x") -> tuple[Classifier, Tensor]:
    """The classifier as a function of what moves, and that at the inputs (n, ...)."""
    check_classifier(classifier)
    if isinstance(classifier, Bound):
        if x is None:
            return classifier, classifier.variable
        moved = classifier.based_at(_alike(classifier, x, name))
        if isinstance(moved, InSpace):
            moved.coordinates.check_inside()  # other values than those it was bound to
        return moved, moved.variable
    if classifier.space is None and classifier.module is None and not _is_nested(x):
        return classifier, check_batch(classifier, x, name)
    bound = bind(classifier, x)
    return bound, bound.variable


def enter_again(classifier: Classifier, x0: Tensor, space: str) -> tuple[Classifier, Tensor]:
    """The same from the x0 and the `settings.space` of a profile, which has only what moved."""
    check_classifier(classifier)
    partial = classifier.module is not None or (
        classifier.space is not None and classifier.space.vary is not None
    )
    unbound = partial and not isinstance(classifier, Bound)
    if not unbound:
        classifier, start = enter(classifier, x0, name="profile.x0")
    if unbound or classifier.space_name() != space:
        raise InvalidArgumentError(
            "clf",
            expected=f"the classifier the profile was made with, which moved {space}",
            got="one not bound to its inputs" if unbound else f"one of {classifier.space_name()}",
            remedy="Of nested inputs, a named module or parameters a profile has only what moved: "
            "pass bind(clf, x), or the result of vary_parameters.",
        )
    return classifier, start


def as_inputs(classifier: Classifier, x: Array, *, name: str = "x") -> Tensor:
    """Give what is solved for, on the classifier's device and in its precision, from values.

    Values that a space does not allow, such as moved locked features, give the nearest allowed.
    """
    check_classifier(classifier)
    values = _alike(classifier, x, name) if isinstance(classifier, Bound) else x
    return classifier.encode(check_batch(classifier, values, name))


def check_reachable(classifier: Classifier, x: Array, answer: Tensor) -> None:
    """Refuse an answer that moves what its space holds: it answers another question."""
    values = check_batch(classifier, x, "x").to(answer.device)
    gap = (classifier.decode(answer) - values).abs().nan_to_num(0.0)
    near = torch.finfo(answer.dtype).eps ** 0.5 * (1 + values.abs().nan_to_num(0.0))
    if bool((gap > near).any()):
        raise InvalidArgumentError(
            "x",
            expected="answers that move only what the space of the classifier lets move",
            got=f"{int((gap > near).flatten(1).any(1).sum())} that move locked features, or tied "
            "ones apart",
            remedy="Solve in the same space, or certify without one.",
        )


def _alike(bound: Bound, x: Array, name: str) -> Tensor:
    values, expected = check_batch(bound, x, name), bound.start.shape
    if values.shape != expected:
        raise InvalidArgumentError(
            name,
            expected=f"what moves in the samples the classifier is bound to, {tuple(expected)}",
            got=f"shape {tuple(values.shape)}",
            remedy="Choose the same samples of both: bound.select(rows).",
        )
    return values


def _is_nested(x: object) -> bool:
    """Whether x is made of tensors; a list of anything else is a mistake to be told about."""
    if isinstance(x, Mapping):
        return True
    return isinstance(x, list | tuple) and any(
        isinstance(leaf, Tensor | np.ndarray) for _, leaf in leaves(x)
    )


def finite_rows(x: Tensor) -> Tensor:
    """Say for each sample whether all of its values are finite (n,)."""
    return torch.isfinite(x).flatten(1).all(dim=1)
