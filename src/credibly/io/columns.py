"""The columns of a table: which are the features, and in which order the model takes them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from credibly._validation import require
from credibly.errors import FileFormatError
from credibly.io.source import Plain, Where


def plain_type(schema: Any, column: str) -> Plain:
    """The type in which a column is carried along."""
    import pyarrow as pa

    kind = schema.field(column).type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "int64"
    return "double" if pa.types.is_floating(kind) else "string"


def choose_columns(
    path: Where,
    names: list[str],
    columns: Sequence[str] | None,
    *,
    id_column: str | None,
    drop: Sequence[str],
    label: str | None = None,
) -> tuple[str, ...]:
    """Return the columns asked for, or all but the id, the label and the dropped ones."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FileFormatError(f"{path}: the column names {twice} appear more than once.")
    _refuse_numbers(path, names)
    ids = [] if id_column is None else [id_column]
    expected = f"columns of {path.name}: {', '.join(names)}"
    labels = [] if label is None else [label]
    named = (("id_column", ids), ("label", labels), ("drop", drop), ("columns", columns or []))
    for argument, asked in named:
        for name in asked:
            require(name in names, argument, expected, repr(name), "Check the spelling.")
    chosen = [name for name in columns or names if name not in (*drop, *labels)]
    if not columns:
        chosen = [name for name in chosen if name != id_column]
    require(bool(chosen), "columns", "at least one feature", "none", "Drop fewer columns.")
    return tuple(chosen)


def in_order_of_model(
    path: Where, present: Sequence[str], chosen: Sequence[str], names: Sequence[str]
) -> tuple[str, ...]:
    """Return the names of the model's columns if the chosen ones are exactly these."""
    missing = [name for name in names if name not in chosen]
    absent = [name for name in missing if name not in present]
    why = "lacks" if absent else "has, but not as features (--drop, --id, --columns, --labels),"
    require(
        not missing,
        "columns",
        f"the columns of the model: {list_names(names)}",
        f"{path.name}, which {why} {list_names(absent or missing)}",
        "Columns are found by name: give them the names they had when the model was fitted, or in "
        "its Space.",
    )
    extra = [name for name in chosen if name not in names]
    require(
        not extra,
        "columns",
        f"no features beside those of the model: {list_names(names)}",
        f"{list_names(extra)} in {path.name}, too",
        f"If they are not features, drop them: --drop {shlex.quote(','.join(extra))}."
        if "" not in extra
        else "A column without a name is the index that pandas wrote: write the file again with "
        "table.to_csv(..., index=False).",
    )
    return tuple(names)


def list_names(names: Sequence[str]) -> str:
    """List the first few names."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(map(repr, names[:8])) + more


def _refuse_numbers(path: Where, names: list[str]) -> None:
    """Refuse a first line of numbers, which is data, unless it counts the columns."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return
    if numbers not in ([*range(len(names))], [*range(1, len(names) + 1)]):
        raise FileFormatError(
            f"{path}: the first line, {','.join(names[:4])}..., looks like data. Add a line that "
            "names the columns."
        )
