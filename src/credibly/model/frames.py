"""Data frames of any library: the numbers in them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

UNLIKE = 100.0
"""Columns whose spreads differ by more than this factor hardly share a unit."""

FEWEST = 10
"""Rows below which a column may have a small spread by chance."""


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


def unlike_spreads(x: Tensor) -> tuple[float, float] | None:
    """The smallest and largest spread of the columns (n, d), if they hardly share a unit."""
    finite = x[x.isfinite().all(1)]
    if len(finite) < FEWEST:
        return None
    return unlike_sizes(finite.double().std(0, correction=0))


def unlike_sizes(spreads: Tensor) -> tuple[float, float] | None:
    """The smallest and largest of these spreads (d,), if they hardly share a unit."""
    spreads = spreads[spreads > 0]  # a constant column says nothing about its unit
    if not len(spreads) or float(spreads.max() / spreads.min()) <= UNLIKE:
        return None
    return float(spreads.min()), float(spreads.max())
