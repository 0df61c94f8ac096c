"""Which columns of a table are the features, and in which order the model wants them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from credibly.errors import FileFormatError, InvalidArgumentError, ModelError


def chosen_columns(
    path: Path,
    names: list[str],
    columns: Sequence[str] | None,
    id_column: str | None,
    drop: Sequence[str],
) -> tuple[str, ...]:
    """The columns that were asked for, or all but the id and the dropped ones."""
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise FileFormatError(f"{path}: the column names {twice} appear more than once.")
    _refuse_headless(path, names)
    asked = {"id_column": [] if id_column is None else [id_column], "drop": drop}
    for argument, wanted in {**asked, "columns": columns or []}.items():
        for name in wanted:
            if name not in names:
                raise InvalidArgumentError(
                    argument,
                    expected=f"columns of {path.name}: {', '.join(names)}",
                    got=repr(name),
                    remedy="Check the spelling.",
                )
    chosen = columns or [name for name in names if name != id_column]
    chosen = [name for name in chosen if name not in drop]
    if not chosen:
        raise InvalidArgumentError(
            "columns", expected="at least one feature", got="none", remedy="Drop fewer columns."
        )
    return tuple(chosen)


def in_order_of_model(
    path: Path, present: Sequence[str], chosen: Sequence[str], names: Sequence[str]
) -> tuple[str, ...]:
    """The names of the model's columns, if the chosen are exactly these, in whatever order."""
    missing = [name for name in names if name not in chosen]
    if missing:
        absent = [name for name in missing if name not in present]
        why = "lacks" if absent else "has, but not as features (--drop, --id, --columns, --labels),"
        raise InvalidArgumentError(
            "columns",
            expected=f"the columns of the model: {_listed(names)}",
            got=f"{path.name}, which {why} {_listed(absent or missing)}",
            remedy="Columns are found by name: give them the names they had when the model was "
            "fitted, or in its Space.",
        )
    extra = [name for name in chosen if name not in names]
    if extra:
        raise InvalidArgumentError(
            "columns",
            expected=f"no features beside those of the model: {_listed(names)}",
            got=f"{_listed(extra)} in {path.name}, too",
            remedy=f"If they are none, drop them: --drop {shlex.quote(','.join(extra))}."
            if "" not in extra
            else "A column without a name is what pandas makes of its index: write the file anew, "
            "by table.to_csv(..., index=False).",
        )
    return tuple(names)


@contextmanager
def naming_columns(columns: Sequence[str] | None) -> Iterator[None]:
    """Where a model fails on the rows of a table, say which columns it was given."""
    try:
        yield
    except (ModelError, InvalidArgumentError) as error:
        raised = isinstance(error, ModelError) and error.__cause__ is not None
        shaped = isinstance(error, InvalidArgumentError) and error.argument == "x"
        if columns is None or not (raised or shaped):
            raise
        raise ModelError(
            f"{str(error).removesuffix(error.remedy).rstrip(' .')}; it was given {len(columns)} "
            f"columns as features: {_listed(columns)}",
            remedy="If one of them is no feature, such as the label, leave it out (--drop NAME), "
            f"or name the features (--columns a,b). {error.remedy}",
        ) from error


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def _refuse_headless(path: Path, names: list[str]) -> None:
    """A first line of numbers is a row of data, unless it counts the columns."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return
    if numbers not in ([*range(len(names))], [*range(1, len(names) + 1)]):
        raise FileFormatError(
            f"{path}: the first line, {','.join(names[:4])}..., looks like data. Add a line that "
            "names the columns."
        )
