"""True classes from a file: an array, an array of an archive, or a column of a table."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from credibly._validation import labels as check_labels
from credibly._validation import require
from credibly.errors import CrediblyWarning, FileFormatError, InvalidArgumentError
from credibly.io.array_files import ArrayFile, as_numpy
from credibly.io.columns import list_names
from credibly.io.source import ARRAYS, TABLES
from credibly.io.table_files import TableFile

_REMEDY = (
    "Pass --labels and a file or an array or column of one: labels.npy, arrays.npz:labels, "
    "table.csv:label."
)
LARGE = 2.0**53
"""From here on, floating numbers are no longer told apart."""

_USUAL = ("labels", "label", "y", "target", "class")


def label_place(spec: str | None, data: Path) -> tuple[Path, str | None]:
    """Return the file and the key that a spec means: FILE, FILE:KEY, or a KEY of the data.

    None is the key 'labels' of the data, if they can have one.
    """
    holds = data.is_file() and data.suffix.lower() in (*ARRAYS[1:], *TABLES)
    if spec is None:
        lacking = f"the true classes, which {data.name} does not hold"
        require(holds, "labels", lacking, "none", _REMEDY)
        return data, _USUAL[0]
    file, colon, key = spec.rpartition(":")
    for path, name in ((spec, None), (file, key)):
        if path and Path(path).is_file():
            return Path(path), name
    missing = Path(file if len(file) > 1 else spec)  # C:\labels.npy has a colon, too
    if missing.suffix.lower() in (*ARRAYS, *TABLES) and not missing.exists():
        raise FileFormatError(f"{missing}: no such file of labels.")
    wanted = "a file, FILE:KEY, or an array or column of the data"
    require(holds and not colon, "labels", wanted, repr(spec), _REMEDY)
    return data, spec


def names_a_file(spec: str) -> bool:
    """Whether this is FILE or FILE:KEY, there or not, and no array or column."""
    file = spec.rpartition(":")[0]
    return any(
        bool(name) and (Path(name).suffix.lower() in (*ARRAYS, *TABLES) or Path(name).is_file())
        for name in (spec, file)
    )


def read_labels(path: Path, key: str | None, *, classes: Sequence[str] | int) -> Tensor:
    """Read class numbers (n,).

    Whole numbers count the classes from 0, unless all of them are names of classes (1 and 2 of the
    classes 1, 2 and 3, for example): then they are names.

    Args:
        path: `.npy`, `.npz`, `.safetensors`, `.csv`, `.tsv` or `.parquet`.
        key: the array or column; not needed if there is only one, or one of a usual name.
        classes: names of the classes in the order of their numbers, or how many there are.
    """
    numbers = _as_numbers(raw_labels(path, key), classes, path)
    count = classes if isinstance(classes, int) else len(classes)
    wrong = (numbers < 0) | (numbers >= count)
    if bool(wrong.any()):
        only_below = bool((numbers < count).all())
        raise InvalidArgumentError(
            "labels",
            expected=f"classes from 0 to {count - 1}",
            got=f"{int(numbers[wrong][0])} in {path.name}",
            remedy="Classes are counted from 0, in the order of the model's outputs."
            + (" Leave out rows without a label, also from the data." if only_below else ""),
        )
    return torch.from_numpy(numbers)


def raw_labels(path: Path, key: str | None) -> NDArray[Any]:
    """Read numbers or names as they are in the file (n,)."""
    suffix = path.suffix.lower()
    if suffix in TABLES:
        values = _read_column(path, key)
    elif suffix in ARRAYS:
        values = _read_array(path, key)
    else:
        known = ", ".join((*ARRAYS, *TABLES))
        raise FileFormatError(f"{path}: unknown format of labels; credibly reads {known}.")
    if values.ndim != 1 or len(values) == 0:
        raise FileFormatError(
            f"{path}: labels have shape {values.shape}; expected one number or name per row."
        )
    return values


def numbered(labels: Any, classes: Sequence[str] | None) -> Any:
    """Labels that name the classes, as numbers; all others as they are, to be checked.

    Text and truth values are names. Whole numbers, also of a floating type, are where `read_labels`
    takes them so. Missing labels are refused.
    """
    if isinstance(labels, str):
        return labels
    try:
        values = np.asarray(labels)
    except (TypeError, ValueError, RuntimeError):  # ragged, or on a GPU
        return labels
    if values.ndim != 1 or not len(values):
        return labels
    _refuse_missing(values)
    if values.dtype == object:  # whole numbers may be kept as objects
        values = np.asarray(values.tolist())
    if values.dtype.kind == "f" and bool((np.floor(values) == values).all()):
        values = labels = values.astype(np.int64)
    if classes is None:
        return labels
    if values.dtype.kind in "iu":
        return _by_numeric_name(values.astype(np.int64), classes)
    return _by_words(labels, values, classes)


def class_numbers(
    labels: Any, count: int, classes: int | None, names: Sequence[str] | None
) -> Tensor:
    """The classes (n,) of so many samples, by number or by name; see `numbered`."""
    return check_labels(numbered(labels, names), count, classes)


def _by_words(labels: Any, values: NDArray[Any], classes: Sequence[str]) -> Any:
    words = [str(value) for value in values.tolist()]
    unknown = sorted(set(words) - set(classes))
    if values.dtype.kind not in "bUSO" or (values.dtype.kind == "b" and unknown):
        return labels
    require(
        not unknown,
        "labels",
        f"names of classes, {', '.join(classes[:6])}{', ...' if len(classes) > 6 else ''}",
        ", ".join(map(repr, unknown[:4])),
        "Check the spelling, or write numbers in the order of the model's outputs.",
    )
    numbers = {name: k for k, name in enumerate(classes)}
    return np.array([numbers[word] for word in words])


def _refuse_missing(values: NDArray[Any]) -> None:
    """NaN, None and pandas' NA are no labels."""
    missing = np.zeros(len(values), bool)
    if values.dtype.kind == "f":
        missing = np.isnan(values)
    elif values.dtype.kind == "O":
        missing = np.array([_is_missing(value) for value in values])
    count = int(missing.sum())
    require(
        count == 0,
        "labels",
        "a class for every input",
        f"{count} of {len(values)} missing, first at {int(missing.argmax())} (counted from 0)",
        "Leave out inputs without a label, and their labels.",
    )


