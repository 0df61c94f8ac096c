"""Callables for `map_batches` of Ray Data: verdicts and profiles beside the rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from credibly._extras import require_table_extra
from credibly._validation import chunk_size as check_chunk_size
from credibly._validation import require
from credibly.batch.chunks import Job, find_weights, solve_chunk
from credibly.batch.judge import JudgeJob, judge_chunk
from credibly.batch.packed import PackedJudge, PackedModel
from credibly.batch.rows import read_rows
from credibly.decide.judge import Judge
from credibly.errors import FileFormatError
from credibly.io.arrays import as_floats
from credibly.io.loaded import LoadedClassifier
from credibly.io.memory import RowsInMemory
from credibly.io.models import load_classifier
from credibly.io.nested import array_of
from credibly.io.streams import as_classifier
from credibly.model.batches import column_names
from credibly.model.joined import check_top
from credibly.profile.arguments import check_pair, check_solver
from credibly.solve.base import Solver
from credibly.solve.gradient_descent import Hybrid
from credibly.types import Bounds

Table = Any

BATCH = "the batch"


class _Batches(ABC):
    """Adds columns to batches. The model is loaded once, where the first batch arrives."""

    def __init__(
        self, model: Any, inputs: str | Sequence[str], chunk_size: int, device: str | None
    ) -> None:
        require_table_extra()
        check_chunk_size(chunk_size)
        named = [inputs] if isinstance(inputs, str) else list(inputs)
        good = bool(named) and all(isinstance(name, str) for name in named)
        require(good, "inputs", "the name of a column of arrays, or names of columns of numbers",
                repr(inputs), "Name what the model takes, in its order.")  # fmt: skip
        self._inputs, self._size, self._device = inputs, int(chunk_size), device
        loaded = load_classifier(model) if isinstance(model, str) else model
        clf = as_classifier(loaded)
        known = loaded if isinstance(loaded, LoadedClassifier) else None
        self._model = PackedModel.of(clf, known)
        self._ready: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ready": None}  # a live model would travel twice

    def __call__(self, batch: Any) -> Any:
        """Return the batch without its inputs, and with the new columns."""
        table = _as_table(batch)
        names = [self._inputs] if isinstance(self._inputs, str) else list(self._inputs)
        lacks = [name for name in names if name not in table.column_names]
        has, remedy = f"a batch with {', '.join(table.column_names)}", "Check the spelling."
        require(not lacks, "inputs", f"the columns {names}", has, remedy)
        if self._ready is None:
            self._ready = self._open()
        kept = table.drop_columns(names)
        if not table.num_rows:
            return _as_given(kept, batch)
        found = self._rows(self._source(table))
        return _as_given(_beside(kept, found), batch)

    @abstractmethod
    def _open(self) -> Any:
        """Load the model."""

    @abstractmethod
    def _rows(self, source: RowsInMemory) -> Table:
        """Return the new columns, and the column `id`."""

    def _source(self, table: Table) -> RowsInMemory:
        try:
            if isinstance(self._inputs, str):
                return RowsInMemory(as_floats(array_of(table.column(self._inputs))), BATCH)
            columns = [array_of(table.column(name)) for name in self._inputs]
        except FileFormatError as error:
            raise FileFormatError(f"the inputs of a batch hold {error}.") from error
        x = np.stack([np.asarray(column, np.float64) for column in columns], axis=1)
        return RowsInMemory(torch.from_numpy(x), BATCH, list(self._inputs))

    def _check_names(self, clf: Any) -> None:
        """Refuse columns in another order than that of a model which knows their names."""
        names = column_names(clf)
        if names is not None and not isinstance(self._inputs, str):
            good, got = list(names) == list(self._inputs), str(self._inputs)
            wanted = f"the columns of the model, {list(names)}"
            require(good, "inputs", wanted, got, "Name them in that order.")


class JudgeBatches(_Batches):
    """Verdicts on the batches of a Ray dataset, as `judge_file` gives them.

    Pass the class to `map_batches`, so that each actor loads the model once, and ask for Arrow
    tables: `batch_format="pyarrow"`. Dictionaries of arrays are taken as well. The columns named as
    inputs are replaced by those of the verdicts; all others stay.

    Args:
        model: a name for `load_classifier` that workers can import, what it returned, or a module.
        judge: a fitted `Judge`, or the folder it was saved in.
        inputs: the name of one column of arrays, or the names of columns of numbers, in the order
            of the model.
        chunk_size: rows judged at a time; by default that of the Judge.
        device: where to compute, such as 'cuda'; by default where the model is.

    Example:
        >>> import numpy as np, torch, credibly as cr
        >>> net = torch.nn.Linear(3, 2).double()
        >>> judge = cr.Judge.fit(net, np.random.default_rng(0).normal(size=(200, 3)))
        >>> batches = cr.ray.JudgeBatches(net, judge, inputs="x")
        >>> x = np.array([[0.1, 0.2, 0.0], [90.0, -90.0, 90.0]])
        >>> found = batches({"key": np.array([7, 8]), "x": x})
        >>> found["key"].tolist(), found["verdict"][1]
        ([7, 8], 'outlier')
    """

    def __init__(
        self,
        model: Any,
        judge: Judge | str | Path,
        *,
        inputs: str | Sequence[str],
        chunk_size: int | None = None,
        device: str | None = None,
    ) -> None:
        super().__init__(model, inputs, 1 if chunk_size is None else chunk_size, device)
        self._own_size = chunk_size is None
        if isinstance(judge, Judge):
            self._judge = PackedJudge.of(judge, None).with_model(self._model)
        else:
            self._judge = PackedJudge.from_folder(judge, self._model)

    def _open(self) -> Judge:
        judge = self._judge.open(self._device)
        self._check_names(judge.examiner.clf)
        return judge

    def _rows(self, source: RowsInMemory) -> Table:
        judge: Judge = self._ready
        size = judge.examiner.chunk_size if self._own_size else self._size
        job = JudgeJob(
            clf=judge.examiner.clf, source=source, chunk=size, shard=size, judge=judge
        )  # fmt: skip
        return _joined(judge_chunk(job, read_rows(job, k, k + size)) for k in _firsts(source, size))


class ProfileBatches(_Batches):
    """Profiles of the batches of a Ray dataset, as `score` gives them; see `JudgeBatches`.

    Args:
        model: as for `JudgeBatches`.
        inputs: likewise.
        gamma: a number: batches must not set it, each for itself.
        weights: K numbers instead of gamma.
        solver: see `credibility`.
        bounds: likewise.
        top: likewise.
        chunk_size: rows solved at a time.
        device: as for `JudgeBatches`.

    Example:
        >>> import numpy as np, torch, credibly as cr
        >>> net = torch.nn.Linear(3, 2).double()
        >>> batches = cr.ray.ProfileBatches(net, inputs=["a", "b", "c"], gamma=1.0)
        >>> found = batches({name: np.zeros(2) for name in "abc"})
        >>> list(found["status"])
        ['converged', 'converged']
    """

    def __init__(
        self,
        model: Any,
        *,
        inputs: str | Sequence[str],
        gamma: float | None = None,
        weights: Sequence[float] | None = None,
        solver: Solver | None = None,
        bounds: Bounds | None = None,
        top: int | None = None,
        chunk_size: int = 128,
        device: str | None = None,
    ) -> None:
        super().__init__(model, inputs, chunk_size, device)
        good = (gamma is None) != (weights is None) and not isinstance(gamma, str)
        remedy = "cr.auto_gamma(clf, some_rows) sets gamma once, for all batches."
        require(good, "gamma", "a number, or weights instead", repr(gamma), remedy)
        self._solver = check_solver(solver, default=Hybrid())
        self._gamma, self._given, self._top = gamma, weights, top
        self._bounds = check_pair(bounds)
        self._weights: tuple[float, ...] | None = None

    def _open(self) -> Any:
        clf = as_classifier(self._model.open(self._device))
        self._check_names(clf)
        return clf

    def _rows(self, source: RowsInMemory) -> Table:
        clf = self._ready
        top = None if self._top is None else check_top(self._top, clf.loss)
        job = Job(
            clf=clf, source=source, chunk=self._size, shard=self._size, bounds=self._bounds,
            solver=self._solver, top=top, weights=self._weights or (),
        )  # fmt: skip
        if self._weights is None:
            self._weights = find_weights(job, self._gamma, self._given)
            return self._rows(source)
        firsts = _firsts(source, self._size)
        return _joined(solve_chunk(job, read_rows(job, k, k + self._size)) for k in firsts)


def _firsts(source: RowsInMemory, size: int) -> range:
    return range(0, len(source), size)


def _joined(tables: Any) -> Table:
    import pyarrow as pa

    return pa.concat_tables(tables).replace_schema_metadata(None)


def _as_table(batch: Any) -> Table:
    """Return a batch of any format as an Arrow table."""
    import pyarrow as pa

    if isinstance(batch, pa.Table):
        return batch
    if isinstance(batch, Mapping):
        return pa.table({name: _column(values) for name, values in batch.items()})
    good = hasattr(batch, "to_dict") and hasattr(batch, "columns")
    formats = "an Arrow table, a dictionary of arrays or a pandas table"
    remedy = 'Pass batch_format="pyarrow" to map_batches.'
    require(good, "batch", formats, type(batch).__name__, remedy)
    return pa.Table.from_pandas(batch, preserve_index=False)


def _column(values: Any) -> Any:
    import pyarrow as pa

    found = np.asarray(values)
    if found.dtype == object:
        return pa.array([v.tolist() if isinstance(v, np.ndarray) else v for v in found])
    if found.ndim < 2:
        return pa.array(found)
    return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(found))


def _beside(kept: Table, found: Table) -> Table:
    """Return the new columns beside those that stay; none is replaced unnoticed."""
    names = [name for name in found.column_names if name != "id"]
    both = [name for name in names if name in kept.column_names]
    require(not both, "batch", "columns that are not called like those of the result", str(both),
            "Rename them first: dataset.rename_columns({...}).")  # fmt: skip
    for name in names:
        kept = kept.append_column(name, found.column(name))
    return kept


def _as_given(table: Table, batch: Any) -> Any:
    """Return a table in the format of the batch."""
    if isinstance(batch, Mapping):
        return {name: _plain(table.column(name)) for name in table.column_names}
    return table if isinstance(batch, type(table)) else table.to_pandas()


def _plain(column: Any) -> Any:
    import pyarrow as pa

    if isinstance(column.type, pa.FixedShapeTensorType):
        return array_of(column)
    return column.to_numpy()
