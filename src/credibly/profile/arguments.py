"""Arguments that the doors of this folder share, checked once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor

from credibly.errors import InvalidArgumentError, MissingExtraError
from credibly.model.inputs import finite_rows
from credibly.solve.base import Solver
from credibly.solve.loop import Tick
from credibly.types import Bounds, real_number, whole_number

Progress = bool | Callable[[float], None]


@contextmanager
def ticking(progress: Progress, what: str = "solving profiles") -> Iterator[Tick | None]:
    """A function to report progress to: none, the caller's own, or that of a bar."""
    if progress is False:
        yield None
        return
    if callable(progress):
        yield progress
        return
    if progress is not True:
        raise InvalidArgumentError(
            "progress",
            expected="True, False or a function of the share done",
            got=repr(progress),
            remedy="True shows a bar.",
        )
    try:
        from rich.progress import Progress as Bar
    except ImportError as error:
        raise MissingExtraError(package="rich", extra="cli", purpose="A progress bar") from error
    with Bar(transient=True) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def check_solver(solver: Solver | None, *, default: Solver) -> Solver:
    """The solver given, or the default."""
    if solver is None:
        return default
    if not isinstance(solver, Solver):
        raise InvalidArgumentError(
            "solver",
            expected="a solver value such as credibly.solvers.LBFGS()",
            got=repr(solver),
            remedy="Mind the parentheses: a class is not a solver, and names are not accepted.",
        )
    return solver


def check_chunk_size(chunk_size: int) -> None:
    """Refuse chunks that are not a positive number of samples."""
    if whole_number(chunk_size) is None or chunk_size < 1:
        raise InvalidArgumentError(
            "chunk_size",
            expected="a whole number of samples >= 1",
            got=repr(chunk_size),
            remedy="It bounds memory; results do not depend on it.",
        )


def check_seed(seed: object) -> int:
    """The seed as an int, which torch can take also with the number of a sample added."""
    number = whole_number(seed)
    if number is None or not -(2**63) <= number < 2**63:
        raise InvalidArgumentError(
            "seed",
            expected="a whole number from -2**63 to 2**63 - 1",
            got=repr(seed),
            remedy="0 is as good as any.",
        )
    return number


def check_bounds(bounds: Bounds | None, x0: Tensor) -> Bounds | None:
    """Bounds as a pair of numbers that the inputs themselves keep."""
    if bounds is None:
        return None
    pair = [real_number(b) for b in bounds] if isinstance(bounds, tuple | list) else []
    low, high = pair if len(pair) == 2 else (None, None)
    if low is None or high is None or not low < high:
        raise InvalidArgumentError(
            "bounds",
            expected="(low, high), two numbers with low < high",
            got=repr(bounds),
            remedy="For pixels pass (0.0, 1.0).",
        )
    inside = x0[finite_rows(x0)]
    if bool(((inside < low) | (inside > high)).any()):
        raise InvalidArgumentError(
            "bounds",
            expected="bounds that hold for the inputs themselves",
            got=f"{bounds}; inputs span {float(inside.min()):.4g} to {float(inside.max()):.4g}",
            remedy="Widen the bounds, or clamp the inputs first.",
        )
    return (low, high)
