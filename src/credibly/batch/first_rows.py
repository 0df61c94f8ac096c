"""What the first rows of a run tell: whether the model runs on them, and how it runs fastest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from credibly.batch.rows import AUTO_ROWS, Rows, prepare, raising, read_rows, run, use
from credibly.decide.accelerate import accelerate
from credibly.errors import InvalidArgumentError, ModelError
from credibly.io.columns import list_names
from credibly.model.bind import bind
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import losses_only, undisturbed
from credibly.model.threads import threads_worth
from credibly.model.variable import Inputs, Variable
from credibly.types import finite_rows

FASTER_ON = ("cuda",)
"""Kinds of devices on which a run is worth a faster copy of the model."""


@dataclass(frozen=True, eq=False)
class FirstRows:
    """The first rows of the data.

    Attributes:
        read: as they are in the file.
        outside: which of them (n,) lie outside the bounds.
        x: those on which the model runs.
        variable: the same, as the model takes them.
    """

    read: Tensor
    outside: Tensor
    x: Tensor
    variable: Variable


@contextmanager
def first_rows(rows: Rows, count: int = AUTO_ROWS) -> Iterator[FirstRows]:
    """Check the model on the first rows, and give those on which it runs."""
    read = rows.source.read(0, count)[1]
    x, outside = prepare(rows, read)
    with undisturbed(Inputs(rows.clf, x)) as inputs:
        x = _drop_failing(rows.clf, inputs.start)
        variable = bind(rows.clf, x)
        with naming_columns(rows.columns):
            check_model(variable)
        yield FirstRows(read, outside, x, variable)


def faster(rows: Rows) -> Classifier:
    """The classifier on a faster copy of its model, tried on the first rows; on a GPU only."""
    clf = rows.clf
    if clf.device is None or clf.device.type not in FASTER_ON or clf.notes:
        return clf
    x, _ = prepare(rows, read_rows(rows, 0, AUTO_ROWS).x)
    x = _drop_failing(clf, x[finite_rows(x)])
    return accelerate(clf, x) if len(x) else clf


@contextmanager
def chosen_threads(rows: Rows) -> Iterator[None]:
    """As many threads as are faster on the first rows, on a CPU; restored afterwards."""
    forward: Callable[[], object] | None = None
    if rows.clf.device is None or rows.clf.device.type == "cpu":
        with suppress(Exception):  # what cannot be read or run is told where it belongs
            x, _ = prepare(rows, read_rows(rows, 0, min(rows.chunk, AUTO_ROWS)).x)
            x = _drop_failing(rows.clf, x[finite_rows(x)])
            use(rows.clf, _forward, x)
            forward = partial(use, rows.clf, _forward, x) if len(x) else None
    with nullcontext() if forward is None else threads_worth(forward):
        yield


def _forward(variable: Variable) -> Tensor:
    return losses_only(variable, variable.start)


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


def _drop_failing(clf: Classifier, x: Tensor) -> Tensor:
    """Return the rows on which the model runs; if it runs on none, all, to check it on them."""
    try:
        run(clf, x if clf.module is not None else x[finite_rows(x)][:2])
    except Exception:  # noqa: BLE001  # a model may raise anything
        failing = raising(partial(run, clf), x)
        return x[~failing] if bool((~failing & finite_rows(x)).any()) else x
    return x
