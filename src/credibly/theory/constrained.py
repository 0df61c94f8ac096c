"""`solve_constrained`: the smallest movement that meets given credences, and its multipliers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from credibly._validation import chunk_size as check_chunk_size
from credibly._validation import require
from credibly._validation import tolerance as check_tolerance
from credibly.model.bind import bind
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import losses_only, undisturbed
from credibly.model.structure import Nested
from credibly.model.variable import Variable
from credibly.problem.rows import spread
from credibly.problem.weights import class_count
from credibly.profile.arguments import class_numbers
from credibly.theory.constrained_methods import AugmentedLagrangian, ConstrainedMethod
from credibly.theory.constrained_problem import AugmentedProblem
from credibly.theory.constrained_rounds import Iterate, starting_point
from credibly.types import Array, finite_rows


class Feasibility(Enum):
    """How a sample of `solve_constrained` ended; `advice` says what to do.

    Example: see `solve_constrained`.
    """

    SOLVED = "solved"
    INFEASIBLE = "infeasible"
    UNSOLVED = "unsolved"

    @property
    def advice(self) -> str:
        """What this means and what to do."""
        return _ADVICE[self]


_ADVICE = {
    Feasibility.SOLVED: "The credences are met to the tolerance, at the returned risk.",
    Feasibility.INFEASIBLE: (
        "No input near x0 meets these credences, even with a very large penalty; the risk is "
        "infinite. Ask for less: more negative credences."
    ),
    Feasibility.UNSOLVED: (
        "The credences were not met to the tolerance within the rounds or the precision, or the "
        "input was not finite. Use more rounds or steps, a larger tolerance, or slightly more "
        "negative credences."
    ),
}


@dataclass(frozen=True, eq=False)
class ConstrainedSolution:
    """Answers to (PI), one row per sample.

    Attributes:
        x: the nearest input found (n, ...).
        risk: r(c) = |x - x0|^2 (n,); infinite where infeasible.
        multipliers: the dual variables lambda (n, K), which are dr/dc_k where the theory holds.
        losses: at x (n, K).
        violation: largest l_k + c_k above zero (n,).
        stationarity: relative, of the Lagrangian (n,); not zero on kinks.
        status: one `Feasibility` per sample.
        passes: forward-and-backward passes (n,).

    Example: see `solve_constrained`.
    """

    x: Tensor
    risk: Tensor
    multipliers: Tensor
    losses: Tensor
    violation: Tensor
    stationarity: Tensor
    status: tuple[Feasibility, ...]
    passes: Tensor


def solve_constrained(
    clf: Classifier | Variable,
    x0: Nested,
    credences: Array,
    *,
    method: ConstrainedMethod | None = None,
    tolerance: float | None = None,
    chunk_size: int = 128,
) -> ConstrainedSolution:
    """Find the input nearest to x0 whose losses are at most -c.

    Args:
        clf: the classifier.
        x0: inputs as in `credibility`; None for a classifier that is bound to them. Bounds of a
            `Space` are kept.
        credences: c (n, K). A positive one cannot be met, since losses are never negative: such
            samples are infeasible, with infinite risk. Minus infinity leaves a class free.
        method: `AugmentedLagrangian()` by default; `ClassicalArrowHurwicz()` is the paper's.
        tolerance: largest violation of a solved sample, and the relative stationarity at which its
            search ends; by default 1e-7 in double precision, 1e-3 in single. On kinks, and when
            steps run out, a sample is solved without being stationary: see `stationarity`.
        chunk_size: samples solved at a time.

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(lambda x: x @ torch.tensor([[2.0, -2.0], [1.0, 0.0]]))
        >>> c = torch.tensor([[-9.0, -1.0]])  # the loss of the second class is to be at most 1
        >>> found = cr.theory.solve_constrained(clf, torch.tensor([[1.0, 0.0]]), c)
        >>> found.status[0].name, f"{float(found.risk):.1f}"
        ('SOLVED', '0.7')
    """
    variable = bind(clf, x0, name="x0")
    check_chunk_size(chunk_size)
    method, goal = _method(method), _tolerance(tolerance, variable.start)
    with undisturbed(variable) as variable:
        check_model(variable)
        shape, start = (len(variable), class_count(variable)), variable.start
        c, finite = class_numbers(credences, "credences", shape, start), finite_rows(start)
        parts = []
        for begin in range(0, len(c), chunk_size):
            rows = slice(begin, begin + chunk_size)
            part = _problem(variable.select(rows).select(finite[rows]), c[rows][finite[rows]])
            parts.append(_search(part, method, goal))
        clean = _problem(variable.select(finite), c[finite])
        return _solution(clean, Iterate.concatenate(parts), finite, goal)


def _problem(variable: Variable, credences: Tensor) -> AugmentedProblem:
    return AugmentedProblem(
        variable,
        credences.new_ones(credences.shape[1]),
        variable.limits(None),
        credences=credences,
        duals=torch.zeros_like(credences),
        penalty=torch.ones_like(credences[:, :1]),
    )


def _search(problem: AugmentedProblem, method: ConstrainedMethod, goal: float) -> Iterate:
    c, variable = problem.credences, problem.variable
    losses = losses_only(variable, variable.start) if len(variable) else c
    at = starting_point(problem, losses, (c > 0).any(1))
    going = ~at.hopeless & (at.violation(problem) > 0)
    if bool(going.any()):
        method.improve(problem, at, going, goal)
    return at


def _solution(
    problem: AugmentedProblem, at: Iterate, finite: Tensor, goal: float
) -> ConstrainedSolution:
    """The answers for all samples; those that are not finite get NaN."""
    violation = at.violation(problem)
    met = violation <= goal  # also on a kink, where the gradient is not zero
    found = torch.where(at.hopeless, 2, torch.where(met, 1, 0))
    kinds = (Feasibility.UNSOLVED, Feasibility.SOLVED, Feasibility.INFEASIBLE)
    return ConstrainedSolution(
        x=spread(problem.variable.decode(at.x), finite),
        risk=spread(torch.where(at.hopeless, torch.inf, problem.risk(at.x)), finite),
        multipliers=spread(at.multipliers, finite),
        losses=spread(at.losses, finite),
        violation=spread(violation, finite),
        stationarity=spread(at.stationarity, finite),
        status=tuple(kinds[k] for k in spread(found, finite, 0).tolist()),
        passes=spread(at.passes, finite, 1 / 3),
    )


def _method(method: ConstrainedMethod | None) -> ConstrainedMethod:
    require(
        method is None or isinstance(method, ConstrainedMethod),
        "method",
        "a method for given credences, such as credibly.theory.AugmentedLagrangian()",
        repr(method),
        "Leave it out for the default; solvers of `credibility` solve another problem.",
    )
    return method or AugmentedLagrangian()


def _tolerance(tolerance: float | None, x0: Tensor) -> float:
    if tolerance is not None:
        return check_tolerance(tolerance)
    return 1e-7 if x0.dtype == torch.float64 else 1e-3
