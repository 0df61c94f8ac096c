"""L-BFGS on a batch of problems, one trial point per step for every sample.

A sample whose trial is refused shortens its step and tries again in the next step of the loop,
together with the samples that go on: every step is one pass over the whole batch, and no sample
waits for another's line search. The inverse Hessian is applied in its compact form (Byrd, Nocedal,
Schnabel 1994), so that a step reads the memory twice, as two batched products.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from credibly._validation import whole
from credibly.problem.fit_risk import FitRiskProblem, Point
from credibly.problem.rows import Rows
from credibly.solve.base import Stage, State, fresh, reach, rounding_of
from credibly.types import finite_rows, inner, norm, per_sample

_SUFFICIENT = 1e-4  # Armijo's share of the predicted decrease
_LEAST_CURVATURE = 0.2  # of a pair; the risk alone has curvature 2 everywhere
_FIRST_SHARE = 0.4  # first step, relative to the likely distance; too long is worse than too short
_MOST_TRIALS = 12


@dataclass(frozen=True)
class Memory(Rows):
    """Curvature pairs in a ring of m slots; unused slots are zero."""

    pairs: Tensor  # (n, 2m, D): m steps s, then m gradient changes y
    step_change: Tensor  # (n, m, m): s_i . y_j
    change_change: Tensor  # (n, m, m): y_i . y_j
    count: Tensor  # (n,): pairs stored so far

    @staticmethod
    def empty(x: Tensor, slots: int) -> Memory:
        """Memory for samples shaped like `x`."""
        flat = x.flatten(1)
        square = flat.new_zeros(len(flat), slots, slots)
        count = torch.zeros(len(flat), dtype=torch.long, device=x.device)
        return Memory(
            flat.new_zeros(len(flat), 2 * slots, flat.shape[1]), square, square.clone(), count
        )

    @property
    def slots(self) -> int:
        """How many pairs fit."""
        return self.step_change.shape[1]

    def remember(self, step: Tensor, change: Tensor, rows: Tensor) -> Memory:
        """Store a pair (n, D), (n, D) for the samples that the mask `rows` names; in place."""
        every, slot = torch.arange(len(rows), device=rows.device), self.count % self.slots
        both, kept = torch.stack([step, change], dim=1), torch.stack([slot, self.slots + slot], 1)
        old = self.pairs[every[:, None], kept]
        self.pairs[every[:, None], kept] = torch.where(rows[:, None, None], both, old)
        products = torch.bmm(self.pairs, both.mT)
        with_steps, with_changes = products[:, : self.slots], products[:, self.slots :]
        for square, place, values in (
            (self.step_change, (every, slot), with_changes[:, :, 0]),
            (self.step_change, (every, slice(None), slot), with_steps[:, :, 1]),
            (self.change_change, (every, slot), with_changes[:, :, 1]),
            (self.change_change, (every, slice(None), slot), with_changes[:, :, 1]),
        ):
            square[place] = torch.where(rows[:, None], values, square[place])
        return replace(self, count=self.count + rows)

    def apply(self, gradient: Tensor, first_scale: Tensor) -> Tensor:
        """Inverse Hessian times gradient (n, D); `first_scale` serves samples without pairs."""
        slots = self.slots
        age = (self.count[:, None] + torch.arange(slots, device=self.count.device)) % slots
        upper = _in_order(self.step_change, age).triu()
        known = upper.diagonal(dim1=1, dim2=2)
        latest = _in_order(self.change_change, age)
        scale = torch.where(
            self.count > 0,
            known[:, -1] / latest[:, -1, -1].clamp(min=torch.finfo(known.dtype).tiny),
            first_scale,
        )[:, None]
        unused = torch.diag_embed((known == 0).to(upper))
        dots = torch.bmm(self.pairs, gradient.unsqueeze(2)).squeeze(2)
        p, q = dots[:, :slots].gather(1, age), dots[:, slots:].gather(1, age)
        u = _solve(upper + unused, p)
        inside = known * u + scale * (torch.einsum("nij,nj->ni", latest, u) - q)
        a = _solve((upper + unused).mT, inside, upper=False)
        coefficients = torch.zeros_like(dots)
        coefficients[:, :slots].scatter_(1, age, a)
        coefficients[:, slots:].scatter_(1, age, -scale * u)
        return scale * gradient + torch.bmm(coefficients.unsqueeze(1), self.pairs).squeeze(1)


def _in_order(square: Tensor, age: Tensor) -> Tensor:
    """Rows and columns from the oldest pair to the latest."""
    slots = age.shape[1]
    rows = square.gather(1, age[:, :, None].expand(-1, -1, slots))
    return rows.gather(2, age[:, None, :].expand(-1, slots, -1))


def _solve(triangle: Tensor, right: Tensor, *, upper: bool = True) -> Tensor:
    solved: Tensor = torch.linalg.solve_triangular(triangle, right.unsqueeze(2), upper=upper)
    return solved.squeeze(2)


@dataclass(frozen=True)
class LBFGSState(State):
    """The search in progress: from `point` along `direction`, now at `length`."""

    direction: Tensor
    length: Tensor
    trials: Tensor
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class LBFGS(Stage[LBFGSState]):
    """Limited-memory BFGS with Armijo's rule: fast and exact on smooth models.

    Attributes:
        steps, tolerance, decrease, patience: when a sample ends; see `credibly.solve.base.Stage`.
        memory: curvature pairs kept; each costs two inputs of memory per sample.

    Example: pass it as `solver` of `credibly.credibility`; see docs/explanation/solvers.md.
    """

    memory: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("memory", self.memory)

    def begin(self, problem: FitRiskProblem, point: Point) -> LBFGSState:
        memory = Memory.empty(point.x, self.memory)
        return LBFGSState(
            **fresh(point),
            direction=_direction(problem, point, memory),
            length=torch.ones_like(point.objective),
            trials=torch.zeros_like(point.objective),
            memory=memory,
        )

    def advance(self, problem: FitRiskProblem, state: LBFGSState) -> LBFGSState:
        old = state.point
        trial = problem.evaluate(
            problem.project(old.x + per_sample(state.length, old.x) * state.direction)
        )
        predicted = inner(problem.free_gradient(old), trial.x - old.x)
        goal = old.objective + _SUFFICIENT * predicted + rounding_of(old)
        accepted = (trial.objective <= goal) & finite_rows(trial.gradient)
        point = old.replaced(trial, accepted)
        memory = state.memory.remember(*_pair(old, trial), accepted)
        turned = _direction(problem, point, memory)
        trials = torch.where(accepted, 0.0, state.trials + 1)
        return LBFGSState(
            point=point,
            visited=trial,
            stuck=trials >= _MOST_TRIALS,
            cost=torch.ones_like(state.cost),
            direction=torch.where(per_sample(accepted, old.x), turned, state.direction),
            length=torch.where(accepted, 1.0, _shorter(state.length, old, trial, predicted)),
            trials=trials,
            memory=memory,
        )


def _pair(old: Point, new: Point) -> tuple[Tensor, Tensor]:
    """Step and change of gradient (n, D), with at least `_LEAST_CURVATURE`."""
    step = (new.x - old.x).flatten(1)
    change = (new.gradient - old.gradient).flatten(1)
    squared = step.square().sum(1)
    lacking = _LEAST_CURVATURE * squared - (step * change).sum(1)
    lift = lacking.clamp(min=0) / squared.clamp(min=torch.finfo(step.dtype).tiny)
    return step, change + lift[:, None] * step


def _direction(problem: FitRiskProblem, point: Point, memory: Memory) -> Tensor:
    """Minus the inverse Hessian times the gradient, or plain descent where that fails."""
    slope = problem.free_gradient(point)
    tiny = torch.finfo(point.x.dtype).tiny
    first = _FIRST_SHARE * reach(problem, point) / norm(slope).clamp(min=tiny)
    flat = slope.flatten(1)
    direction = -memory.apply(flat, first).reshape_as(slope)
    direction = direction.masked_fill(slope == 0, 0.0) if problem.bounds else direction
    descends = inner(slope, direction) < 0  # false for NaN, too
    plain = -per_sample(first, slope) * slope
    return torch.where(per_sample(descends, slope), direction, plain)


def _shorter(length: Tensor, old: Point, trial: Point, predicted: Tensor) -> Tensor:
    """Minimiser of the parabola through both values and the slope, within a tenth and a half."""
    rise = trial.objective - old.objective - predicted
    parabola = -predicted * length / (2 * rise)
    parabola = torch.where(torch.isfinite(parabola), parabola, 0.0)
    return torch.maximum(torch.minimum(parabola, 0.5 * length), 0.1 * length)
