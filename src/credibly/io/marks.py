"""What a person made of predictions: marks beside a file of verdicts, and labels from them."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from credibly.errors import FileFormatError, InvalidArgumentError
from credibly.io.files import whole_file

Mark = Literal["right", "wrong", "does not belong"]
"""The class is right, or wrong, or the input belongs to no class at all."""

MARKS: tuple[Mark, ...] = get_args(Mark)
ENDING = ".marks.csv"
_FIELDS = ["row", "id", "predicted", "mark"]


@dataclass(frozen=True)
class Marked:
    """The mark of one row.

    Attributes:
        id: of the row, as text.
        predicted: the class that it was judged with, by name.
        mark: what was made of it.
    """

    id: str
    predicted: str
    mark: Mark


def marks_place(verdicts: Path) -> Path:
    """Where the marks of a file of verdicts are: beside it."""
    return verdicts.with_name(verdicts.name + ENDING)


def is_marks(value: object) -> bool:
    """Whether this names a file of marks."""
    return isinstance(value, str | Path) and str(value).endswith(ENDING)


def read_marks(path: str | Path) -> dict[int, Marked]:
    """Read a file of marks, by row."""
    try:
        text = (
            Path(path).read_bytes().decode("utf-8")
        )  # read as text, new lines in ids would change
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{path}: no readable file of marks ({error}).") from error
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if reader.fieldnames != _FIELDS:
        raise FileFormatError(
            f"{path}: not a file of marks; expected the columns {', '.join(_FIELDS)}, got "
            f"{', '.join(reader.fieldnames or ['none'])}."
        )
    found: dict[int, Marked] = {}
    for line, record in enumerate(reader, 2):
        row, mark = record["row"] or "", record["mark"]
        if not row.isdecimal() or mark not in MARKS or None in record.values():
            raise FileFormatError(
                f"{path}: line {line}: expected the number of a row and one of "
                f"{', '.join(MARKS)}, got {row!r} and {mark!r}."
            )
        found[int(row)] = Marked(record["id"], record["predicted"], mark)
    return found


def write_marks(path: str | Path, marks: Mapping[int, Marked]) -> None:
    """Write a file of marks, completely or not at all."""
    with whole_file(path) as place, place.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_FIELDS)
        for row, one in sorted(marks.items()):
            writer.writerow([row, one.id, one.predicted, one.mark])


def labels_from_marks(
    marks: Mapping[int, Marked], classes: tuple[str, ...] | None
) -> dict[int, int]:
    """Class numbers of the marked rows, for `Judge.fit`; what does not belong has none.

    Where the class is wrong the right one is not known. A Judge only asks whether it is right, so
    any other class stands for it.
    """
    numbers = None if classes is None else {name: k for k, name in enumerate(classes)}
    found: dict[int, int] = {}
    for row, one in marks.items():
        if one.mark == "does not belong":
            continue
        known = one.predicted.isdecimal() if numbers is None else one.predicted in numbers
        if not known:
            raise InvalidArgumentError(
                "labels",
                expected="marks of this model's predictions",
                got=f"the class {one.predicted!r} in row {row}",
                remedy="Name the classes as they were when the file was judged.",
            )
        number = int(one.predicted) if numbers is None else numbers[one.predicted]
        found[row] = number if one.mark == "right" else number - 1 if number else 1
    return found
