"""The rows of a run: one chunk at a time, and the first ones, which settle the weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from credibly.batch.report import FAILED, OUTSIDE, UNREADABLE
from credibly.batch.shards import as_table
from credibly.errors import CrediblyError, FileFormatError, InvalidArgumentError, ModelError
from credibly.io.columns import naming_columns
from credibly.io.sources import Source
from credibly.model.bind import bind
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import losses_only, undisturbed
from credibly.model.in_space import InSpace
from credibly.model.space import Space
from credibly.model.variable import Inputs
from credibly.problem.fit_risk import FitRiskProblem
from credibly.problem.weights import auto_gamma, resolve_weights
from credibly.profile.credibility import solved_profile
from credibly.profile.files import metadata_of
from credibly.profile.parquet import to_pandas
from credibly.profile.profile import Profile
from credibly.solve.base import Solver
from credibly.types import Bounds, finite_rows, per_sample

AUTO_ROWS = 256
"""Rows at the start of the data on which the model is checked and gamma='auto' is set."""


@dataclass(frozen=True)
class Job:
    """The settings that every chunk is solved with."""

    clf: Classifier
    source: Source
    weights: tuple[float, ...]
    solver: Solver
    bounds: Bounds | None
    chunk: int
    shard: int


def solve_chunk(job: Job, first: int) -> Any:
    """Return the table of the chunk that begins with row `first`."""
    ids, x = job.source.read(first, min(first + job.chunk, len(job.source)))
    unread = ~finite_rows(x) & job.source.files
    x, outside = prepare(job, x)
    failing = torch.zeros_like(outside)
    try:
        profile = solve(job, x)
    except Exception as error:  # a model may raise anything
        failing = _raising(partial(solve, job), x)
        working = _working_row(job) if bool(failing.any()) else None
        if working is None:
            raise _model_failed(first, len(x), error) from error
        profile = _solve_without(job, x, failing, working, first)
        failing &= finite_rows(x)  # the status of the others says more
    frame = to_pandas(profile)
    for rows, words in ((unread, UNREADABLE), (outside, OUTSIDE), (failing, FAILED)):
        frame.loc[rows.cpu().numpy(), "status"] = words
    table = as_table(ids, frame, job.source.id_type)
    return table.replace_schema_metadata({"profile": metadata_of(profile.settings)["settings"]})


def prepare(job: Job, x: Tensor) -> tuple[Tensor, Tensor]:
    """Move inputs to the model's device and precision; rows outside the bounds become NaN.

    Returns the inputs and which rows lie outside (n,).
    """
    x = x.to(device=job.clf.device, dtype=job.clf.dtype)
    outside = _outside(job, x) & finite_rows(x)
    return torch.where(per_sample(outside, x), torch.nan, x), outside


def _outside(job: Job, x: Tensor) -> Tensor:
    """Find the rows (n,) with a movable value outside the bounds of the run or of the space."""
    clf, bounds = job.clf, job.bounds
    none = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    if clf.space is None and clf.module is None:
        return none if bounds is None else ((x < bounds[0]) | (x > bounds[1])).flatten(1).any(1)
    space = clf.space or Space()
    if bounds is None and space.bounds is None:
        return none
    bare = copy(clf)
    bare.space = dataclasses.replace(space, bounds=None)  # else one row outside would raise for all
    try:
        found = bind(bare, x)
    except ModelError:  # the model raises on some row, which gets its status later
        return torch.cat([_outside(job, row) for row in torch.split(x, 1)]) if len(x) > 1 else none
    assert isinstance(found, InSpace)  # noqa: S101  # as all that bind gives
    own = space.bounds_of(found.paths[0], tuple(found.shapes[0]))
    low, high = (None, None) if own is None else (side.to(found.values) for side in own)
    return dataclasses.replace(found.coordinates, low=low, high=high).outside(bounds)


def solve(job: Job, x: Tensor, *, without: Tensor | None = None) -> Profile:
    """Solve a chunk; the rows `without` (n,) become NaN. The model was checked before."""
    variable = bind(job.clf, x)
    if without is not None:
        start = variable.start
        start = torch.where(per_sample(without, start), torch.nan, start)
        variable = dataclasses.replace(variable, start=start)
    with undisturbed(variable) as variable:
        weights = torch.tensor(job.weights, dtype=x.dtype, device=x.device)
        problem = FitRiskProblem(variable, weights, variable.limits(job.bounds))
        return solved_profile(problem, job.solver, chunk_size=job.chunk, bounds=job.bounds)


def find_weights(job: Job, gamma: Any, weights: Any) -> tuple[float, ...]:
    """Check the model on the first rows, and find the weights of the classes."""
    read = job.source.read(0, AUTO_ROWS)[1]
    x, outside = prepare(job, read)
    with undisturbed(Inputs(job.clf, x)) as rows:
        x = _drop_failing(job.clf, rows.start)
        variable = bind(job.clf, x)
        columns = getattr(job.source, "columns", None)
        with naming_columns(columns):
            check_model(variable)
        if weights is None and gamma == "auto":
            _require_rows(job, read, outside)
            gamma = _find_gamma(job.clf, x)
        given = gamma if weights is None else None
        with naming_columns(columns), _naming_shape(job.source):
            return tuple(resolve_weights(variable, gamma=given, weights=weights).tolist())


@contextmanager
def _naming_shape(source: Source) -> Iterator[None]:
    """If no row is finite, a model is first run here, on zeros: it may not fit the data at all."""
    try:
        yield
    except CrediblyError:
        raise
    except Exception as error:  # a model may raise anything
        reason = (str(error).splitlines() or [""])[0]
        raise ModelError(
            f"the model failed on inputs of shape {tuple(source.shape)}, as in {source.path}, with "
            f"{type(error).__name__}: {reason}",
            remedy="Every row must have the shape that the model takes.",
        ) from error


def _require_rows(job: Job, x: Tensor, outside: Tensor) -> None:
    """Refuse to set gamma if unreadable files or the bounds leave no row for it."""
    finite = finite_rows(x)
    if job.source.files and not bool(finite.any()):
        raise FileFormatError(
            f"{job.source.path}: none of the first {len(x)} files can be read, so gamma cannot be "
            "set from them. Replace them, or pass gamma as a number."
        )
    if bool(outside.any()) and not bool((finite & ~outside.cpu()).any()):
        low, high = float(x[finite].min()), float(x[finite].max())
        raise InvalidArgumentError(
            "bounds",
            expected="bounds that at least one of the first rows keeps, to set gamma from",
            got=f"{job.bounds or 'those of the space'}; {int(outside.sum())} of the first {len(x)} "
            f"rows lie outside (values from {low:.4g} to {high:.4g}), and no other can be used",
            remedy="Widen the bounds, bring the inputs into them (--scale 255 for bytes), or pass "
            "gamma as a number: such rows then get the status 'outside bounds'.",
        )


def _drop_failing(clf: Classifier, x: Tensor) -> Tensor:
    """Return the rows on which the model runs; if it runs on none, all, to check it on them."""
    try:
        _run(clf, x if clf.module is not None else x[finite_rows(x)][:2])
    except Exception:  # noqa: BLE001  # a model may raise anything
        failing = _raising(partial(_run, clf), x)
        return x[~failing] if bool((~failing & finite_rows(x)).any()) else x
    return x


def _run(clf: Classifier, x: Tensor) -> None:
    """Run the model once on the finite rows."""
    variable = bind(clf, x)  # a named module is found by running the model
    finite = finite_rows(variable.start)
    if clf.module is None and bool(finite.any()):
        losses_only(variable.select(finite), variable.start[finite])


def _find_gamma(clf: Classifier, x: Tensor) -> float:
    """Find the automatic gamma from the rows on which the model does not raise."""
    try:
        return auto_gamma(clf, x)
    except CrediblyError:
        raise
    except Exception as error:  # a model may raise anything
        failing = _raising(partial(_run, clf), x)
        if not bool(failing.any() and (~failing & finite_rows(x)).any()):
            raise _model_failed(0, len(x), error) from error
        return auto_gamma(clf, torch.where(per_sample(failing, x), torch.nan, x))


def _raising(use: Callable[[Tensor], object], x: Tensor) -> Tensor:
    """Find the rows (n,) on which `use` raises, one at a time."""
    failing = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for n in range(len(x)):
        try:
            use(x[n : n + 1])
        except Exception:  # noqa: BLE001  # a model may raise anything
            failing[n] = True
    return failing


def _working_row(job: Job) -> Tensor | None:
    """Find one of the first rows that can be solved (1, ...), or None."""
    x, _ = prepare(job, job.source.read(0, AUTO_ROWS)[1])
    for n in finite_rows(x).nonzero().flatten().tolist():
        if not bool(_raising(partial(solve, job), x[n : n + 1]).any()):
            return x[n : n + 1]
    return None


def _solve_without(job: Job, x: Tensor, failing: Tensor, working: Tensor, first: int) -> Profile:
    """Solve with a working row in the place of the failing ones, which become NaN."""
    try:
        return solve(job, torch.where(per_sample(failing, x), working, x), without=failing)
    except Exception as error:
        raise _model_failed(first, len(x), error) from error


def _model_failed(first: int, count: int, error: Exception) -> ModelError:
    reason = (str(error).splitlines() or [""])[0]
    return ModelError(
        f"the model failed on rows {first} to {first + count - 1} with "
        f"{type(error).__name__}: {reason}",
        remedy="Finished rows are kept. Try a smaller chunk_size (--chunk-size) if memory ran out.",
    )
