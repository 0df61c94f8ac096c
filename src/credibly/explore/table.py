"""Columns of verdicts as the page reads them, from a data frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from credibly._validation import require
from credibly.types import shortest_repr

if TYPE_CHECKING:
    import pandas as pd

WORDS = ("verdict", "predicted", "class", "reason", "status")
"""Columns that are words even where they hold numbers."""

MOST_ROWS = 20_000
"""In one file; a browser takes more from `credibly explore`."""


def columns_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Each column by name and kind, with its values as JSON has them."""
    require(
        len(frame) <= MOST_ROWS,
        "rows",
        f"at most {MOST_ROWS} rows in one page",
        f"{len(frame)}",
        "Write fewer: found[:5000]. Or look through the Parquet file that `judge_file` writes, "
        "which has room for millions: credibly explore verdicts.parquet",
    )
    return [_column(str(name), frame[name]) for name in frame.columns]


def _column(name: str, values: Any) -> dict[str, Any]:
    kind = getattr(values.dtype, "kind", "O")
    if kind not in "fiub" or kind == "b" or name in WORDS:
        return {"name": name, "kind": "words", "values": [_word(value) for value in values]}
    return {"name": name, "kind": "number", "values": [_short(value) for value in values.tolist()]}


def _word(value: Any) -> str | None:
    return None if _is_missing(value) else str(value)


def _is_missing(value: Any) -> bool:
    """Whether it is None, NaN, or pandas' own sign; a list is not, whatever it holds."""
    import pandas as pd

    return bool(pd.api.types.is_scalar(value) and pd.isna(value))


def _short(value: Any) -> float | int | None:
    """A number with the digits of single precision, where these say it: pages become smaller."""
    if _is_missing(value):
        return None
    if isinstance(value, int):
        return value
    return float(shortest_repr(float(f"{value:.7g}"))) if abs(value) < float("inf") else value
