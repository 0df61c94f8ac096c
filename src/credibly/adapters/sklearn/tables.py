"""What people pass as X: arrays, lists and tables, with the names their columns had at fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.types import is_table, table_numbers


def as_matrix(
    x: Any,
    *,
    features: int,
    names: tuple[str, ...] | None,
    dtype: torch.dtype,
    gaps: bool = False,
) -> Tensor:
    """A tensor (n, features), with NaN only if `gaps` says so; other things are errors."""
    if hasattr(x, "toarray") and not isinstance(x, np.ndarray):
        raise _wrong("a dense matrix", "a sparse matrix", "Convert it: X.toarray().")
    _check_names(x, names)
    if isinstance(x, Tensor):
        values = x.detach().to(dtype)
    else:
        values = torch.as_tensor(_numbers(x)).to(dtype)
    if values.dim() != 2:
        raise _wrong(
            "a table (n, features)",
            f"shape {tuple(values.shape)}",
            "For one sample pass X.reshape(1, -1).",
        )
    if values.shape[1] != features:
        raise _wrong(
            f"{features} features, as at fit",
            f"X has {values.shape[1]} features",
            "Pass the columns that the model was fitted on.",
        )
    if not gaps and not bool(torch.isfinite(values).all()):
        raise _wrong(
            "numbers without gaps",
            f"NaN or infinity in {_places(values, names)}",
            "Fill the gaps first: a missing value cannot be moved.",
        )
    return values


def _places(values: Tensor, names: tuple[str, ...] | None) -> str:
    """The first few rows and columns without a finite number, in words."""
    found = (~torch.isfinite(values)).nonzero().tolist()
    shown = [
        f"row {row}, column {column if names is None else repr(names[column])}"
        for row, column in found[:3]
    ]
    more = len(found) - len(shown)
    return "; ".join(shown) + (f"; and {more} more places" if more else "")


def _numbers(x: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    array = np.asarray(x)
    if array.dtype.kind == "c":
        raise _wrong("real numbers", "Complex data not supported", "Pass real features.")
    try:
        # a copy: tables may be read-only
        return table_numbers(x) if is_table(x) else np.array(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise _wrong(
            "numbers",
            f"values of type {array.dtype} such as {array.reshape(-1)[0]!r}",
            "Encode categories and text as numbers before the model is fitted.",
        ) from error


def _check_names(x: Any, names: tuple[str, ...] | None) -> None:
    columns = getattr(x, "columns", None)
    if names is None or columns is None:
        return
    found = tuple(str(column) for column in columns)
    if found == names:
        return
    if set(found) == set(names):
        got = f"the same columns in another order: {', '.join(found[:5])}, ..."
    else:
        missing = [name for name in names if name not in found][:5]
        extra = [name for name in found if name not in names][:5]
        got = f"missing {missing}, unknown {extra}"
    raise _wrong(
        f"the columns of the fit, in their order: {', '.join(names[:5])}, ...",
        got,
        "Pass X[list(model.feature_names_in_)].",
    )


def _wrong(expected: str, got: str, remedy: str) -> InvalidArgumentError:
    return InvalidArgumentError("X", expected=expected, got=got, remedy=remedy)
