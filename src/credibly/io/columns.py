"""The columns of a table: which are the features, and in which order the model takes them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, Literal

from credibly._validation import require
from credibly.errors import FileFormatError, InvalidArgumentError
from credibly.io.source import Plain, Where


def plain_type(schema: Any, column: str, argument: str) -> Plain:
    """The type in which a column of ids or labels is carried along, whatever its values are."""
    import pyarrow as pa

    kind = schema.field(column).type
    if pa.types.is_uint64(kind):
        return "string"  # half of its numbers are no 64-bit integers
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "int64"
    if pa.types.is_floating(kind):
        return "double"
    try:
        pa.array([], kind).cast(pa.string())
    except (pa.ArrowException, NotImplementedError, TypeError):
        raise InvalidArgumentError(
            argument,
            expected="a column with one number or text per row",
            got=f"{column!r}, which holds {kind}",
            remedy="Name another column, or write this one as text.",
        ) from None
    return "string"


def id_type(schema: Any, column: str | None) -> Literal["int64", "string"]:
    """The type of the ids: those of a column, or numbers of rows."""
    whole = column is None or plain_type(schema, column, "id_column") == "int64"
    return "int64" if whole else "string"


def plain_values(column: Any, kind: str) -> list[Any]:
    """The values of a column in such a type; bytes that are not UTF-8 are written in hex."""
    import pyarrow as pa

    holds = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    if kind != "string" or not any(is_so(column.type) for is_so in holds):
        found: list[Any] = column.cast(kind).to_pylist()
        return found
    raw = column.cast(pa.large_binary()).to_pylist()
    return [None if value is None else value.decode("utf-8", "backslashreplace") for value in raw]


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
