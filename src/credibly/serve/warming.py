"""Before the first request: how long batches and profiles take, and which settings are best."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from credibly.errors import ModelError
from credibly.serve.answers import columns_of
from credibly.serve.backlog import SLICE
from credibly.serve.intake import Intake
from credibly.serve.settings import Settings
from credibly.serve.solver import Solver
from credibly.types import CPU

FASTER = 0.8
"""Share of the time that more threads must save to be used."""


def warm_up(solver: Solver, intake: Intake, settings: Settings) -> None:
    """Choose threads and batch, and learn how long rows take; runs in the solver's thread."""
    torch.set_num_threads(settings.threads or 1)
    if intake.shape is None:  # there is nothing to warm up with
        return
    rows, most = random_rows(intake, solver.batch), settings.deadline / 4
    solver.forward(rows[:1], keep=False)  # the first call prepares what others use
    sizes = dict(_growing(len(rows), most, lambda size: _batch(solver, rows[:size]), solver))
    largest = max(sizes)
    for size, seconds in sizes.items():
        solver.pace.note(size, seconds)
    for size, seconds in _growing(largest, SLICE / 2, lambda n: _profile(solver, rows[:n]), solver):
        solver.backlog.pace.note(size, seconds)
    if settings.threads is None:
        _choose_threads(solver, rows[:largest], sizes[largest])
    if settings.batch is None:
        solver.batch = max((n for n, seconds in sizes.items() if seconds <= most), default=1)
    elif 2 * largest <= settings.batch and sizes[largest] <= most:  # more than that failed
        solver.batch = largest


def model_failed(error: Exception) -> ModelError:
    """What is said where the model cannot be used at all."""
    return ModelError(
        f"the model failed on random rows of the shape that it was fitted on "
        f"({type(error).__name__})",
        remedy="Judge a file with `credibly judge` to see why, or pass a smaller --batch.",
    )


def random_rows(intake: Intake, count: int) -> Tensor:
    """Rows that only take time."""
    generator = torch.Generator(CPU).manual_seed(0)
    shape = (count, *(intake.shape or ()))
    return torch.rand(shape, generator=generator, dtype=intake.dtype, device=CPU)


def _growing(
    rows: int, most: float, work: Callable[[int], None], solver: Solver
) -> Iterator[tuple[int, float]]:
    """Sizes 1, 2, 4 ... and their seconds, until `most` of these; what fails is not tried again."""
    size = 1
    while size <= rows:
        try:
            seconds = min(_seconds(work, size) for _ in range(2))
        except Exception as error:  # too little memory, most often
            if size == 1:
                raise
            solver.hooks.failed(error)
            return
        yield size, seconds
        if seconds > most:
            return
        size *= 2


def _seconds(work: Callable[[int], None], size: int) -> float:
    begun = time.monotonic()
    work(size)
    return time.monotonic() - begun


def _batch(solver: Solver, rows: Tensor) -> None:
    columns_of(solver.forward(rows, keep=False))


def _profile(solver: Solver, rows: Tensor) -> None:
    found = solver.forward(rows, keep=True)
    if found.inputs is not None and found.inputs.rows:
        found.inputs.profiles_of(list(range(len(rows))))


def _choose_threads(solver: Solver, rows: Tensor, alone: float) -> None:
    """All cores but one, which answers requests, where that is clearly faster than one."""
    spare = len(os.sched_getaffinity(0)) - 1 if hasattr(os, "sched_getaffinity") else 1
    if spare < 2:
        return
    torch.set_num_threads(spare)
    _batch(solver, rows)
    if _seconds(lambda _: _batch(solver, rows), len(rows)) > FASTER * alone:
        torch.set_num_threads(1)
