"""`solve_constrained`: the smallest movement that meets given credences, and its prices."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum

import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import losses_only, undisturbed
from credibly.model.inputs import enter, finite_rows
from credibly.model.structure import Nested
from credibly.problem.weights import as_numbers
from credibly.profile.arguments import check_chunk_size
from credibly.solve.base import require_tolerance
from credibly.theory.constrained_methods import AugmentedLagrangian, ConstrainedMethod
from credibly.theory.constrained_problem import AugmentedProblem
from credibly.theory.constrained_rounds import Iterate, starting_point
from credibly.types import Array, Limits, per_sample


class Feasibility(Enum):
    """How a sample of `solve_constrained` ended."""

    SOLVED = "solved"
    INFEASIBLE = "infeasible"
    UNSOLVED = "unsolved"

    @property
    def advice(self) -> str:
        """What it means and what to do."""
        return _ADVICE[self]


_ADVICE = {
    Feasibility.SOLVED: "The credences are met to the tolerance, at the returned risk.",
    Feasibility.INFEASIBLE: (
        "No input near x0 was found that meets these credences, however dear the violation was "
        "made; the risk is infinite. Ask for less: more negative credences."
    ),
    Feasibility.UNSOLVED: (
        "The rounds, or the digits of the numbers, ran out before the credences were met to the "
        "tolerance, or the input was not finite. Give the method more rounds or steps, or a larger "
        "tolerance, or ask for a little less."
    ),
}


@dataclass(frozen=True, eq=False)
class ConstrainedSolution:
    """Answers to (PI), one row a sample.

    Attributes:
        x: the nearest input found (n, ...).
        risk: r(c) = |x - x0|^2 (n,); infinite where infeasible.
        multipliers: the dual variables lambda (n, K): dr/dc_k where the theory holds.
        losses: at x (n, K).
        violation: largest l_k + c_k above zero (n,).
        stationarity: relative, of the Lagrangian (n,); not zero on kinks.
        status: one `Feasibility` a sample.
        passes: forward-and-backward passes (n,).
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
    clf: Classifier,
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
            samples are infeasible, with infinite risk. Minus infinity asks nothing of a class.
        method: `AugmentedLagrangian()` by default; `ClassicalArrowHurwicz()` is the paper's.
        tolerance: largest violation of a solved sample, and the relative stationarity at which its
            search ends; by default 1e-7 in double precision, 1e-3 in single. Among kinks, and where
            steps run out, a sample is solved without being stationary: see `stationarity`.
        chunk_size: samples solved at a time.
    """
    clf, start = enter(clf, x0, name="x0")
    check_chunk_size(chunk_size)
    method, goal = _method(method), _tolerance(tolerance, start)
    with undisturbed(start) as start:
        check_model(clf, start)
        c = _credences(clf, start, credences)
        chunks = [slice(first, first + chunk_size) for first in range(0, len(start), chunk_size)]
        return _joined(
            [_solved(clf.select(rows), start[rows], c[rows], method, goal) for rows in chunks]
        )


def _solved(
    clf: Classifier, x0: Tensor, credences: Tensor, method: ConstrainedMethod, goal: float
) -> ConstrainedSolution:
    finite = finite_rows(x0)
    clean = torch.where(per_sample(finite, x0), x0, 0.0)
    losses = losses_only(clf, clean)
    problem = AugmentedProblem(
        clf,
        clean,
        torch.ones_like(losses[0]),
        _bounds(clf, finite),
        credences=credences,
        duals=torch.zeros_like(losses),
        penalty=torch.ones_like(losses[:, :1]),
    )
    at = starting_point(problem, losses, finite & (credences > 0).any(1))
    going = finite & ~at.hopeless & (at.violation(problem) > 0)
    if bool(going.any()):
        method.improve(problem, at, going, goal)
    return _solution(problem, at, finite, goal)


def _bounds(clf: Classifier, finite: Tensor) -> Limits | None:
    """Those of the space; none for samples that are not finite."""
    limits = clf.limits(None)
    if limits is None:
        return None
    low, high = (torch.as_tensor(side, device=finite.device) for side in limits)
    unknown = ~finite[:, None]
    return low.masked_fill(unknown, -torch.inf), high.masked_fill(unknown, torch.inf)


def _solution(
    problem: AugmentedProblem, at: Iterate, finite: Tensor, goal: float
) -> ConstrainedSolution:
    violation = at.violation(problem)
    # on a kink the gradient does not vanish; the credences are met all the same
    solved = finite & ~at.hopeless & (violation <= goal)
    status = tuple(
        Feasibility.INFEASIBLE if bad else Feasibility.SOLVED if good else Feasibility.UNSOLVED
        for bad, good in zip(at.hopeless.tolist(), solved.tolist(), strict=True)
    )
    risk = torch.where(at.hopeless, torch.inf, problem.risk(at.x))

    def known(values: Tensor) -> Tensor:  # what stood in for the others is no answer
        return torch.where(per_sample(finite, values), values, torch.nan)

    return ConstrainedSolution(
        x=problem.classifier.decode(known(at.x)),
        risk=known(risk),
        multipliers=known(at.multipliers),
        losses=known(at.losses),
        violation=known(violation),
        stationarity=known(at.stationarity),
        status=status,
        passes=at.passes,
    )


def _joined(parts: list[ConstrainedSolution]) -> ConstrainedSolution:
    tensors = {
        f.name: torch.cat([getattr(part, f.name) for part in parts])
        for f in fields(ConstrainedSolution)
        if f.name != "status"
    }
    return ConstrainedSolution(**tensors, status=sum((part.status for part in parts), ()))


def _method(method: ConstrainedMethod | None) -> ConstrainedMethod:
    if method is not None and not isinstance(method, ConstrainedMethod):
        raise InvalidArgumentError(
            "method",
            expected="a method for given credences, such as credibly.theory.AugmentedLagrangian()",
            got=repr(method),
            remedy="Leave it out for the default; solvers of `credibility` solve another problem.",
        )
    return AugmentedLagrangian() if method is None else method


def _tolerance(tolerance: float | None, x0: Tensor) -> float:
    require_tolerance(tolerance)
    if tolerance is not None:
        return tolerance
    return 1e-7 if x0.dtype == torch.float64 else 1e-3


def _credences(clf: Classifier, x0: Tensor, credences: Array) -> Tensor:
    c = as_numbers(credences, "credences", x0).detach()
    usable = torch.where(torch.isfinite(x0[:1]), x0[:1], 0.0)
    expected = (len(x0), losses_only(clf.select(slice(0, 1)), usable).shape[1])
    if tuple(c.shape) != expected or bool(c.isnan().any()):
        raise InvalidArgumentError(
            "credences",
            expected=f"numbers of shape {expected}",
            got=f"shape {tuple(c.shape)}" + (" with NaN" if bool(c.isnan().any()) else ""),
            remedy="Pass one credence a sample and class, such as profile.credibility.",
        )
    return c
