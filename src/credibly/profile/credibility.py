"""The one-call door: a classifier and inputs in, a certified profile out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Literal

import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError, MissingExtraError
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import losses_only
from credibly.model.inputs import as_inputs, finite_rows
from credibly.problem.fit_risk import FitRiskProblem
from credibly.problem.weights import resolve_weights
from credibly.profile.certificate import Certificate, Search, certificate_of
from credibly.profile.profile import Profile, Settings
from credibly.solve.base import Solver
from credibly.solve.hybrid import Hybrid
from credibly.solve.loop import Solution, Tick, solve
from credibly.solve.status import Status
from credibly.types import Array, Bounds, per_sample
from credibly.version import __version__

Progress = bool | Callable[[float], None]


def credibility(
    clf: Classifier,
    x: Array,
    *,
    gamma: float | Literal["auto"] | None = None,
    weights: Array | Sequence[float] | None = None,
    solver: Solver | None = None,
    bounds: Bounds | None = None,
    chunk_size: int = 128,
    progress: Progress = False,
) -> Profile:
    """Solve and certify the credibility profile of every input.

    Args:
        clf: the trained model, wrapped in a `Classifier`.
        x: inputs (n, ...), as the classifier takes them. Rows with NaN or infinity get a status
            and cost the others nothing.
        gamma: how dear it is to move the input, one number for all classes: large keeps x+ near x0.
            It has the unit of (loss / input)^2, so state the space of your inputs with it. 'auto'
            sets it by the model's own sensitivity (`auto_gamma`) and records the number.
        weights: K numbers instead, one a class; see also `prior_weights`.
        solver: by default `Hybrid()`, chosen by measurement; see docs/solvers.md.
        bounds: smallest and largest value a feature may take, such as (0.0, 1.0) for pixels.
            None, as in the paper, leaves x+ free.
        chunk_size: samples solved at a time. It bounds memory and changes nothing but rounding.
        progress: show a bar (needs the extra 'cli'), or a function called with the share done.

    Returns:
        A `Profile`. No exception is raised for a sample that could not be solved: look at
        `profile.status`.
    """
    x0 = as_inputs(clf, x)
    solver = _check_solver(solver)
    _check_chunk_size(chunk_size)
    bounds = _check_bounds(bounds, x0)
    devices = [x0.device] if x0.is_cuda else []
    with torch.random.fork_rng(devices=devices), torch.inference_mode(False):
        x0 = x0.clone() if x0.is_inference() else x0
        check_model(clf, x0)
        w = resolve_weights(clf, x0, gamma=gamma, weights=weights)
        problem = FitRiskProblem(clf, x0, w, bounds)
        with _ticking(progress) as tick:
            solution = solve(problem, solver, chunk_size=chunk_size, tick=tick)
        settings = Settings(
            weights=tuple(w.tolist()),
            solver=repr(solver),
            loss=repr(clf.loss),
            dtype=str(x0.dtype),
            classes=clf.classes,
            bounds=bounds,
            version=__version__,
        )
        return _assemble(problem, solution, settings, chunk_size)


def _assemble(
    problem: FitRiskProblem, solution: Solution, settings: Settings, chunk_size: int
) -> Profile:
    parts = []
    for start in range(0, len(problem), chunk_size):
        rows = slice(start, start + chunk_size)
        part = Solution(
            solution.x[rows], solution.status[rows], solution.steps[rows], solution.passes[rows]
        )
        parts.append(_assemble_chunk(problem.select(rows), part, settings))
    return Profile.concatenate(parts)


def _assemble_chunk(problem: FitRiskProblem, solution: Solution, settings: Settings) -> Profile:
    """Evaluate x0 and x+ once more, side by side, so that all numbers belong together."""
    known = _is_known(solution.status, problem.x0)
    clean = problem.select(known)
    fit = torch.full(
        (len(problem), len(problem.weights)),
        torch.nan,
        dtype=problem.x0.dtype,
        device=problem.x0.device,
    )
    losses, answer, certificates = fit.clone(), solution.x.clone(), None
    if bool(known.any()):
        fit[known] = losses_only(clean.classifier, clean.x0)
        losses[known] = losses_only(clean.classifier, solution.x[known])
        back = _worse_than_start(problem, fit, losses, answer) & known
        answer = torch.where(per_sample(back, answer), problem.x0, answer)
        losses = torch.where(back[:, None], fit, losses)
        certificates = certificate_of(clean, answer[known], None, Search(), clean.fit(fit[known]))
    passes = solution.passes + known * (2 / 3 + 1)
    return Profile(
        credibility=-losses,
        fit=-fit,
        risk=problem.risk(answer),
        x0=problem.x0,
        perturbed=answer,
        multipliers=problem.multipliers(losses),
        certificate=_spread(certificates, known, problem.x0),
        steps=solution.steps,
        passes=passes,
        codes=solution.status,
        settings=settings,
    )


def _is_known(status: Tensor, x0: Tensor) -> Tensor:
    """Samples at which the model can be evaluated; for the others every number is NaN."""
    hopeless = (status == Status.NON_FINITE_INPUT) | ~finite_rows(x0)
    return ~hopeless


def _worse_than_start(
    problem: FitRiskProblem, fit: Tensor, losses: Tensor, answer: Tensor
) -> Tensor:
    """Where rounding ate the gain (n,); there x0 itself becomes the answer.

    So |x+ - x0|^2 <= |c0|^2 - |c+|^2 holds for the very numbers that are returned.
    """
    w = problem.weights.double()
    before = (fit.double().square() / w).sum(1)
    after = (losses.double().square() / w).sum(1)
    return ~(problem.risk(answer).double() <= before - after)


def _spread(certificate: Certificate | None, known: Tensor, x0: Tensor) -> Certificate:
    """One row a sample again, NaN for those that could not be evaluated."""
    values = []
    for f in fields(Certificate):
        column = torch.full((len(x0),), torch.nan, dtype=x0.dtype, device=x0.device)
        if certificate is not None:
            column[known] = getattr(certificate, f.name)
        values.append(column)
    return Certificate(*values)


@contextmanager
def _ticking(progress: Progress) -> Iterator[Tick | None]:
    if progress is False:
        yield None
        return
    if callable(progress):
        yield progress
        return
    try:
        from rich.progress import Progress as Bar
    except ImportError as error:
        raise MissingExtraError(package="rich", extra="cli", purpose="A progress bar") from error
    with Bar(transient=True) as bar:
        task = bar.add_task("solving profiles", total=1.0)
        yield lambda share: bar.update(task, completed=share)


def _check_solver(solver: Solver | None) -> Solver:
    if solver is None:
        return Hybrid()
    if not isinstance(solver, Solver):
        raise InvalidArgumentError(
            "solver",
            expected="a solver value such as credibly.LBFGS()",
            came=repr(solver),
            remedy="Mind the parentheses: a class is not a solver, and names are not accepted.",
        )
    return solver


def _check_chunk_size(chunk_size: int) -> None:
    if not isinstance(chunk_size, int) or isinstance(chunk_size, bool) or chunk_size < 1:
        raise InvalidArgumentError(
            "chunk_size",
            expected="a whole number of samples >= 1",
            came=repr(chunk_size),
            remedy="It bounds memory; results do not depend on it.",
        )


def _check_bounds(bounds: Bounds | None, x0: Tensor) -> Bounds | None:
    if bounds is None:
        return None
    low, high = float(bounds[0]), float(bounds[1])
    if not low < high:
        raise InvalidArgumentError(
            "bounds",
            expected="(low, high) with low < high",
            came=repr(bounds),
            remedy="For pixels pass (0.0, 1.0).",
        )
    inside = x0[finite_rows(x0)]
    if bool(((inside < low) | (inside > high)).any()):
        raise InvalidArgumentError(
            "bounds",
            expected="bounds that hold for the inputs themselves",
            came=f"{bounds}; inputs span {float(inside.min()):.4g} to {float(inside.max()):.4g}",
            remedy="Widen the bounds, or clamp the inputs first.",
        )
    return (low, high)
