"""Algorithm 1 of the paper: descent in x, ascent in the multipliers.

x      <- x - eta_x (2 (x - x0) + sum_k lambda_k grad l_k)
lambda <- [lambda + eta_l (l - w lambda / 2)]_+
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from credibly._validation import choice, positive, require
from credibly.problem.fit_risk import FitRiskProblem, Point
from credibly.solve.base import CHOICE_REMEDY, Stage, State, fresh


@dataclass(frozen=True)
class SaddleState(State):
    """The next inputs to evaluate, and the multipliers to evaluate them with."""

    x: Tensor
    multipliers: Tensor


@dataclass(frozen=True, kw_only=True)
class ArrowHurwicz(Stage[SaddleState]):
    """The solver of the paper, with the dual step of its text; for comparisons and for theory.

    Attributes:
        steps, tolerance, decrease, patience: when a sample ends; see `credibly.solve.base.Stage`.
        primal_step: eta_x.
        dual_step: eta_l; None: 1 / max w. From 4 / max w on the multipliers are unstable, so such
            values are refused.
        initial: the first multipliers: 'losses' is 2 l(x0) / w, which agrees with the losses at
            x0; 'ones' is what the paper prints.
        box: the dual step of the paper's algorithm box, lambda + eta_l (l - lambda), which equals
            that of the text for W = 2 I. It is refused for other weights.

    Example: pass it as `solver` of `credibly.credibility`; see docs/explanation/solvers.md.
    """

    steps: int = 3000
    patience: int | None = 300
    primal_step: float = 1e-3
    dual_step: float | None = None
    initial: Literal["losses", "ones"] = "losses"
    box: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("primal_step", self.primal_step)
        if self.dual_step is not None:
            positive("dual_step", self.dual_step)
        choice("initial", self.initial, ("losses", "ones"), CHOICE_REMEDY)

    @staticmethod
    def as_printed(*, primal_step: float, dual_step: float, steps: int) -> ArrowHurwicz:
        """The algorithm box as printed: lambda starts at one, W = 2 I (pass gamma=2)."""
        return ArrowHurwicz(
            primal_step=primal_step, dual_step=dual_step, steps=steps, initial="ones", box=True
        )

    def begin(self, problem: FitRiskProblem, point: Point) -> SaddleState:
        self._check(problem.weights)
        own = problem.multipliers(point.losses)
        start = own if self.initial == "losses" else torch.ones_like(own)
        return SaddleState(**fresh(point), x=point.x, multipliers=start)

    def advance(self, problem: FitRiskProblem, state: SaddleState) -> SaddleState:
        point = problem.evaluate(state.x, state.multipliers)
        eta = self.dual_step or 1.0 / float(problem.weights.max())
        gap = point.losses - 0.5 * problem.weights * state.multipliers
        x = problem.project(point.x - self.primal_step * problem.free_gradient(point))
        duals = (state.multipliers + eta * gap).clamp(min=0)
        cost = torch.ones_like(state.cost)
        return SaddleState(point, point, state.stuck, cost, x=x, multipliers=duals)

    def residual(self, problem: FitRiskProblem, state: SaddleState) -> Tensor:
        """Stationarity of the Lagrangian, and how far the multipliers are from 2 l / w."""
        own = problem.multipliers(state.point.losses)
        tiny = torch.finfo(own.dtype).tiny
        gap = (own - state.multipliers).abs().amax(1) / own.amax(1).clamp(min=tiny)
        return torch.maximum(problem.relative_stationarity(state.point), gap)

    def _check(self, weights: Tensor) -> None:
        largest = float(weights.max())
        require(
            self.dual_step is None or self.dual_step < 4 / largest,
            "dual_step",
            f"less than 4 / max w = {4 / largest:.4g}",
            repr(self.dual_step),
            "From there on the multipliers oscillate; None uses 1 / max w.",
        )
        require(
            not self.box or bool((weights == 2).all()),
            "box",
            "weights of 2 for every class",
            f"{weights.tolist()}",
            "The printed box is the case W = 2 I: pass gamma=2.0, or use ArrowHurwicz().",
        )
