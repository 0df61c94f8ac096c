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

from credibly.errors import (
    CrediblyWarning,
    FileFormatError,
    InvalidArgumentError,
    MissingExtraError,
)
from credibly.io.sources import ARRAYS, TABLES

_FORMS = "a file or an array or column of one: labels.npy, arrays.npz:labels, table.csv:label"
_USUAL = ("labels", "label", "y", "target", "class")


def label_place(spec: str | None, data: Path) -> tuple[Path, str | None]:
    """The file and the key that words mean: FILE, FILE:KEY, or a KEY of the data themselves.

    None is the key 'labels' of the data, if they can have one.
    """
    holds = data.is_file() and data.suffix.lower() in (*ARRAYS[1:], *TABLES)
    if spec is None:
        if holds:
            return data, _USUAL[0]
        raise InvalidArgumentError(
            "labels",
            expected=f"the true classes, which {data.name} does not hold",
            got="none",
            remedy=f"Pass --labels and {_FORMS}.",
        )
    if Path(spec).is_file():
        return Path(spec), None
    file, colon, key = spec.rpartition(":")
    if colon and Path(file).is_file():
        return Path(file), key
    named = Path(spec).suffix.lower() in (*ARRAYS, *TABLES)  # a file that is not there
    if not colon and not named and holds:
        return data, spec
    missing = file if colon and len(file) > 1 else spec
    if Path(missing).suffix.lower() in (*ARRAYS, *TABLES) and not Path(missing).exists():
        raise FileFormatError(f"{missing}: no such file of labels.")
    raise InvalidArgumentError(
        "labels",
        expected="a file, FILE:KEY, or an array or column of the data",
        got=repr(spec),
        remedy=f"Pass --labels and {_FORMS}.",
    )


def read_labels(path: Path, key: str | None, *, classes: Sequence[str] | int) -> Tensor:
    """Numbers of classes (n,).

    Whole numbers count the classes from 0; where some do not, but all are names of classes (1 and
    2, say), they are taken as names.

    Args:
        path: `.npy`, `.npz`, `.safetensors`, `.csv`, `.tsv` or `.parquet`.
        key: the array or column; where there is only one, or one of a usual name, it needs none.
        classes: names of the classes, in whose order they are numbered, or how many there are.
    """
    values = raw_labels(path, key)
    numbers = _as_numbers(values, classes, path)
    count = classes if isinstance(classes, int) else len(classes)
    wrong = (numbers < 0) | (numbers >= count)
    if bool(wrong.any()):
        only_below = bool((numbers < count).all())
        raise InvalidArgumentError(
            "labels",
            expected=f"classes from 0 to {count - 1}",
            got=f"{int(numbers[wrong][0])} in {path.name}",
            remedy="Classes are counted from 0, in the order of the model's outputs."
            + (" Leave out rows without a label, of the data too." if only_below else ""),
        )
    return torch.from_numpy(numbers)


def raw_labels(path: Path, key: str | None) -> NDArray[Any]:
    """Numbers or names as they are in the file (n,)."""
    values = _values(path, key)
    if values.ndim != 1 or len(values) == 0:
        raise FileFormatError(
            f"{path}: labels have shape {values.shape}; one number or name a row is needed."
        )
    return values


def _as_numbers(values: NDArray[Any], classes: Sequence[str] | int, path: Path) -> NDArray[Any]:
    if values.dtype.kind in "iub":
        return _by_numeric_name(values.astype(np.int64), classes)
    if values.dtype.kind == "f":
        whole = np.isfinite(values) & (values == np.floor(values))
        if bool(whole.all()):
            return _by_numeric_name(values.astype(np.int64), classes)
        raise FileFormatError(f"{path}: {_missing(~whole, 'missing, or no whole numbers')}")
    words = [str(value).strip() for value in values.tolist()]
    names = {} if isinstance(classes, int) else {name: k for k, name in enumerate(classes)}
    unknown = sorted({word for word in words if word not in names})
    if not unknown:
        return np.array([names[word] for word in words], dtype=np.int64)
    if all(word.isdecimal() for word in words):
        return _by_numeric_name(np.array([int(word) for word in words], dtype=np.int64), classes)
    raise InvalidArgumentError(
        "labels",
        expected=f"names of classes: {', '.join(names) or 'the model has none'}",
        got=f"{', '.join(map(repr, unknown[:4]))} in {path.name}",
        remedy="Name the classes (--classes), or write numbers from 0.",
    )


