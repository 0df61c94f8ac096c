"""Checks of what the rules share: labels, and what a score may be."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from credibly.decide.learned import TrustScore
from credibly.decide.scores import SCORES
from credibly.errors import InvalidArgumentError
from credibly.types import from_numpy


def plain_tensor(values: object, name: str = "values") -> Tensor:
    """A tensor, or what NumPy reads as an array: lists, pandas Series of any index, other arrays.

    Torch alone looks a Series up by its index, warns of arrays that are read-only, and refuses
    those of the other byte order; a copy in order is none of these.
    """
    if isinstance(values, Tensor):
        return values.detach()
    try:
        array = np.array(values)
        if array.dtype == object:  # whole numbers may be kept as objects
            array = np.array(array.tolist())
        return from_numpy(array)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgumentError(
            name,
            expected="numbers: a tensor, an array or a list",
            got=f"{type(values).__name__} that is no array of numbers",
            remedy="Pass one number a sample.",
        ) from error


def plain_labels(labels: object, name: str = "labels") -> Tensor:
    """The same for numbers of classes, with words for those who bring names."""
    try:
        return plain_tensor(labels)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            name,
            expected="one whole number a sample",
            got=f"{type(labels).__name__} that is no tensor of numbers",
            remedy="Number the classes in the order of the model's outputs: "
            "[classes.index(name) for name in names], with that list of their names as `classes`.",
        ) from error


def _remedy(shape: tuple[int, ...], count: int, *, whole: bool) -> str:
    """What to do with labels of another shape or kind."""
    if shape == (count, 1):
        return "Leave out the last axis: labels[:, 0]."
    if len(shape) == 2 and shape[0] == count:
        return "One column a class is one-hot: labels.argmax(1)."
    if whole:
        return "Pass the labels of the very samples of the profile."
    return (
        "Numbers of classes are whole: labels.long() of a tensor, labels.astype(int) of an array "
        "or a column, once none is missing."
    )


def checked_labels(labels: object, count: int, classes: int | None) -> Tensor:
    """Numbers of classes (N,) on the CPU, as int64; `classes` is how many, if that is known."""
    found = plain_labels(labels).cpu()
    whole = not found.is_floating_point() and not found.is_complex() and found.dtype != torch.bool
    if tuple(found.shape) != (count,) or not whole:
        raise InvalidArgumentError(
            "labels",
            expected=f"one whole number a sample, {count}",
            got=f"shape {tuple(found.shape)} of {found.dtype}",
            remedy=_remedy(tuple(found.shape), count, whole=whole),
        )
    found = found.long()
    outside = found < 0
    if classes is not None:
        outside |= found >= classes
    if bool(outside.any()):
        raise InvalidArgumentError(
            "labels",
            expected="classes from 0" + ("" if classes is None else f" to {classes - 1}"),
            got=f"{int(found[outside][0])} for sample {int(outside.nonzero()[0])}",
            remedy="Number the classes in the order of the model's outputs.",
        )
    return found


def check_score(score: object, name: str = "score") -> None:
    """A score is a name, an object that can be written down, or None for the default."""
    unknown = isinstance(score, str) and score not in SCORES
    if unknown or not (score is None or isinstance(score, str | TrustScore)):
        raise InvalidArgumentError(
            name,
            expected=f"one of {', '.join(sorted(SCORES))}, or a TrustScore such as "
            "cr.scores.failure_score(profile)",
            got=repr(score),
            remedy="docs/decisions.md lists the names; for a function of yours, write a subclass "
            "of cr.scores.TrustScore.",
        )
