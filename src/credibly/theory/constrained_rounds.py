"""The paper's problem (PI): the nearest input that meets given credences.

    r(c) = min_x |x - x0|^2   subject to   l_k(phi(x)) <= -c_k  for every class k

Its augmented Lagrangian has the form of the fit-risk problem: for given duals and penalty the
solvers of this package minimise it unchanged, here in rounds of L-BFGS and an annealed descent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from credibly.problem.fit_risk import FitRiskProblem, Point
from credibly.problem.rows import Rows
from credibly.solve.gradient_descent import annealed
from credibly.solve.lbfgs import LBFGS
from credibly.solve.loop import solve
from credibly.types import norm


@dataclass(frozen=True, kw_only=True)
class AugmentedProblem(FitRiskProblem):
    """|x - x0|^2 + sum_k [lambda_k + rho (l_k + c_k)]_+^2 / 2 rho for each sample.

    Attributes:
        credences: c (n, K).
        duals: lambda (n, K), fixed during the minimisation over x.
        penalty: rho (n, 1).
    """

    credences: Tensor
    duals: Tensor
    penalty: Tensor

    def select(self, rows: Tensor | slice) -> Self:
        names = ("credences", "duals", "penalty")
        return replace(super().select(rows), **{name: getattr(self, name)[rows] for name in names})

    def multipliers(self, losses: Tensor) -> Tensor:
        """The duals of the next round."""
        return (self.duals + self.penalty * self.excess(losses)).clamp(min=0)

    def misfit(self, losses: Tensor) -> Tensor:
        return (self.multipliers(losses).square() / (2 * self.penalty)).sum(1)

    def excess(self, losses: Tensor) -> Tensor:
        """How far each loss is above what its credence allows (n, K)."""
        return losses + self.credences


_MOST_GROWTH = 1e8  # of the penalty; a violation that remains then is taken for infeasible
_NEARLY_MET = 1e-3  # share of the first violation below which the rest is rounding
_STILL = 2e-3  # the rounds end when the risk changes by less and the gradient does not fall
_ROUGH = 1e-3  # relative stationarity far above that of smooth models
_ANNEAL_GROWTH = 30.0  # of the penalty over an annealed descent
_IDLE = 3  # rounds without progress after which a model is taken for rough
LOOKS_SMOOTH = 0.05  # relative stationarity after the first steps, below which it is smooth


@dataclass
class Iterate(Rows):
    """The state of the search, one row per sample.

    Attributes:
        x: the inputs (n, ...).
        losses: at x (n, K).
        multipliers: lambda (n, K).
        stationarity: of the Lagrangian, relative to the lengths of its two parts (n,).
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
        """The largest of violation, slackness and stationarity (n,)."""
        excess = problem.excess(self.losses).abs()
        slack = torch.where(self.multipliers > 0, excess, 0.0)  # infinite where nothing is asked
        worst = torch.maximum(self.violation(problem), slack.amax(1))
        return torch.maximum(worst, self.stationarity)

    def take(self, rows: Tensor, other: Iterate) -> None:
        """Take point, losses, multipliers and residual of the other where `rows` is true."""
        for name in ("x", "losses", "multipliers", "stationarity"):
            getattr(self, name)[rows] = getattr(other, name)[rows]

    def return_to(self, other: Iterate, rows: Tensor) -> None:
        """Go back to the other where the mask `rows` is true; it is then not hopeless."""
        self.take(rows, other)
        self.hopeless &= ~rows