def _is_missing(value: Any) -> bool:
    missing_float = isinstance(value, float) and np.isnan(value)
    return value is None or missing_float or type(value).__name__ in {"NAType", "NaTType"}


def _read_array(path: Path, key: str | None) -> NDArray[Any]:
    file = ArrayFile(path)
    headers = {header.name: header for header in file.headers}
    if path.suffix.lower() == ".npy" and key is not None:
        raise FileFormatError(f"{path}: holds one array, without a name; there is no {key!r}.")
    header = headers[_choose(path, key, list(headers))]
    return as_numpy(file.rows(header, 0, header.shape[0] if header.shape else 1))


def _read_column(path: Path, key: str | None) -> NDArray[Any]:
    file = TableFile(path)
    values = file.values(_choose(path, key, file.names))
    empty = np.array([value is None for value in values])
    if bool(empty.any()):
        raise FileFormatError(f"{path}: {_describe_missing(empty, 'missing')}")
    try:
        return np.asarray(values)
    except ValueError as error:  # lists of different lengths
        raise FileFormatError(f"{path}: labels are not one number or name per row.") from error


def _choose(path: Path, key: str | None, names: list[str]) -> str:
    usual = names if len(names) == 1 else [name for name in _USUAL if name in names]
    chosen = next(iter(usual), None) if key is None else key
    expected = f"one of {list_names(names)} in {path.name}"
    got = "none" if key is None else repr(key)
    require(chosen in names, "labels", expected, got, f"Pass --labels {path}:NAME.")
    return str(chosen)


def _as_numbers(values: NDArray[Any], classes: Sequence[str] | int, path: Path) -> NDArray[Any]:
    if values.dtype.kind in "iub":
        if values.dtype.kind == "u":  # what is larger is no class, either
            values = np.minimum(values, np.uint64(2**63 - 1))
        return _by_numeric_name(values.astype(np.int64), classes)
    if values.dtype.kind == "f":
        whole = (np.abs(values) < LARGE) & (values == np.floor(values))
        if bool(whole.all()):
            return _by_numeric_name(values.astype(np.int64), classes)
        missing = _describe_missing(~whole, "missing, or not whole numbers")
        raise FileFormatError(f"{path}: {missing}")
    words = [str(value).strip() for value in _listed(values, path)]
    names = {} if isinstance(classes, int) else {name: k for k, name in enumerate(classes)}
    unknown = sorted({word for word in words if word not in names})
    if not unknown:
        return np.array([names[word] for word in words], dtype=np.int64)
    require(
        all(word.isdecimal() and len(word) < 19 for word in words),
        "labels",
        f"names of classes: {', '.join(names) or 'the model has none'}",
        f"{', '.join(map(repr, unknown[:4]))} in {path.name}",
        "Name the classes (--classes), or write numbers from 0.",
    )
    return _by_numeric_name(np.array([int(word) for word in words], dtype=np.int64), classes)


def _listed(values: NDArray[Any], path: Path) -> list[Any]:
    try:
        listed: list[Any] = values.tolist()
    except (ValueError, SystemError) as error:  # bytes that are no text
        raise FileFormatError(f"{path}: labels that cannot be read ({error}).") from error
    return listed


def _describe_missing(rows: NDArray[np.bool_], what: str) -> str:
    count = int(rows.sum())
    return (
        f"{count} of {len(rows)} labels {'is' if count == 1 else 'are'} {what}, first in row "
        f"{int(rows.argmax())} (counted from 0). Leave out such rows, also from the data."
    )


def _by_numeric_name(numbers: NDArray[Any], classes: Sequence[str] | int) -> NDArray[Any]:
    """Return the labels, or the classes that they name if the names are whole numbers."""
    if isinstance(classes, int):
        return numbers
    names = {_whole(name): k for k, name in enumerate(classes)}
    found = set(numbers.tolist())
    if not found <= names.keys() or all(names[number] == number for number in found):
        return numbers
    if all(0 <= number < len(classes) for number in found):
        warnings.warn(
            f"labels from {min(found)} to {max(found)} were taken as names of classes "
            f"({', '.join(classes[:4])}, ...). If they count the classes from 0, write them as "
            "the names.",
            CrediblyWarning,
            stacklevel=4,
        )
    return np.array([names[number] for number in numbers.tolist()], dtype=np.int64)


def _whole(name: str) -> int | None:
    """Return a name such as '2' or '2.0' as a number, or None."""
    try:
        number = float(name)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None
