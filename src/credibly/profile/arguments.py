"""Checks of arguments that several functions share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from credibly._extras import load_extra
from credibly._notebook import display_of, notebook_bar
from credibly._validation import as_numbers, real_number, require
from credibly.solve.base import Solver
from credibly.solve.loop import Tick
from credibly.types import Bounds, Progress, finite_rows


@contextmanager
def ticking(progress: Progress, what: str = "solving profiles") -> Iterator[Tick | None]:
    """A function to report progress to: none, the caller's own, or that of a bar."""
    expected = "True, False or a function of the share done"
    known = isinstance(progress, bool) or callable(progress)
    require(known, "progress", expected, repr(progress), "True shows a bar.")
    if progress is not True:
        yield progress or None
        return
    display = display_of()
    if display is not None:
        with notebook_bar(display, what) as tick:
            yield tick
        return
    rich = load_extra("rich.progress", extra="cli", purpose="A progress bar")
    with rich.Progress(transient=True) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def check_solver(solver: Solver | None, *, default: Solver) -> Solver:
    """The solver given, or the default."""
    require(
        solver is None or isinstance(solver, Solver),
        "solver",
        "a solver such as credibly.solvers.LBFGS()",
        repr(solver),
        "Mind the parentheses: a class is not a solver, and names are not accepted.",
    )
    return solver or default


def check_pair(bounds: Bounds | None) -> Bounds | None:
    """Bounds as a pair of numbers."""
    if bounds is None:
        return None
    pair = [real_number(b) for b in bounds] if isinstance(bounds, tuple | list) else []
    low, high = pair if len(pair) == 2 else (None, None)
    good = low is not None and high is not None and low < high
    expected = "(low, high), two numbers with low < high"
    require(good, "bounds", expected, repr(bounds), "For pixels pass (0.0, 1.0).")
    return (low or 0.0, high or 0.0)


def check_bounds(bounds: Bounds | None, x0: Tensor) -> Bounds | None:
    """Bounds as a pair of numbers between which the inputs lie."""
    pair = check_pair(bounds)
    inside = x0[finite_rows(x0)]
    if pair is not None and inside.numel():
        low, high = inside.min(), inside.max()
        require(
            not bool((low < pair[0]) | (high > pair[1])),
            "bounds",
            "bounds between which the inputs lie",
            f"{bounds}; inputs span {float(low):.4g} to {float(high):.4g}",
            "Widen the bounds, or clamp the inputs first.",
        )
    return pair


def class_numbers(
    values: object, name: str, shape: tuple[int, int], like: Tensor, *, sign: int = 0
) -> Tensor:
    """Numbers (n, K), one per sample and class; with a sign, none of the opposite sign."""
    found = as_numbers(values, name, like).detach()
    wrong = found.isnan() | (sign * found < 0) if sign else found.isnan()
    kind = {1: "non-negative ", -1: "non-positive ", 0: ""}[sign]
    got = f"shape {tuple(found.shape)}"
    if bool(wrong.any()):
        got += f" with {float(found[wrong][0]):.4g}"
    require(
        tuple(found.shape) == shape and not bool(wrong.any()),
        name,
        f"{kind}numbers of shape {shape}, without NaN",
        got,
        "Pass one number per sample and class, such as profile.multipliers or profile.credibility.",
    )
    return found