def _missing(rows: NDArray[np.bool_], what: str) -> str:
    """How many labels are unusable, where the first is, and what to do."""
    count = int(rows.sum())
    return (
        f"{count} of {len(rows)} labels {'is' if count == 1 else 'are'} {what}, first in row "
        f"{int(rows.argmax())} (counted from 0). Leave out such rows, of the data too."
    )


def _by_numeric_name(numbers: NDArray[Any], classes: Sequence[str] | int) -> NDArray[Any]:
    """The same labels, or the classes that they name, where the names are whole numbers."""
    if isinstance(classes, int):
        return numbers
    names = {_whole(name): k for k, name in enumerate(classes)}
    found = set(numbers.tolist())
    if not found <= names.keys() or all(names[number] == number for number in found):
        return numbers
    if all(0 <= number < len(classes) for number in found):
        warnings.warn(
            f"labels from {min(found)} to {max(found)} were taken as counted from 0, but classes "
            f"have such names, too ({', '.join(classes[:4])}, ...). If names are meant, write "
            "the labels as numbers from 0.",
            CrediblyWarning,
            stacklevel=4,
        )
        return numbers
    return np.array([names[number] for number in numbers.tolist()], dtype=np.int64)


def _whole(name: str) -> int | None:
    """A name such as '2' or '2.0' as a number; None for words."""
    try:
        number = float(name)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


def _values(path: Path, key: str | None) -> NDArray[Any]:
    suffix = path.suffix.lower()
    try:
        if suffix == ".npy":
            if key is not None:
                raise FileFormatError(f"{path}: holds one array; there is no {key!r} in it.")
            return np.asarray(np.load(path, allow_pickle=False))
        if suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return np.asarray(arrays[_chosen(path, key, list(arrays.keys()))])
        if suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(path, "np") as file:
                return np.asarray(file.get_tensor(_chosen(path, key, list(file.keys()))))
    except (ValueError, OSError, EOFError) as error:
        if isinstance(error, FileFormatError | InvalidArgumentError):
            raise
        raise FileFormatError(f"{path}: not a readable file of labels ({error}).") from error
    if suffix in TABLES:
        return _column(path, key)
    raise FileFormatError(
        f"{path}: unknown format of labels; credibly reads {', '.join((*ARRAYS, *TABLES))}."
    )


def _column(path: Path, key: str | None) -> NDArray[Any]:
    try:
        import pyarrow as pa
        from pyarrow import csv, parquet
    except ImportError as error:
        raise MissingExtraError(
            package="pyarrow", extra="table", purpose="A table of labels"
        ) from error
    try:
        if path.suffix.lower() == ".parquet":
            table = parquet.read_table(path)
        else:
            comma = "\t" if path.suffix.lower() == ".tsv" else ","
            table = csv.read_csv(path, parse_options=csv.ParseOptions(delimiter=comma))
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise FileFormatError(f"{path}: not a readable table ({reason}).") from error
    column = table.column(_chosen(path, key, table.column_names))
    if column.null_count:
        empty = np.array([value is None for value in column.to_pylist()])
        raise FileFormatError(f"{path}: {_missing(empty, 'missing')}")
    return np.asarray(column.to_pylist())


def _chosen(path: Path, key: str | None, names: list[str]) -> str:
    usual = names if len(names) == 1 else [name for name in _USUAL if name in names]
    if key in names or (key is None and usual):
        return key or usual[0]
    raise InvalidArgumentError(
        "labels",
        expected=f"one of {_likely_first(names)} in {path.name}",
        got="none" if key is None else repr(key),
        remedy=f"Pass --labels {path}:NAME.",
    )


def _likely_first(names: list[str], most: int = 8) -> str:
    """A few names, first those that sound like labels, then the last one, then the others."""
    ordered = sorted(names, key=lambda name: (not _sounds_like_labels(name), name != names[-1]))
    shown = names if len(names) <= most else ordered[:most]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(shown) + more


def _sounds_like_labels(name: str) -> bool:
    lower = name.lower()
    return lower in _USUAL or any(word in lower for word in ("label", "target", "class", "truth"))
