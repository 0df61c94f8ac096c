"""Methods for the constrained problem (PI): the nearest input that meets given credences."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from credibly._validation import positive, whole
from credibly.theory.constrained_problem import AugmentedProblem
from credibly.theory.constrained_rounds import LOOKS_SMOOTH, Iterate, Rounds, first_penalty


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
