"""Rows that are in memory already, as a source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from credibly.io.source import Ids, Source


class RowsInMemory(Source):
    """A batch. Its rows are numbered from 0.

    Args:
        x: the inputs (n, ...).
        name: what messages call it.
        columns: names of the features, if it has any.
    """

    def __init__(self, x: Tensor, name: str, columns: Sequence[str] | None = None) -> None:
        self.path, self.kind, self.shape, self._x = Path(name), "batch", tuple(x.shape[1:]), x
        self.columns = columns
        self._limit(len(x), None)

    def options(self) -> dict[str, object]:
        return {}

    def _take(self, start: int, stop: int) -> tuple[Ids, Tensor]:
        return list(range(start, stop)), self._x[start:stop]
