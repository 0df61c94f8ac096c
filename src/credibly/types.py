"""Names, and small functions of tensors and tables, that every folder uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Array = Tensor | NDArray[np.floating]
"""What a caller may pass: a tensor, or a NumPy array that becomes one."""

Labels = Tensor | ArrayLike
"""Class numbers: a tensor, or anything NumPy can read, such as a list or a pandas Series."""

Model = Callable[..., object]
"""Anything that maps a batch of inputs to a batch of outputs."""

Bounds = tuple[float, float]
"""Smallest and largest allowed value of every input feature."""

Limits = Bounds | tuple[Tensor, Tensor]
"""The same for what is solved for: two numbers, or two tensors with one row per sample."""

Progress = bool | Callable[[float], None]
"""Whether to show a bar, or a function that is told the share done."""

CPU = torch.device("cpu")
"""Where the package keeps numbers of its own, whatever torch's default device is."""


def from_numpy(array: NDArray[Any]) -> Tensor:
    """A tensor of an array's numbers; a copy where torch would warn of or refuse the array.

    That is where it is read-only, or not in the order of bytes or of axes that torch has.
    """
    native = array.dtype.newbyteorder("=")
    return torch.from_numpy(np.require(array, native, ["C", "W"]))


def shortest_repr(number: float) -> str:
    """The fewest digits that give the number when typed again, in the precision that holds it."""
    with np.errstate(over="ignore"):
        single = np.float32(number)
    if float(single) == number:
        return f"{float(str(single)):.9g}"
    return repr(number)


def per_sample(values: Tensor, like: Tensor) -> Tensor:
    """Shape one number per sample (n,) so that it multiplies `like` (n, ...)."""
    return values.reshape(-1, *([1] * (like.dim() - 1)))


def inner(left: Tensor, right: Tensor) -> Tensor:
    """Inner product of each pair of samples: (n, ...), (n, ...) -> (n,)."""
    return (left.flatten(1) * right.flatten(1)).sum(1)


def norm(values: Tensor) -> Tensor:
    """Euclidean length of each sample: (n, ...) -> (n,)."""
    return values.flatten(1).square().sum(1).sqrt()


def finite_rows(x: Tensor) -> Tensor:
    """Whether all values of each sample are finite (n,)."""
    return torch.isfinite(x).flatten(1).all(dim=1)


def is_table(x: object) -> bool:
    """Whether this is a data frame, from any library."""
    return hasattr(x, "columns") and hasattr(x, "to_numpy")


def table_numbers(table: Any) -> NDArray[np.float64]:
    """The numbers of a table (n, d) in double precision, as a copy; what is missing is NaN.

    Times and complex numbers are refused: they would become numbers in an arbitrary unit.
    """
    kinds = {str(getattr(kind, "kind", "f")) for kind in table.dtypes}
    if kinds & set("mMc"):
        message = "a table must not hold times or complex numbers"
        raise TypeError(message)
    try:
        # pandas has its own value for what is missing
        return np.array(table.to_numpy(dtype=np.float64, na_value=np.nan))
    except TypeError:  # other libraries have no na_value
        return np.array(table.to_numpy(), dtype=np.float64)
