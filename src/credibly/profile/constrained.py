"""`solve_constrained`: the smallest movement that meets given credences, and its prices."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import Enum

import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import losses_only
from credibly.model.inputs import as_inputs, finite_rows
from credibly.problem.constrained import AugmentedProblem
from credibly.problem.weights import as_numbers
from credibly.profile.arguments import check_chunk_size
from credibly.profile.credibility import undisturbed
from credibly.solve.lbfgs import LBFGS
from credibly.solve.loop import solve
from credibly.types import Array, norm

_MOST_GROWTH = 1e8
"""Times the first penalty; a violation that survives this is taken for infeasible."""


_STILL = 2e-3
"""A round that changes the risk by a smaller share, and does not near stationarity, is the last."""


_ROUGH = 1e-3
"""Relative stationarity that smooth models go well below."""


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
        "The rounds ran out, or the input was not finite. Raise `rounds` or `inner_steps`."
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
    x0: Array,
    credences: Array,
    *,
    tolerance: float | None = None,
    rounds: int = 40,
    inner_steps: int = 30,
    chunk_size: int = 128,
) -> ConstrainedSolution:
    """Find the input nearest to x0 whose losses are at most -c, by an augmented Lagrangian.

    Args:
        clf: the classifier.
        x0: inputs (n, ...).
        credences: c (n, K). A positive one cannot be met, since losses are never negative: such
            samples are infeasible, with infinite risk.
        tolerance: largest violation and relative stationarity of a solved sample; None: the
            square root of the precision.
        rounds: most updates of the multipliers.
        inner_steps: most L-BFGS steps between two updates.
        chunk_size: samples solved at a time.
    """
    start = as_inputs(clf, x0, name="x0")
    check_chunk_size(chunk_size)
    with undisturbed(start) as start:
        check_model(clf, start)
        c = _credences(clf, start, credences)
        goal = torch.finfo(start.dtype).eps ** 0.5 if tolerance is None else tolerance
        inner = LBFGS(steps=inner_steps, tolerance=goal, patience=8, decrease=1e-6)
        return _joined(
            [
                _Search(clf, part, wanted, inner, goal).run(rounds)
                for part, wanted in zip(
                    torch.split(start, chunk_size), torch.split(c, chunk_size), strict=True
                )
            ]
        )


def _joined(parts: list[ConstrainedSolution]) -> ConstrainedSolution:
    tensors = {
        f.name: torch.cat([getattr(part, f.name) for part in parts])
        for f in fields(ConstrainedSolution)
        if f.name != "status"
    }
    return ConstrainedSolution(**tensors, status=sum((part.status for part in parts), ()))


class _Search:
    """The rounds of the augmented Lagrangian, every sample with its own penalty."""

    def __init__(
        self, clf: Classifier, x0: Tensor, credences: Tensor, inner: LBFGS, goal: float
    ) -> None:
        self.inner, self.goal = inner, goal
        self.finite = finite_rows(x0)
        clean = torch.where(self.finite.reshape(-1, *[1] * (x0.dim() - 1)), x0, 0.0)
        losses = losses_only(clf, clean)
        self.problem = AugmentedProblem(
            clf,
            clean,
            torch.ones_like(losses[0]),
            credences=credences,
            duals=torch.zeros_like(losses),
            penalty=torch.ones_like(losses[:, :1]),
        )
        self.problem = replace(self.problem, penalty=self._first_penalty())
        self.x, self.losses = clean.clone(), losses
        self.hopeless = (credences > 0).any(1)
        self.stationarity = torch.full_like(losses[:, 0], torch.inf)
        self.passes = torch.full((len(x0),), 4 / 3, dtype=torch.float64, device=x0.device)

    def _first_penalty(self) -> Tensor:
        """Ten times the curvature that a unit of loss is worth, from one pass."""
        point = self.problem.evaluate(self.problem.x0)
        excess = self.problem.excess(point.losses).clamp(min=0)
        pull, tiny = norm(point.gradient), torch.finfo(excess.dtype).tiny
        sensitivity = pull.square() / excess.square().sum(1).clamp(min=tiny)
        return torch.where(pull > 0, 20 / sensitivity.clamp(min=tiny), 1.0)[:, None]

    def run(self, rounds: int) -> ConstrainedSolution:
        first = self.problem.penalty
        violation = self._violation()
        self.stationarity = torch.where(violation <= 0, 0.0, self.stationarity)
        exhausted, settled = torch.zeros_like(self.hopeless), torch.zeros_like(self.hopeless)
        for _ in range(rounds):
            going = self.finite & ~self.hopeless & ~exhausted & ~settled & ~self._done()
            rows = going.nonzero().squeeze(1)
            if len(rows) == 0:
                break
            was = self.problem.risk(self.x), self.stationarity.clone()
            self._round(rows)
            settled |= going & self._settled(*was)
            before, violation = violation, self._violation()
            slow = going & (violation > 0.25 * before) & (violation > self.goal)
            grown = torch.where(slow[:, None], 5 * self.problem.penalty, self.problem.penalty)
            self.problem = replace(self.problem, penalty=grown)
            exhausted = (grown > _MOST_GROWTH * first)[:, 0] & (violation > self.goal)
        return self._solution(exhausted)

    def _round(self, rows: Tensor) -> None:
        """Minimise for fixed duals, then move the duals."""
        part = self.problem.select(rows)
        found = solve(part, self.inner, chunk_size=len(rows), start=self.x[rows])
        point = part.evaluate(found.x)
        self.x[rows], self.losses[rows] = found.x, point.losses
        self.stationarity[rows] = part.relative_stationarity(point)
        self.passes[rows] += found.passes + 1
        duals = self.problem.duals.clone()
        duals[rows] = part.multipliers(point.losses)
        self.problem = replace(self.problem, duals=duals)

    def _settled(self, risk: Tensor, stationarity: Tensor) -> Tensor:
        """Feasible, and a round changed nothing: so it ends on kinks, short of stationarity."""
        now = self.problem.risk(self.x)
        still = ((now - risk).abs() <= _STILL * now) & (self._violation() <= self.goal)
        rough = self.stationarity > max(self.goal, _ROUGH)
        return still & rough & (self.stationarity > 0.5 * stationarity)

    def _violation(self) -> Tensor:
        return self.problem.excess(self.losses).amax(1).clamp(min=0)

    def _done(self) -> Tensor:
        slack = self.problem.excess(self.losses).abs() * (self.problem.duals > 0)
        return (
            (self._violation() <= self.goal)
            & (self.stationarity <= self.goal)
            & (slack.amax(1) <= self.goal)
        )

    def _solution(self, exhausted: Tensor) -> ConstrainedSolution:
        infeasible = self.finite & (self.hopeless | exhausted)
        # on a kink the gradient does not vanish; the credences are met all the same
        solved = self.finite & ~infeasible & (self._violation() <= self.goal)
        status = tuple(
            Feasibility.INFEASIBLE if bad else Feasibility.SOLVED if good else Feasibility.UNSOLVED
            for bad, good in zip(infeasible.tolist(), solved.tolist(), strict=True)
        )
        risk = torch.where(infeasible, torch.inf, self.problem.risk(self.x))
        return ConstrainedSolution(
            x=self.x,
            risk=torch.where(self.finite, risk, torch.nan),
            multipliers=self.problem.duals,
            losses=self.losses,
            violation=self._violation(),
            stationarity=self.stationarity,
            status=status,
            passes=self.passes,
        )


def _credences(clf: Classifier, x0: Tensor, credences: Array) -> Tensor:
    c = as_numbers(credences, "credences", x0)
    usable = torch.where(torch.isfinite(x0[:1]), x0[:1], 0.0)
    expected = (len(x0), losses_only(clf, usable).shape[1])
    if tuple(c.shape) != expected or bool(c.isnan().any()):
        raise InvalidArgumentError(
            "credences",
            expected=f"numbers of shape {expected}",
            came=f"shape {tuple(c.shape)}" + (" with NaN" if bool(c.isnan().any()) else ""),
            remedy="Pass one credence a sample and class, such as profile.credibility.",
        )
    return c
