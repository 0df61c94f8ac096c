"""The one way to check an argument: its name, what was expected, what it got, what to do."""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection

import numpy as np
import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.types import from_numpy


def require(
    holds: bool,  # noqa: FBT001  # reads as a sentence: require(x > 0, ...)
    argument: str,
    expected: str,
    got: str,
    remedy: str,
) -> None:
    """Raise the usual error unless the condition holds."""
    if not holds:
        raise InvalidArgumentError(argument, expected=expected, got=got, remedy=remedy)


def real_number(value: object) -> float | None:
    """A number as a float: Python's, NumPy's or a tensor without dimensions; else None."""
    if isinstance(value, np.ndarray | Tensor) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number that no float can hold
        return math.inf if int(value) > 0 else -math.inf  # type: ignore[call-overload]


def whole_number(value: object) -> int | None:
    """A whole number of any library as an int, such as `risk.argmax()`; else None."""
    if isinstance(value, np.ndarray | Tensor) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        return None
    return int(value)


def positive(argument: str, value: object, remedy: str = "Leave it out for the default.") -> float:
    """A positive finite number."""
    number = real_number(value)
    good = number is not None and math.isfinite(number) and number > 0
    require(good, argument, "a positive number", repr(value), remedy)
    return number or 0.0


def whole(
    argument: str, value: object, *, least: int = 1, remedy: str = "Leave it out for the default."
) -> int:
    """A whole number of at least `least`."""
    number = whole_number(value)
    good = number is not None and number >= least
    require(good, argument, f"a whole number >= {least}", repr(value), remedy)
    return number or 0


def share(argument: str, value: object, *, closed: bool = False) -> float:
    """A share in (0, 1), or in (0, 1] where `closed`."""
    number = real_number(value)
    good = number is not None and number > 0 and (number <= 1 if closed else number < 1)
    percent = number is not None and 1 < number < 100
    remedy = (
        f"{number:g} % is {number / 100:g}." if percent and number else "0.05 is one in twenty."
    )
    require(good, argument, f"a share in (0, 1{']' if closed else ')'}", repr(value), remedy)
    return number or 0.0


def tolerance(value: object, argument: str = "tolerance") -> float:
    """A number in [0, 1)."""
    number = real_number(value)
    good = number is not None and 0 <= number < 1
    require(good, argument, "a number in [0, 1)", repr(value), "Leave it out for the default.")
    return number or 0.0


def choice(argument: str, value: object, choices: Collection[str], remedy: str) -> None:
    """One of a few words."""
    known = isinstance(value, str) and value in choices
    require(known, argument, " or ".join(map(repr, choices)), repr(value), remedy)


def seed(value: object) -> int:
    """A seed that torch takes, also with the number of a sample added."""
    number = whole_number(value)
    good = number is not None and -(2**63) <= number < 2**63
    expected = "a whole number from -2**63 to 2**63 - 1"
    require(good, "seed", expected, repr(value), "0 is as good as any.")
    return number or 0


def chunk_size(value: object, argument: str = "chunk_size") -> int:
    """A number of samples handled at a time."""
    return whole(argument, value, remedy="It bounds memory; results do not depend on it.")


def plain_tensor(values: object, argument: str = "values") -> Tensor:
    """A tensor, or what NumPy reads as an array: lists, pandas Series of any index, other arrays.

    Torch alone looks a Series up by its index, warns of read-only arrays, and refuses those of the
    other byte order; a copy in order is none of these.
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
            argument,
            expected="numbers: a tensor, an array or a list",
            got=f"{type(values).__name__} that is not an array of numbers",
            remedy="Pass one number per sample.",
        ) from error


def as_numbers(values: object, argument: str, like: Tensor) -> Tensor:
    """A tensor in the precision and on the device of `like`."""
    try:
        given = from_numpy(values) if isinstance(values, np.ndarray) else values
        return torch.as_tensor(given, dtype=like.dtype, device=like.device)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise InvalidArgumentError(
            argument, expected="numbers", got=repr(values)[:80], remedy="Pass a list or a tensor."
        ) from error


def labels(values: object, count: int, classes: int | None, argument: str = "labels") -> Tensor:
    """Classes (n,) as int64 on the CPU; `classes` is how many there are, if that is known."""
    try:
        found = plain_tensor(values, argument).cpu()
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            argument,
            expected="one whole number per sample",
            got=f"{type(values).__name__} that is not an array of numbers",
            remedy="Number the classes in the order of the model's outputs: "
            "[classes.index(name) for name in names], with that list of their names as `classes`.",
        ) from error
    whole = not found.is_floating_point() and not found.is_complex() and found.dtype != torch.bool
    shape = tuple(found.shape)
    require(
        shape == (count,) and whole,
        argument,
        f"one whole number per sample, {count}",
        f"shape {shape} of {found.dtype}",
        _label_remedy(shape, count, whole=whole),
    )
    found = found.long()
    outside = (found < 0) if classes is None else (found < 0) | (found >= classes)
    if bool(outside.any()):
        raise InvalidArgumentError(
            argument,
            expected="classes from 0" + ("" if classes is None else f" to {classes - 1}"),
            got=f"{int(found[outside][0])} for sample {int(outside.nonzero()[0])}",
            remedy="Number the classes in the order of the model's outputs.",
        )
    return found


def _label_remedy(shape: tuple[int, ...], count: int, *, whole: bool) -> str:
    if shape == (count, 1):
        return "Leave out the last axis: labels[:, 0]."
    if len(shape) == 2 and shape[0] == count:
        return "One column per class is one-hot: labels.argmax(1)."
    if whole:
        return "Pass one label per sample, in the order of the samples."
    return "Convert them: labels.long() of a tensor, labels.astype(int) of an array or a column."
