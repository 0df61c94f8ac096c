"""`credibility`: from a classifier and inputs to a certified profile, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Literal, get_args

import torch
from torch import Tensor

from credibly._validation import choice
from credibly.io.fingerprints import quick_digest
from credibly.model.bind import bind
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import losses_only, undisturbed
from credibly.model.joined import check_top, keep_top
from credibly.model.memory import ChunkSize, check_size, in_chunks, resolve_size
from credibly.model.structure import Nested
from credibly.model.threads import fitting_threads
from credibly.model.variable import Variable
from credibly.problem.fit_risk import FitRiskProblem
from credibly.problem.recorded import with_recording
from credibly.problem.rows import spread
from credibly.problem.weights import resolve_weights
from credibly.profile.arguments import check_bounds, check_solver, ticking
from credibly.profile.certificate import Certificate, certificate_of, explained
from credibly.profile.decision import decision_profile
from credibly.profile.profile import Profile, Settings
from credibly.solve.base import Solver
from credibly.solve.fixed import FixedDescent
from credibly.solve.gradient_descent import Hybrid
from credibly.solve.loop import Solution, Tick, solve
from credibly.solve.status import Status
from credibly.types import Array, Bounds, Progress, finite_rows, per_sample
from credibly.version import __version__

Effort = Literal["solve", "decide"]


def credibility(
    clf: Classifier | Variable,
    x: Nested = None,
    *,
    gamma: float | Literal["auto"] | None = None,
    weights: Array | Sequence[float] | None = None,
    effort: Effort = "solve",
    solver: Solver | FixedDescent | None = None,
    bounds: Bounds | None = None,
    top: int | None = None,
    chunk_size: ChunkSize = "auto",
    progress: Progress = False,
) -> Profile:
    """Solve and certify the credibility profile of every input.

    Args:
        clf: the trained model, wrapped in a `Classifier`.
        x: inputs (n, ...), as the classifier takes them; with a `Space` or a module also mappings,
            lists and tuples of tensors. A twin of `from_sklearn`, and a classifier whose `Space`
            names its columns, also take a DataFrame, columns by name. Rows with NaN or infinity get
            a status and do not affect other rows. None for a classifier that is bound to its
            inputs.
        gamma: the cost of moving the input, one number for all classes: large keeps x+ near x0. Its
            unit is (loss / input)^2, so it depends on the scale of your inputs. 'auto' sets it from
            the model's own sensitivity (`auto_gamma`) and records the number. Pass exactly one of
            gamma and weights.
        weights: K numbers instead, one per class; see also `prior_weights`.
        effort: 'solve' comes near the minimum, for certificates and theory: about 100 passes.
            'decide' is good enough for scores and verdicts: nine passes of a descent of fixed
            length (`FixedDescent`). Rules refuse profiles of another effort than theirs.
        solver: by default `Hybrid()` or, for effort='decide', `FixedDescent`, both chosen by
            measurement; see docs/explanation/solvers.md.
        bounds: smallest and largest value a feature may take, such as (0.0, 1.0) for pixels. None,
            as in the paper, leaves x+ free.
        top: with many classes, ask about the m most probable ones of each sample, and about all
            others as one class whose probability is the sum of theirs: m + 1 columns, of which
            `profile.kept` says what they are about. For cross-entropy, with gamma, and m below the
            number of classes. One more forward per sample finds them; `passes` leaves it out. See
            docs/how-to/decisions.md.
        chunk_size: samples solved at a time. It bounds memory and changes nothing but rounding.
            'auto': at most 128 on a CPU and 2048 on a GPU, and fewer if one pass tells that more
            would not fit. Where memory runs out all the same, half as many are tried. Kinks of the
            model can amplify rounding, so another chunk size may find a neighbouring minimum with
            about the same objective. On a CPU copies of the last one fill small batches of small
            inputs up to multiples of four, which avoids that on most networks; 1 to 3 leave them
            out, which is faster for an input alone.
        progress: show a bar (needs the extra 'cli'), or a function called with the share done.

    A `no_grad`, `inference_mode`, `autocast` or default device of the caller has no effect: the
    model runs in the precision and on the device of its inputs.

    Returns:
        A `Profile`. A sample that could not be solved raises no error: look at `profile.status`.

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(lambda x: x @ torch.tensor([[2.0, -2.0], [1.0, 0.0]]))
        >>> profile = cr.credibility(clf, torch.tensor([[1.0, 2.0], [0.0, 0.1]]), gamma=5.0)
        >>> profile.credibility.shape, profile.status[0]
        (torch.Size([2, 2]), <Status.CONVERGED: 1>)
    """
    choice("effort", effort, get_args(Effort), "'decide' is ten times cheaper than 'solve'.")
    method = _method(solver, effort)
    check_size(chunk_size)
    variable = bind(clf, x)
    if top is not None:
        check_top(top, variable.loss)
    bounds = check_bounds(bounds, variable.free_values(variable.start))
    with undisturbed(variable) as variable:
        check_model(variable)
        size = resolve_size(chunk_size, variable)
        asked = variable if top is None else keep_top(variable, top, chunk_size=size)
        w = resolve_weights(asked, gamma=gamma, weights=weights, chunk_size=size)
        fixed = isinstance(method, FixedDescent)
        threads = fitting_threads(asked, passes=10.0 if fixed or effort == "decide" else 100.0)
        with ticking(progress) as tick, threads:
            problem = FitRiskProblem(asked, w, asked.limits(bounds))
            again = gamma != "auto"
            if isinstance(method, FixedDescent):
                settings = settings_of(problem, repr(method), bounds)
                return decision_profile(problem, method, settings, chunk_size=size, recorded=again)
            return solved_profile(
                problem, method, chunk_size=size, tick=tick, bounds=bounds, recorded=again
            )


def _method(solver: Solver | FixedDescent | None, effort: Effort) -> Solver | FixedDescent:
    """The solver given, or the default of the effort."""
    if isinstance(solver, FixedDescent):
        return solver
    if solver is None and effort == "decide":
        return FixedDescent()
    return check_solver(solver, default=Hybrid())


def solved_profile(
    problem: FitRiskProblem,
    solver: Solver,
    *,
    chunk_size: int,
    tick: Tick | None = None,
    start: Tensor | None = None,
    bounds: Bounds | None = None,
    recorded: bool = True,
) -> Profile:
    """Solve from x0 or from `start`, and collect the results.

    For `recorded`, see `decision_profile`.
    """
    asked = with_recording(problem) if recorded else problem
    solution = solve(asked, solver, chunk_size=chunk_size, tick=tick, start=start)
    settings = settings_of(problem, repr(solver), bounds)
    work = lambda rows: _assemble(problem.select(rows), solution.select(rows), settings)  # noqa: E731
    return Profile.concatenate(list(in_chunks(len(problem), chunk_size, work)))


def settings_of(problem: FitRiskProblem, solver: str, bounds: Bounds | None) -> Settings:
    """What a profile of this problem is made with."""
    kept = problem.variable.kept_classes
    return Settings(
        weights=tuple(problem.weights.tolist()),
        solver=solver,
        loss=repr(problem.variable.loss),
        dtype=str(problem.x0.dtype),
        classes=problem.variable.clf.classes,
        bounds=bounds,
        moves=problem.variable.moves,
        space=problem.variable.describe(),
        model=quick_digest(problem.variable.clf),
        version=__version__,
        top=None if kept is None else kept.shape[1],
        class_count=problem.variable.all_classes,
    )


def _assemble(problem: FitRiskProblem, solution: Solution, settings: Settings) -> Profile:
    """Evaluate x0 and x+ once more, side by side, so that all numbers belong together."""
    known = finite_rows(problem.x0)  # for the others every number is NaN
    clean, answer, codes = problem.select(known), solution.x.clone(), solution.status.clone()
    shape = len(problem), len(problem.weights)
    before = problem.x0.new_full(shape, torch.nan)
    after, certificate = before, _unknown_certificate(before[:, 0])
    if bool(known.any()):
        before = spread(losses_only(clean.variable, clean.x0), known)
        after = spread(losses_only(clean.variable, answer[known]), known)
        back = _worse_than_start(problem, before, after, answer) & known
        # x0 is returned there, which is not the point that converged
        lost = back & (answer != problem.x0).flatten(1).any(1) & (codes == Status.CONVERGED)
        codes[lost] = Status.STALLED
        answer = torch.where(per_sample(back, answer), problem.x0, answer)
        after = torch.where(back[:, None], before, after)
        start = clean.misfit(before[known])
        found = certificate_of(clean, answer[known], fit_at_start=start)
        codes[known] = explained(codes[known], found)
        certificate = Certificate(**{n: spread(v, known) for n, v in vars(found).items()})
    return Profile(
        credibility=-after,
        credence=-before,
        risk=problem.risk(answer),
        x0=problem.variable.decode(problem.x0),
        perturbed=problem.variable.decode(answer),
        multipliers=problem.multipliers(after),
        certificate=certificate,
        steps=solution.steps,
        passes=solution.passes + known.double() * (2 / 3 + 1),
        codes=codes,
        settings=settings,
        kept=problem.variable.kept_classes,
    )


def _unknown_certificate(like: Tensor) -> Certificate:
    nothing = torch.full_like(like, torch.nan)
    return Certificate(**{f.name: nothing.clone() for f in fields(Certificate)})


def _worse_than_start(
    problem: FitRiskProblem, before: Tensor, after: Tensor, answer: Tensor
) -> Tensor:
    """Samples (n,) whose gain is lost in rounding; for them x0 itself becomes the answer.

    So |x+ - x0|^2 <= |c0|^2 - |c+|^2 holds for the numbers that are returned.
    """
    w = problem.weights.double()
    gain = (before.double().square() / w).sum(1) - (after.double().square() / w).sum(1)
    return ~(problem.risk(answer).double() <= gain)
