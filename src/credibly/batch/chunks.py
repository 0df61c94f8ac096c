"""One chunk of rows: read, solved, and turned into a table; a bad row costs only itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from credibly.batch.report import FAILED, OUTSIDE, UNREADABLE
from credibly.batch.shards import as_table
from credibly.errors import CrediblyError, ModelError
from credibly.io.sources import Source
from credibly.model.bound import InSpace, bind
from credibly.model.classifier import Classifier
from credibly.model.derivatives import losses_only, undisturbed
from credibly.model.inputs import enter, finite_rows
from credibly.model.space import Space
from credibly.problem.fit_risk import FitRiskProblem
from credibly.problem.weights import auto_gamma
from credibly.profile.credibility import solved_profile
from credibly.profile.files import metadata_of, to_pandas
from credibly.profile.profile import Profile
from credibly.solve.base import Solver
from credibly.types import Bounds, per_sample

AUTO_ROWS = 256
"""Rows from the start of the data on which the model is checked and gamma='auto' is set."""


@dataclass(frozen=True)
class Job:
    """What every chunk is solved with."""

    clf: Classifier
    source: Source
    weights: tuple[float, ...]
    solver: Solver
    bounds: Bounds | None
    chunk: int
    shard: int


def solve_chunk(job: Job, first: int) -> Any:
    """The table of the chunk that begins with row `first`."""
    ids, x = job.source.read(first, min(first + job.chunk, len(job.source)))
    unread = ~finite_rows(x) & job.source.files
    x, outside = prepared(job, x)
    failing = torch.zeros_like(outside)
    try:
        profile = solved(job, x)
    except Exception as error:  # a model may raise anything
        failing = _failing_rows(job, x)
        working = _working_row(job) if bool(failing.any()) else None
        if working is None:
            raise _model_failed(first, len(x), error) from error
        profile = _solved_without(job, x, failing, working, first)
        failing &= finite_rows(x)  # the others have a status that says more
    frame = to_pandas(profile)
    for rows, words in ((unread, UNREADABLE), (outside, OUTSIDE), (failing, FAILED)):
        frame.loc[rows.cpu().numpy(), "status"] = words
    table = as_table(ids, frame, job.source.id_type)
    return table.replace_schema_metadata({"profile": metadata_of(profile.settings)["settings"]})


def prepared(job: Job, x: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs where and as the model wants them, NaN where they break the bounds, and which do."""
    x = x.to(device=job.clf.device, dtype=job.clf.dtype)
    outside = _outside(job, x) & finite_rows(x)
    return torch.where(per_sample(outside, x), torch.nan, x), outside


def _outside(job: Job, x: Tensor) -> Tensor:
    """Rows (n,) in which a value that may move breaks the bounds of the run or of the space."""
    clf, bounds = job.clf, job.bounds
    nobody = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    if clf.space is None and clf.module is None:
        return nobody if bounds is None else ((x < bounds[0]) | (x > bounds[1])).flatten(1).any(1)
    space = clf.space or Space()
    if bounds is None and space.bounds is None:
        return nobody
    bare = copy(clf)
    bare.space = dataclasses.replace(space, bounds=None)  # else one row outside would stop all
    try:
        found = bind(bare, x)
    except ModelError:  # a row on which the model raises; it is told apart when it is solved
        return (
            torch.cat([_outside(job, row) for row in torch.split(x, 1)]) if len(x) > 1 else nobody
        )
    assert isinstance(found, InSpace)  # noqa: S101  # as all that bind gives
    own = space.bounds_of(found.paths[0], tuple(found.shapes[0]))
    low, high = (None, None) if own is None else (side.to(found.start) for side in own)
    return dataclasses.replace(found.coordinates, low=low, high=high).outside(bounds)


def solved(job: Job, x: Tensor, *, without: Tensor | None = None) -> Profile:
    """The profile of a chunk, NaN for the rows `without`.

    The model was looked at when the run began, not at every chunk.
    """
    clf, start = enter(job.clf, x)  # what moves is what the space or the module says
    if without is not None:
        start = torch.where(per_sample(without, start), torch.nan, start)
    with undisturbed(start) as x0:
        weights = torch.tensor(job.weights, dtype=x0.dtype, device=x0.device)
        problem = FitRiskProblem(clf, x0, weights, clf.limits(job.bounds))
        return solved_profile(problem, job.solver, chunk_size=job.chunk, bounds=job.bounds)


def answered(clf: Classifier, x: Tensor) -> Tensor:
    """The rows on which the model runs, to look at it by; the others get a status later.

    All rows where it runs on no finite one: then the model is what is to be complained about.
    """
    try:
        _run(clf, x if clf.module is not None else x[finite_rows(x)][:2])
    except Exception:  # noqa: BLE001  # a model may raise anything
        failing = _raising(partial(_run, clf), x)
        return x[~failing] if bool((~failing & finite_rows(x)).any()) else x
    return x


def _run(clf: Classifier, x: Tensor) -> None:
    """One forward, of the rows that are numbers."""
    bound, start = enter(clf, x)  # a named module is found by running the model
    finite = finite_rows(start)
    if clf.module is None and bool(finite.any()):
        losses_only(bound.select(finite), start[finite])


def gamma_of(clf: Classifier, x: Tensor) -> float:
    """The automatic gamma, by rows on which the model does not raise: those get a status later."""
    try:
        return auto_gamma(clf, x)
    except CrediblyError:
        raise
    except Exception as error:  # a model may raise anything
        failing = _raising(partial(_run, clf), x)
        if not bool(failing.any() and (~failing & finite_rows(x)).any()):
            raise _model_failed(0, len(x), error) from error
        return auto_gamma(clf, torch.where(per_sample(failing, x), torch.nan, x))


def _failing_rows(job: Job, x: Tensor) -> Tensor:
    """Rows (n,) whose solve raises even alone; all is tried again, since this is rare."""
    return _raising(partial(solved, job), x)


def _raising(use: Callable[[Tensor], object], x: Tensor) -> Tensor:
    """Rows (n,) on which `use` raises by itself."""
    failing = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for n in range(len(x)):
        try:
            use(x[n : n + 1])
        except Exception:  # noqa: BLE001  # whatever it is, it is this row's
            failing[n] = True
    return failing


def _working_row(job: Job) -> Tensor | None:
    """One of the first rows for which the model answers (1, ...); None: no row is to blame."""
    x, _ = prepared(job, job.source.read(0, AUTO_ROWS)[1])
    for n in finite_rows(x).nonzero().flatten().tolist():
        if not bool(_failing_rows(job, x[n : n + 1]).any()):
            return x[n : n + 1]
    return None


def _solved_without(job: Job, x: Tensor, failing: Tensor, working: Tensor, first: int) -> Profile:
    """The same with a row that works in the place of those that do not, which stay NaN."""
    try:
        return solved(job, torch.where(per_sample(failing, x), working, x), without=failing)
    except Exception as error:
        raise _model_failed(first, len(x), error) from error


def _model_failed(first: int, count: int, error: Exception) -> ModelError:
    reason = (str(error).splitlines() or [""])[0]
    return ModelError(
        f"the model failed on rows {first} to {first + count - 1} with "
        f"{type(error).__name__}: {reason}",
        remedy="Rows finished before are kept. Try a smaller chunk_size (--chunk-size) if memory "
        "ran out.",
    )
