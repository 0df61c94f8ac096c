"""Checks of what the rules share: labels, and what a score may be."""

from __future__ import annotations

import torch
from torch import Tensor

from credibly.decide.learned import TrustScore
from credibly.errors import InvalidArgumentError
from credibly.types import plain_values


def checked_labels(labels: object, count: int, classes: int | None) -> Tensor:
    """Numbers of classes (N,) on the CPU, as int64; `classes` is how many, if that is known."""
    try:
        found = torch.as_tensor(plain_values(labels)).cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgumentError(
            "labels",
            expected=f"one whole number a sample, {count}",
            came=f"{type(labels).__name__} that is no tensor of numbers",
            remedy="Number the classes in the order of the model's outputs: "
            "[clf.classes.index(name) for name in names].",
        ) from error
    whole = not found.is_floating_point() and not found.is_complex() and found.dtype != torch.bool
    if tuple(found.shape) != (count,) or not whole:
        raise InvalidArgumentError(
            "labels",
            expected=f"one whole number a sample, {count}",
            came=f"shape {tuple(found.shape)} of {found.dtype}",
            remedy="Pass the labels of the very samples of the profile.",
        )
    found = found.long()
    outside = found < 0
    if classes is not None:
        outside |= found >= classes
    if bool(outside.any()):
        raise InvalidArgumentError(
            "labels",
            expected="classes from 0" + ("" if classes is None else f" to {classes - 1}"),
            came=f"{int(found[outside][0])} for sample {int(outside.nonzero()[0])}",
            remedy="Number the classes in the order of the model's outputs.",
        )
    return found


def check_score(score: object) -> None:
    """A score is a name, an object that can be written down, or None for the default."""
    if score is not None and not isinstance(score, str | TrustScore):
        raise InvalidArgumentError(
            "score",
            expected="the name of a score, or a TrustScore such as cr.failure_score(profile)",
            came=repr(score),
            remedy="docs/decisions.md lists the names; for a function of yours, write a subclass "
            "of cr.TrustScore.",
        )
