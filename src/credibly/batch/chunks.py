"""Profiles of the rows of a run, one chunk at a time, and the weights from the first ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from credibly.batch.first_rows import first_rows, naming_columns
from credibly.batch.parts import as_table
from credibly.batch.rows import AUTO_ROWS, Read, Rows, model_failed, raising, run, use, work_on
from credibly.errors import CrediblyError, FileFormatError, InvalidArgumentError, ModelError
from credibly.io.sources import Source
from credibly.model.joined import keep_top
from credibly.model.variable import Variable
from credibly.problem.fit_risk import FitRiskProblem
from credibly.problem.weights import auto_gamma, resolve_weights
from credibly.profile.credibility import solved_profile
from credibly.profile.files import metadata_of
from credibly.profile.parquet import to_pandas
from credibly.profile.profile import Profile
from credibly.solve.base import Solver
from credibly.types import finite_rows, per_sample


@dataclass(frozen=True, kw_only=True)
class Job(Rows):
    """The settings that every chunk is solved with."""

    weights: tuple[float, ...] = ()
    solver: Solver
    top: int | None = None


def solve_chunk(job: Job, read: Read) -> Any:
    """Return the table of a chunk."""
    chunk = work_on(job, partial(_solve, job), read)
    profile, frame = chunk.result, to_pandas(chunk.result)
    chunk.mark(frame)
    table = as_table(job.source, read, frame)
    return table.replace_schema_metadata({"profile": metadata_of(profile.settings)["settings"]})


def solve(job: Job, x: Tensor) -> Profile:
    """Solve a batch. The model was checked before."""
    return use(job.clf, partial(_solve, job), x)


def _solve(job: Job, variable: Variable) -> Profile:
    weights = torch.tensor(job.weights, dtype=variable.start.dtype, device=variable.start.device)
    asked = _asked(job, variable)
    problem = FitRiskProblem(asked, weights, asked.limits(job.bounds))
    return solved_profile(problem, job.solver, chunk_size=job.chunk, bounds=job.bounds)


def _asked(job: Job, variable: Variable) -> Variable:
    """The variable with the classes that the run is about."""
    return variable if job.top is None else keep_top(variable, job.top, chunk_size=job.chunk)


def find_weights(job: Job, gamma: Any, weights: Any) -> tuple[float, ...]:
    """Check the model on the first rows, and find the weights of the classes."""
    with first_rows(job, AUTO_ROWS) as first:
        if weights is None and gamma == "auto":
            _require_rows(job, first.read, first.outside)
            gamma = _find_gamma(job, first.x)
        given = gamma if weights is None else None
        with naming_columns(job.columns), _naming_shape(job.source):
            asked = _asked(job, first.variable)
            return tuple(resolve_weights(asked, gamma=given, weights=weights).tolist())


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


def _find_gamma(job: Job, x: Tensor) -> float:
    """Find the automatic gamma from the rows on which the model does not raise."""
    clf = job.clf
    try:
        return auto_gamma(clf, x, top=job.top)
    except CrediblyError:
        raise
    except Exception as error:  # a model may raise anything
        failing = raising(partial(run, clf), x)
        if not bool(failing.any() and (~failing & finite_rows(x)).any()):
            raise model_failed(0, len(x), error) from error
        return auto_gamma(clf, torch.where(per_sample(failing, x), torch.nan, x), top=job.top)
