"""`solve_constrained`: the smallest movement that meets given credences, and its multipliers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from enum import Enum

import torch
from torch import Tensor

from credibly._validation import chunk_size as check_chunk_size
from credibly._validation import positive, require, whole
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
from credibly.theory.constrained_rounds import (
    LOOKS_SMOOTH,
    AugmentedProblem,
    Iterate,
    Rounds,
    first_penalty,
    starting_point,
)
from credibly.types import Array, finite_rows


class ConstrainedMethod(ABC):
    """Anything that can be passed as `method=` of `solve_constrained`.

    Example: see `solve_constrained`.
    """

    @abstractmethod
    def improve(self, problem: AugmentedProblem, at: Iterate, going: Tensor, goal: float) -> None:
        """Move the samples of the mask `going` (n,) to their answers, in place."""


@dataclass(frozen=True, kw_only=True)
class ClassicalArrowHurwicz(ConstrainedMethod):
    """The two updates of the paper for fixed credences, both from the same iterate.

    x      <- x - eta_x (2 (x - x0) + sum_k lambda_k grad l_k)
    lambda <- [lambda + eta_l (l + c)]_+

    Attributes:
        primal_step: eta_x.
        dual_step: eta_l.
        steps: most steps a sample may take.
        initial: the first multipliers, the same for every class.

    Example: pass it as `method` of `solve_constrained`.
    """

    primal_step: float = 1e-2
    dual_step: float = 1e-2
    steps: int = 5000
    initial: float = 1.0

    def __post_init__(self) -> None:
        positive("primal_step", self.primal_step)
        positive("dual_step", self.dual_step)
        whole("steps", self.steps)
        positive("initial", self.initial)

    def improve(self, problem: AugmentedProblem, at: Iterate, going: Tensor, goal: float) -> None:
        rows = going.nonzero().squeeze(1)
        at.multipliers[rows] = self.initial
        for step in range(self.steps + 1):  # once more to evaluate the last point
            if len(rows) == 0:
                return
            part, multipliers = problem.select(rows), at.multipliers[rows]
            point = part.evaluate(at.x[rows], multipliers)
            at.losses[rows] = point.losses
            at.stationarity[rows] = part.relative_stationarity(point)
            at.passes[rows] += 1
            finite = torch.isfinite(point.objective)
            if step == self.steps:
                return
            kept = (at.residual(problem) > goal)[rows] & finite
            rows = rows[kept]
            at.x[rows] = part.project(point.x - self.primal_step * point.gradient)[kept]
            ascent = multipliers + self.dual_step * part.excess(point.losses)
            at.multipliers[rows] = ascent.clamp(min=0)[kept]


@dataclass(frozen=True, kw_only=True)
class AugmentedLagrangian(ConstrainedMethod):
    """The multipliers follow the violations, and a growing penalty makes violations expensive.

    It begins with a few L-BFGS steps. Where they stop without being stationary the model is rough,
    and one annealed descent follows, in which the multipliers move every third step: between kinks
    it finds nearer inputs than L-BFGS. Then come rounds of L-BFGS, each of which ends with an
    update of the multipliers. A sample that meets kinks only there continues in short rounds, and
    is annealed only if these do not meet the credences. No answer is further away, by more than a
    share of .002, than the end of an earlier round that met them.

    Attributes:
        rounds: most updates of the multipliers.
        first_steps: L-BFGS steps of the first round. With few, a smooth model that is slow at first
            is taken for a rough one, and its answers are further away.
        anneal_steps: steps of the annealed descent on rough models.
        inner_steps: L-BFGS steps between two updates.
        rough_steps: the same after an annealed descent.

    Example: see `solve_constrained`, whose default it is.
    """

    rounds: int = 40
    first_steps: int = 36
    anneal_steps: int = 100
    inner_steps: int = 30
    rough_steps: int = 8

    def __post_init__(self) -> None:
        for name in ("rounds", "first_steps", "anneal_steps", "inner_steps", "rough_steps"):
            whole(name, getattr(self, name))

    def improve(self, problem: AugmentedProblem, at: Iterate, going: Tensor, goal: float) -> None:
        search = Rounds(replace(problem, penalty=first_penalty(problem)), at, goal)
        at.passes[going] += 1
        search.round(going.nonzero().squeeze(1), self.first_steps)
        rough = going & (at.stationarity > LOOKS_SMOOTH)
        search.settle(going & ~rough, self.rounds, self.inner_steps, rough=False)
        late = going & ~rough & ~at.hopeless & (at.violation(problem) > goal)
        before, penalty = at.copy(), search.problem.penalty
        search.settle(late, self.rounds, self.rough_steps, rough=True)
        late &= ~search.was_met()
        search.restart(late, before, penalty)
        search.anneal(rough | late, self.anneal_steps)
        search.settle(rough | late, self.rounds, self.rough_steps, rough=True)
        lost = at.violation(problem) > 2 * before.violation(problem).clamp(min=goal)
        at.return_to(before, (rough | late) & lost)
        search.return_to_nearest(going)


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
