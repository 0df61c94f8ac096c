"""Names for what crosses the borders between folders."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Array = Tensor | NDArray[np.floating]
"""What a caller may bring: a tensor, or a NumPy array that becomes one."""

Labels = Tensor | ArrayLike
"""Numbers of classes: a tensor, or anything NumPy can read, such as a list or a pandas Series."""

Model = Callable[..., object]
"""Anything that maps a batch of inputs to a batch of outputs."""

Bounds = tuple[float, float]
"""Smallest and largest allowed value of every input feature."""

CPU = torch.device("cpu")
"""Where the package keeps numbers of its own, whatever torch's default device."""

Limits = Bounds | tuple[Tensor, Tensor]
"""The same for what is solved for: two numbers, or two tensors with a row a sample."""


def real_number(value: object) -> float | None:
    """A number as a float: Python's, NumPy's or a tensor of no dimensions; else None."""
    if isinstance(value, np.ndarray | Tensor) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        return None
    return float(value)


def from_numpy(array: NDArray[Any]) -> Tensor:
    """A tensor of an array's numbers; a copy where torch would warn of or refuse the array.

    That is where it is read-only, or not in the order of bytes or of axes that torch has.
    """
    native = array.dtype.newbyteorder("=")
    return torch.from_numpy(np.require(array, native, ["C", "W"]))


def is_table(x: object) -> bool:
    """Whether this is a DataFrame, whoever's."""
    return hasattr(x, "columns") and hasattr(x, "to_numpy")


def table_numbers(table: Any) -> NDArray[np.float64]:
    """The numbers of a table (n, d) in double precision, as a copy; what is missing is NaN.

    Times and complex numbers would become numbers, too, of a unit that nobody chose.
    """
    kinds = {str(getattr(kind, "kind", "f")) for kind in table.dtypes}
    if kinds & set("mMc"):
        message = "times and complex numbers are no numbers of a table"
        raise TypeError(message)
    try:
        # of pandas: its own mark of what is missing is no number
        return np.array(table.to_numpy(dtype=np.float64, na_value=np.nan))
    except TypeError:  # of others
        return np.array(table.to_numpy(), dtype=np.float64)


def whole_number(value: object) -> int | None:
    """A whole number as an int, whoever's type it has, such as `risk.argmax()`; else None."""
    if isinstance(value, np.ndarray | Tensor) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        return None
    return int(value)


def shortest_repr(number: float) -> str:
    """The fewest digits that give the number when typed again, in the precision that holds it."""
    with np.errstate(over="ignore"):
        single = np.float32(number)
    if float(single) == number:
        return f"{float(str(single)):.9g}"
    return repr(number)


def per_sample(values: Tensor, like: Tensor) -> Tensor:
    """Shape one number a sample (n,) so that it multiplies `like` (n, ...)."""
    return values.reshape(-1, *([1] * (like.dim() - 1)))


def inner(left: Tensor, right: Tensor) -> Tensor:
    """Inner product of each pair of samples: (n, ...), (n, ...) -> (n,)."""
    return (left.flatten(1) * right.flatten(1)).sum(1)


def norm(values: Tensor) -> Tensor:
    """Euclidean length of each sample: (n, ...) -> (n,)."""
    return values.flatten(1).square().sum(1).sqrt()
