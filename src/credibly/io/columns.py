"""Which columns of a table are the features, and in which order the model takes them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from credibly._validation import require
from credibly.errors import FileFormatError, InvalidArgumentError, ModelError


def choose_columns(
    path: Path,
    names: list[str],
    columns: Sequence[str] | None,
    id_column: str | None,
    drop: Sequence[str],
) -> tuple[str, ...]:
    """Return the columns asked for, or all but the id and the dropped ones."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FileFormatError(f"{path}: the column names {twice} appear more than once.")
    _refuse_numbers(path, names)
    ids = [] if id_column is None else [id_column]
    expected = f"columns of {path.name}: {', '.join(names)}"
    for argument, asked in (("id_column", ids), ("drop", drop), ("columns", columns or [])):
        for name in asked:
            require(name in names, argument, expected, repr(name), "Check the spelling.")
    chosen = [name for name in columns or names if name not in drop]
    if not columns:
        chosen = [name for name in chosen if name != id_column]
    require(bool(chosen), "columns", "at least one feature", "none", "Drop fewer columns.")
    return tuple(chosen)


def in_order_of_model(
    path: Path, present: Sequence[str], chosen: Sequence[str], names: Sequence[str]
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


@contextmanager
def naming_columns(columns: Sequence[str] | None) -> Iterator[None]:
    """If a model fails on the rows of a table, say which columns it was given."""
    try:
        yield
    except (ModelError, InvalidArgumentError) as error:
        raised = isinstance(error, ModelError) and error.__cause__ is not None
        shaped = isinstance(error, InvalidArgumentError) and error.argument == "x"
        if columns is None or not (raised or shaped):
            raise
        raise ModelError(
            f"{str(error).removesuffix(error.remedy).rstrip(' .')}; it was given {len(columns)} "
            f"columns as features: {list_names(columns)}",
            remedy="If one of them is not a feature, such as the label, leave it out (--drop NAME),"
            f" or name the features (--columns a,b). {error.remedy}",
        ) from error


def list_names(names: Sequence[str], most: int = 8) -> str:
    """List the first few names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def _refuse_numbers(path: Path, names: list[str]) -> None:
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
