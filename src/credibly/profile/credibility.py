"""The one-call door: a classifier and inputs in, a certified profile out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Literal

import torch
from torch import Tensor

from credibly.io.fingerprints import quick_digest
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import losses_only, undisturbed
from credibly.model.inputs import enter, finite_rows
from credibly.model.structure import Nested
from credibly.problem.fit_risk import FitRiskProblem
from credibly.problem.weights import resolve_weights
from credibly.profile.arguments import (
    Progress,
    check_bounds,
    check_chunk_size,
    check_solver,
    ticking,
)
from credibly.profile.certificate import Certificate, certificate_of
from credibly.profile.profile import Profile, Settings
from credibly.solve.base import Solver
from credibly.solve.hybrid import Hybrid
from credibly.solve.loop import Solution, Tick, solve
from credibly.solve.status import Status
from credibly.types import Array, Bounds, per_sample
from credibly.version import __version__


def credibility(
    clf: Classifier,
    x: Nested = None,
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
        x: inputs (n, ...), as the classifier takes them; with a `Space` or a module also mappings,
            lists and tuples of tensors. A twin of `from_sklearn`, and a classifier whose `Space`
            names its columns, take a DataFrame, too, columns by name. Rows with NaN or infinity get
            a status and cost the others nothing. Leave it out for a classifier that is bound to its
            inputs already.
        gamma: how dear it is to move the input, one number for all classes: large keeps x+ near x0.
            It has the unit of (loss / input)^2, so state the space of your inputs with it. 'auto'
            sets it by the model's own sensitivity (`auto_gamma`) and records the number. Pass
            exactly one of gamma and weights.
        weights: K numbers instead, one a class; see also `prior_weights`.
        solver: by default `Hybrid()`, chosen by measurement; see docs/solvers.md.
        bounds: smallest and largest value a feature may take, such as (0.0, 1.0) for pixels.
            None, as in the paper, leaves x+ free.
        chunk_size: samples solved at a time. It bounds memory and changes nothing but rounding,
            which kinks of the model can amplify: there another chunk size may find a neighbouring
            minimum of about the same height.
        progress: show a bar (needs the extra 'cli'), or a function called with the share done.

    A `no_grad`, `inference_mode`, `autocast` or default device of the caller changes nothing: the
    model runs in the precision of its inputs, where they are.

    Returns:
        A `Profile`. No exception is raised for a sample that could not be solved: look at
        `profile.status`.
    """
    clf, x0 = enter(clf, x)
    solver = check_solver(solver, default=Hybrid())
    check_chunk_size(chunk_size)
    bounds = check_bounds(bounds, clf.free_values(x0))
    with undisturbed(x0) as x0:
        check_model(clf, x0)
        w = resolve_weights(clf, x0, gamma=gamma, weights=weights)
        with ticking(progress) as tick:
            problem = FitRiskProblem(clf, x0, w, clf.limits(bounds))
            return solved_profile(problem, solver, chunk_size=chunk_size, tick=tick, bounds=bounds)


def solved_profile(
    problem: FitRiskProblem,
    solver: Solver,
    *,
    chunk_size: int,
    tick: Tick | None = None,
    start: Tensor | None = None,
    bounds: Bounds | None = None,
) -> Profile:
    """Solve from x0 or from `start`, and gather what belongs to the answer."""
    solution = solve(problem, solver, chunk_size=chunk_size, tick=tick, start=start)
    settings = Settings(
        weights=tuple(problem.weights.tolist()),
        solver=repr(solver),
        loss=repr(problem.classifier.loss),
        dtype=str(problem.x0.dtype),
        classes=problem.classifier.classes,
        bounds=bounds,
        space=problem.classifier.space_name(),
        model=quick_digest(problem.classifier),
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
    known = finite_rows(problem.x0)  # for the others every number is NaN
    clean = problem.select(known)
    fit = torch.full(
        (len(problem), len(problem.weights)),
        torch.nan,
        dtype=problem.x0.dtype,
        device=problem.x0.device,
    )
    losses, answer, certificates = fit.clone(), solution.x.clone(), None
    codes = solution.status.clone()
    if bool(known.any()):
        fit[known] = losses_only(clean.classifier, clean.x0)
        losses[known] = losses_only(clean.classifier, solution.x[known])
        back = _worse_than_start(problem, fit, losses, answer) & known
        # the point that had converged is not the one returned, whose gradient is not zero
        lost = back & (answer != problem.x0).flatten(1).any(1) & (codes == Status.CONVERGED)
        codes[lost] = Status.STALLED
        answer = torch.where(per_sample(back, answer), problem.x0, answer)
        losses = torch.where(back[:, None], fit, losses)
        certificates = certificate_of(clean, answer[known], fit_at_start=clean.misfit(fit[known]))
    passes = solution.passes + known.double() * (2 / 3 + 1)
    return Profile(
        credibility=-losses,
        credence=-fit,
        risk=problem.risk(answer),
        x0=problem.classifier.decode(problem.x0),
        perturbed=problem.classifier.decode(answer),
        multipliers=problem.multipliers(losses),
        certificate=_spread(certificates, known, problem.x0),
        steps=solution.steps,
        passes=passes,
        codes=codes,
        settings=settings,
    )


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
