"""The search for given credences: rounds of L-BFGS, an annealed descent, and what is kept."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from credibly.problem.fit_risk import Point
from credibly.solve.gradient_descent import GradientDescent
from credibly.solve.lbfgs import LBFGS
from credibly.solve.loop import solve
from credibly.theory.constrained_problem import AugmentedProblem
from credibly.types import norm

_MOST_GROWTH = 1e8
"""Times the first penalty; a violation that survives this is taken for infeasible."""

_NEARLY_MET = 1e-3
"""Share of the first violation; one that fell below it proves nothing infeasible, only rounding."""

_STILL = 2e-3
"""A round that changes the risk by a smaller share, and does not near stationarity, is the last."""

_ROUGH = 1e-3
"""Relative stationarity that smooth models go well below."""

_ANNEAL_GROWTH = 30.0
"""Of the penalty over an annealed descent."""

LOOKS_SMOOTH = 0.05
"""Relative stationarity after the first steps below which no kinks are in the way."""

_IDLE = 3
"""Rounds in a row that bring a sample no nearer to its goal, after which kinks are in the way."""


@dataclass
class Iterate:
    """Where a batch stands, one row a sample.

    Attributes:
        x: the inputs (n, ...).
        losses: at x (n, K).
        multipliers: lambda (n, K).
        stationarity: of the Lagrangian, relative to the pulls that balance in it (n,).
        hopeless: samples (n,) that cannot be made feasible.
        passes: spent (n,).
    """

    x: Tensor
    losses: Tensor
    multipliers: Tensor
    stationarity: Tensor
    hopeless: Tensor
    passes: Tensor

    def violation(self, problem: AugmentedProblem) -> Tensor:
        """Largest l_k + c_k above zero (n,)."""
        return problem.excess(self.losses).amax(1).clamp(min=0)

    def residual(self, problem: AugmentedProblem) -> Tensor:
        """How far from feasible, stationary and complementary, whichever is most (n,)."""
        excess = problem.excess(self.losses).abs()
        slack = torch.where(self.multipliers > 0, excess, 0.0)  # infinite where nothing is asked
        worst = torch.maximum(self.violation(problem), slack.amax(1))
        return torch.maximum(worst, self.stationarity)

    def copy(self) -> Iterate:
        """The same values in tensors of their own."""
        return Iterate(*(getattr(self, f.name).clone() for f in fields(self)))

    def take(self, rows: Tensor, other: Iterate) -> None:
        """Point, losses, multipliers and residual of the other where the mask `rows` is true."""
        for name in ("x", "losses", "multipliers", "stationarity"):
            getattr(self, name)[rows] = getattr(other, name)[rows]

    def return_to(self, other: Iterate, rows: Tensor) -> None:
        """Where the mask `rows` is true, the other again: what was found since speaks not of it."""
        self.take(rows, other)
        self.hopeless &= ~rows


def starting_point(problem: AugmentedProblem, losses: Tensor, hopeless: Tensor) -> Iterate:
    """Everything before the first step; what is met at x0 already is solved there."""
    free = (problem.excess(losses) <= 0).all(1)
    return Iterate(
        x=problem.x0.clone(),
        losses=losses.clone(),
        multipliers=torch.zeros_like(losses),
        stationarity=torch.where(free, 0.0, torch.inf).to(losses),
        hopeless=hopeless.clone(),
        passes=torch.full((len(losses),), 1 / 3, dtype=torch.float64, device=losses.device),
    )


def first_penalty(problem: AugmentedProblem) -> Tensor:
    """Ten times the curvature that a unit of loss is worth, from one pass (n, 1)."""
    point = problem.evaluate(problem.x0)
    excess = problem.excess(point.losses).clamp(min=0)
    pull, tiny = norm(point.gradient), torch.finfo(excess.dtype).tiny
    sensitivity = pull.square() / excess.square().sum(1).clamp(min=tiny)
    return torch.where(pull > 0, 20 / sensitivity.clamp(min=tiny), 1.0)[:, None]


class Rounds:
    """The search of one batch, every sample with its own penalty."""

    def __init__(self, problem: AugmentedProblem, at: Iterate, goal: float) -> None:
        self.problem, self.at, self.goal = problem, at, goal
        self.nearly_met = _NEARLY_MET * at.violation(problem)
        self.nearest = at.copy()
        self.least_risk = torch.full_like(problem.risk(at.x), torch.inf)  # of all that met them

    def round(self, rows: Tensor, steps: int) -> None:
        """Minimise for fixed duals, then move the duals."""
        part = self.problem.select(rows)
        inner = LBFGS(steps=steps, tolerance=self.goal, patience=8, decrease=1e-6)
        found = solve(part, inner, chunk_size=len(rows), start=self.at.x[rows])
        self.at.passes[rows] += found.passes + 1
        self._note(rows, part, part.evaluate(found.x))

    def anneal(self, going: Tensor, steps: int) -> None:
        """One descent with falling steps; the duals move and the penalty grows along it."""
        rows = going.nonzero().squeeze(1)
        if len(rows) == 0:
            return
        part = self.problem.select(rows)
        descent = GradientDescent(
            steps=steps, step=0.8, momentum=0.5, forgetting=0.7, scaling="adam",
            schedule="cosine", patience=None,
        )  # fmt: skip
        growth = _ANNEAL_GROWTH ** (3 / steps)
        state = descent.begin(part, part.evaluate(self.at.x[rows]))
        for count in range(1, steps + 1):
            state = descent.advance(part, state)
            if count % 3 == 0:
                duals = part.multipliers(state.point.losses)
                part = replace(part, duals=duals, penalty=growth * part.penalty)
        sane = torch.isfinite(state.point.objective)
        penalty = self.problem.penalty.clone()
        penalty[rows[sane]] = part.penalty[sane]
        self.problem = replace(self.problem, penalty=penalty)
        self.at.passes[rows] += steps + 1
        self._note(rows[sane], part.select(sane), state.point.select(sane))

    def settle(self, going: Tensor, rounds: int, steps: int, *, rough: bool) -> None:
        """Rounds until every sample is solved, stands still or turns out hopeless."""
        first, violation = self.problem.penalty, self.at.violation(self.problem)
        settled, best = torch.zeros_like(going), self.at.copy()
        idle = torch.zeros_like(going, dtype=torch.long)
        for _ in range(rounds):
            done = (self.at.residual(self.problem) <= self.goal) | self.at.hopeless | settled
            rows = (going & ~done).nonzero().squeeze(1)
            if len(rows) == 0:
                break
            was = self.problem.risk(self.at.x), self.at.stationarity.clone()
            self.round(rows, steps)
            now = self.at.violation(self.problem)
            settled |= going & self._stands_still(*was)
            slow = going & (now > 0.25 * violation) & self._worth_growing(now, rough=rough)
            grown = torch.where(slow[:, None], 5 * self.problem.penalty, self.problem.penalty)
            self.problem, violation = replace(self.problem, penalty=grown), now
            settled |= self._give_up(going & (grown > _MOST_GROWTH * first)[:, 0], now)
            better = self.at.residual(self.problem) < best.residual(self.problem)
            best.take(going & better, self.at)
            idle = torch.where(better, 0, idle + 1)
            if not rough:
                settled |= going & (idle >= _IDLE) & self._among_kinks(now)
        if not rough:  # near the precision of the numbers a round can lose what others had reached
            self.at.take(going & ~self.at.hopeless, best)

    def _give_up(self, dear: Tensor, violation: Tensor) -> Tensor:
        """Samples whose violation outlived the dearest penalty: hopeless, unless nearly met."""
        given_up = dear & (violation > self.goal)
        searched = ~self.at.stationarity.isnan()  # without a gradient nothing was
        self.at.hopeless |= given_up & searched & (violation > self.nearly_met)
        return given_up

    def _among_kinks(self, violation: Tensor) -> Tensor:
        """Short of stationarity, and not for want of digits: then a violation is still large."""
        return (self.at.stationarity > LOOKS_SMOOTH) & (violation > self.nearly_met)

    def _worth_growing(self, violation: Tensor, *, rough: bool) -> Tensor:
        """Not where the minimisation is the less exact part: a larger penalty would add to that.

        On kinks it never is exact, and the penalty must grow all the same.
        """
        rounding = 2 * torch.finfo(violation.dtype).eps ** 0.5
        above: Tensor = violation > max(self.goal, rounding)
        exact = self.at.stationarity < violation
        return torch.logical_and(above, exact) if not rough else above

    def _note(self, rows: Tensor, part: AugmentedProblem, point: Point) -> None:
        """Keep a point that was evaluated with the duals of `part`, and the duals after it."""
        self.at.x[rows], self.at.losses[rows] = point.x, point.losses
        self.at.stationarity[rows] = part.relative_stationarity(point)
        self.at.multipliers[rows] = part.multipliers(point.losses)
        self.problem = replace(self.problem, duals=self.at.multipliers.clone())
        risk, met = self.problem.risk(self.at.x), self.at.violation(self.problem) <= self.goal
        nearer = met & (risk < self.least_risk)
        self.nearest.take(nearer, self.at)
        self.least_risk = torch.where(nearer, risk, self.least_risk)

    def was_met(self) -> Tensor:
        """Samples (n,) whose credences were met by some point."""
        return self.least_risk.isfinite()

    def restart(self, rows: Tensor, at: Iterate, penalty: Tensor) -> None:
        """Go on from there, with that penalty, where the mask `rows` is true."""
        self.at.return_to(at, rows)
        penalty = torch.where(rows[:, None], penalty, self.problem.penalty)
        self.problem = replace(self.problem, penalty=penalty, duals=self.at.multipliers.clone())

    def return_to_nearest(self, going: Tensor) -> None:
        """Give up an answer that is not exact for a nearer point that met the credences."""
        unmet = self.at.violation(self.problem) > self.goal
        inexact = self.at.residual(self.problem) > self.goal
        further = self.problem.risk(self.at.x) > (1 + _STILL) * self.least_risk
        worse = self.was_met() & (unmet | (inexact & further))
        self.at.return_to(self.nearest, going & worse)

    def _stands_still(self, risk: Tensor, stationarity: Tensor) -> Tensor:
        """Feasible, and a round changed nothing: so it ends on kinks, short of stationarity."""
        now = self.problem.risk(self.at.x)
        feasible = self.at.violation(self.problem) <= self.goal
        still = ((now - risk).abs() <= _STILL * now) & feasible
        rough = self.at.stationarity > max(self.goal, _ROUGH)
        return still & rough & (self.at.stationarity > 0.5 * stationarity)
