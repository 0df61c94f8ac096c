"""What users pass as X: arrays, lists and tables, whose columns may have names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from credibly._validation import require
from credibly.errors import InvalidArgumentError
from credibly.model.batches import refuse_sparse
from credibly.types import is_table, table_numbers

Names = tuple[str, ...] | None
_require = partial(require, argument="X")


def as_matrix(
    x: Any, *, features: int, names: Names, dtype: torch.dtype, gaps: bool = False
) -> Tensor:
    """A tensor (n, features), with missing values only if `gaps`; other things are errors."""
    refuse_sparse(x, "X")
    if names is not None and hasattr(x, "columns"):
        check_columns(x.columns, names)
    values = (x.detach() if isinstance(x, Tensor) else torch.as_tensor(_numbers(x))).to(dtype)
    _require(
        values.dim() == 2 and values.shape[1] == features,
        expected=f"a table (n, {features}), with the features of the fit",
        got=f"shape {tuple(values.shape)}",
        remedy="Pass the columns that the model was fitted on; one sample as X.reshape(1, -1).",
    )
    _require(
        gaps or bool(torch.isfinite(values).all()),
        expected="numbers without missing values",
        got=f"NaN or infinity in {_non_finite_places(values, names)}",
        remedy="Fill in missing values first: they cannot be moved.",
    )
    return values


def _non_finite_places(values: Tensor, names: Names) -> str:
    """The first few rows and columns without a finite number."""
    found = (~torch.isfinite(values)).nonzero().tolist()
    shown = [f"row {row}, column {repr(names[k]) if names else k}" for row, k in found[:3]]
    more = len(found) - len(shown)
    return "; ".join(shown) + (f"; and {more} more places" if more else "")


def _numbers(x: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    array = np.asarray(x)
    _require(
        array.dtype.kind != "c",
        expected="real numbers",
        got="Complex data not supported",  # the words that scikit-learn's own checks look for
        remedy="Pass real features.",
    )
    try:
        # a copy: tables may be read-only
        return table_numbers(x) if is_table(x) else np.array(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            "X",
            expected="numbers",
            got=f"{_first_word(x, array)}, of type {array.dtype}",
            remedy="Encode categories and text as numbers before the model is fitted.",
        ) from error


def _first_word(x: Any, array: np.ndarray[Any, Any]) -> str:
    """The first value that is no number, and its column if that has a name."""
    columns = list(getattr(x, "columns", []))
    rows = array.reshape(len(array), -1)
    for k in range(rows.shape[1]):
        for value in rows[:, k]:
            try:
                float(value)
            except (TypeError, ValueError):
                where = f" in column {str(columns[k])!r}" if k < len(columns) else ""
                return f"{value!r}{where}"
    return repr(array.reshape(-1)[0])


def check_columns(found: Sequence[object], names: tuple[str, ...], argument: str = "X") -> None:
    """Raise unless the columns are those of the fit, in their order."""
    columns = tuple(str(column) for column in found)
    if columns == names:
        return
    missing = [name for name in names if name not in columns][:5]
    unknown = [name for name in columns if name not in names][:5]
    twice = sorted({name for name in columns if columns.count(name) > 1})[:5]
    got, remedy = f"the same in another order: {in_short(columns)}", _SELECT
    if twice:
        got, remedy = f"{', '.join(twice)} more than once", "Keep one column of each name."
    elif missing:
        got, remedy = f"missing {missing}, unknown {unknown}", "Pass all that it was fitted on."
    elif unknown:
        got = f"also {unknown}"
    raise InvalidArgumentError(
        argument, expected=f"the columns of the fit: {in_short(names)}", got=got, remedy=remedy
    )


_SELECT = "Pass table[list(model.feature_names_in_)]."


def in_short(names: Sequence[str]) -> str:
    """The first names of columns."""
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