def starting_point(problem: AugmentedProblem, losses: Tensor, hopeless: Tensor) -> Iterate:
    """The state before the first step; credences that are met at x0 are solved there."""
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
    """Ten times the curvature of the risk per unit of loss, from one pass (n, 1)."""
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
        self.least_risk = torch.full_like(
            problem.risk(at.x), torch.inf
        )  # of the points that met the credences

    def round(self, rows: Tensor, steps: int) -> None:
        """Minimise for fixed duals, then move the duals."""
        part = self.problem.select(rows)
        inner = LBFGS(steps=steps, tolerance=self.goal, patience=8, decrease=1e-6)
        found = solve(part, inner, chunk_size=len(rows), start=self.at.x[rows])
        self.at.passes[rows] += found.passes + 1
        self._note(rows, part, part.evaluate(found.x))

    def anneal(self, going: Tensor, steps: int) -> None:
        """One descent with falling steps, during which the duals move and the penalty grows."""
        rows = going.nonzero().squeeze(1)
        if len(rows) == 0:
            return
        part = self.problem.select(rows)
        descent = annealed(steps, 0.8, momentum=0.5, forgetting=0.7)
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
        """Rounds until every sample is solved, makes no progress or is hopeless."""
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
        if not rough:  # near machine precision a round can lose what earlier ones reached
            self.at.take(going & ~self.at.hopeless, best)

    def _give_up(self, largest: Tensor, violation: Tensor) -> Tensor:
        """Samples still violated at the largest penalty: hopeless, unless nearly met."""
        given_up = largest & (violation > self.goal)
        searched = ~self.at.stationarity.isnan()  # there was a gradient
        self.at.hopeless |= given_up & searched & (violation > self.nearly_met)
        return given_up

    def _among_kinks(self, violation: Tensor) -> Tensor:
        """Not stationary, and not because of rounding, since the violation is still large."""
        return (self.at.stationarity > LOOKS_SMOOTH) & (violation > self.nearly_met)

    def _worth_growing(self, violation: Tensor, *, rough: bool) -> Tensor:
        """Where a larger penalty helps: where the minimisation is more exact than the constraints.

        On kinks it never is exact, and the penalty must grow anyway.
        """
        rounding = 2 * torch.finfo(violation.dtype).eps ** 0.5
        above: Tensor = violation > max(self.goal, rounding)
        exact = self.at.stationarity < violation
        return torch.logical_and(above, exact) if not rough else above

    def _note(self, rows: Tensor, part: AugmentedProblem, point: Point) -> None:
        """Keep a point that was evaluated with the duals of `part`, and update the duals."""
        self.at.x[rows], self.at.losses[rows] = point.x, point.losses
        self.at.stationarity[rows] = part.relative_stationarity(point)
        self.at.multipliers[rows] = part.multipliers(point.losses)
        self.problem = replace(self.problem, duals=self.at.multipliers.clone())
        risk, met = self.problem.risk(self.at.x), self.at.violation(self.problem) <= self.goal
        nearer = met & (risk < self.least_risk)
        self.nearest.take(nearer, self.at)
        self.least_risk = torch.where(nearer, risk, self.least_risk)

    def was_met(self) -> Tensor:
        """Samples (n,) for which some point met the credences."""
        return self.least_risk.isfinite()

    def restart(self, rows: Tensor, at: Iterate, penalty: Tensor) -> None:
        """Continue from `at` with that penalty where the mask `rows` is true."""
        self.at.return_to(at, rows)
        penalty = torch.where(rows[:, None], penalty, self.problem.penalty)
        self.problem = replace(self.problem, penalty=penalty, duals=self.at.multipliers.clone())

    def return_to_nearest(self, going: Tensor) -> None:
        """Replace an inexact answer by a nearer point that met the credences."""
        unmet = self.at.violation(self.problem) > self.goal
        inexact = self.at.residual(self.problem) > self.goal
        further = self.problem.risk(self.at.x) > (1 + _STILL) * self.least_risk
        worse = self.was_met() & (unmet | (inexact & further))
        self.at.return_to(self.nearest, going & worse)

    def _stands_still(self, risk: Tensor, stationarity: Tensor) -> Tensor:
        """Feasible and unchanged by a round, though not stationary: the normal end on kinks."""
        now = self.problem.risk(self.at.x)
        feasible = self.at.violation(self.problem) <= self.goal
        still = ((now - risk).abs() <= _STILL * now) & feasible
        rough = self.at.stationarity > max(self.goal, _ROUGH)
        return still & rough & (self.at.stationarity > 0.5 * stationarity)
