"""True classes for commands: where they are, and that they fit the rows and the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from credibly._validation import require
from credibly.cli import options as o
from credibly.io.labels import label_place, raw_labels, read_labels
from credibly.io.marks import read_marks
from credibly.io.source import Source
from credibly.model.classifier import Classifier


@dataclass(frozen=True)
class LabelPlace:
    """Where the labels of a file of inputs are; a column of a table is not a feature.

    Attributes:
        file: that holds them.
        key: the array or column.
        limited: whether only the first rows are used.
        how: options to read the inputs with, without the labels.
    """

    file: Path
    key: str | None
    limited: bool
    how: o.DataOptions

    @classmethod
    def find(cls, spec: str | None, data: Path, how: o.DataOptions) -> LabelPlace:
        """From --labels; errors in the labels are reported before anything else."""
        file, key = label_place(spec, data)
        raw_labels(file, key)
        own = [key] if file == data and key else []
        if o.is_table(data):
            how = replace(how, drop=[*(how.drop or []), *own])
        return cls(file, key, how.limit is not None, how)

    def read(self, clf: Classifier, rows: int, count: Callable[[], int]) -> Tensor:
        """Class numbers of the rows; `count` gives how many classes a model without names has."""
        labels = read_labels(self.file, self.key, classes=clf.classes or count())
        require(
            len(labels) == rows or (self.limited and len(labels) > rows),
            "labels",
            f"{rows}, one for each row of the data",
            f"{len(labels)} in {self.file.name}",
            "They belong to the rows in order; --limit uses the first of both.",
        )
        return labels[:rows]


def check_marks(path: Path, source: Source) -> None:
    """Refuse marks of other rows than those of the source."""
    for row, one in read_marks(path).items():
        ids = source.read(row, row + 1)[0]
        require(
            bool(ids) and str(ids[0]) == one.id,
            "labels",
            f"marks of the rows of {source.path}",
            f"row {row} with the id {one.id!r} in {path.name}",
            "Pass the data that was judged and then marked, with the same options.",
        )
