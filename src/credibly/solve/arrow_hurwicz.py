"""Algorithm 1 of the paper: descent in x, ascent in the multipliers.

x      <- x - eta_x (2 (x - x0) + sum_k lambda_k grad l_k)
lambda <- [lambda + eta_l (l - w lambda / 2)]_+
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from credibly.problem.fit_risk import FitRiskProblem, Point
from credibly.solve.base import Stage, State, fresh_marks, require, require_positive


@dataclass(frozen=True)
class SaddleState(State):
    """The next inputs to evaluate, and the multipliers to evaluate them with."""

    x: Tensor
    multipliers: Tensor


@dataclass(frozen=True, kw_only=True)
class ArrowHurwicz(Stage[SaddleState]):
    """The paper's solver, with the dual step of its text; kept for comparison and for theory.

    Attributes:
        steps, tolerance, decrease, patience: when a sample ends; as of `credibly.solve.base.Stage`.
        primal_step: eta_x.
        dual_step: eta_l; None: 1 / max w. The recursion of the multipliers is unstable from
            4 / max w on, so that value and larger ones are refused.
        initial: multipliers to begin with: 'fit' is 2 l(x0) / w, at which they already agree
            with the losses; 'ones' is what the paper prints.
        box: the dual step of the paper's algorithm box, lambda + eta_l (l - lambda), which is
            the text's for W = 2 I. It is refused for other weights.
    """

    steps: int = 3000
    patience: int | None = 300
    primal_step: float = 1e-3
    dual_step: float | None = None
    initial: Literal["fit", "ones"] = "fit"
    box: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("primal_step", self.primal_step)
        if self.dual_step is not None:
            require_positive("dual_step", self.dual_step)
        require(self.initial in ("fit", "ones"), "initial", "'fit' or 'ones'", self.initial)

    @staticmethod
    def as_printed(*, primal_step: float, dual_step: float, steps: int) -> ArrowHurwicz:
        """The algorithm box to the letter: lambda starts at one, W = 2 I (pass gamma=2)."""
        return ArrowHurwicz(
            primal_step=primal_step, dual_step=dual_step, steps=steps, initial="ones", box=True
        )

    def begin(self, problem: FitRiskProblem, point: Point) -> SaddleState:
        self._check(problem.weights)
        stuck, cost = fresh_marks(point)
        fit = problem.multipliers(point.losses)
        start = fit if self.initial == "fit" else torch.ones_like(fit)
        return SaddleState(
            point=point, visited=point, stuck=stuck, cost=cost, x=point.x, multipliers=start
        )

    def advance(self, problem: FitRiskProblem, state: SaddleState) -> SaddleState:
        point = problem.evaluate(state.x, state.multipliers)
        eta = self.dual_step or 1.0 / float(problem.weights.max())
        gap = point.losses - 0.5 * problem.weights * state.multipliers
        return SaddleState(
            point=point,
            visited=point,
            stuck=state.stuck,
            cost=torch.ones_like(state.cost),
            x=problem.project(point.x - self.primal_step * problem.free_gradient(point)),
            multipliers=(state.multipliers + eta * gap).clamp(min=0),
        )

    def residual(self, problem: FitRiskProblem, state: SaddleState) -> Tensor:
        """Stationarity of the Lagrangian, and how far the multipliers are from 2 l / w."""
        fit = problem.multipliers(state.point.losses)
        tiny = torch.finfo(fit.dtype).tiny
        gap = (fit - state.multipliers).abs().amax(1) / fit.amax(1).clamp(min=tiny)
        return torch.maximum(problem.relative_stationarity(state.point), gap)

    def _check(self, weights: Tensor) -> None:
        largest = float(weights.max())
        require(
            self.dual_step is None or self.dual_step < 4 / largest,
            "dual_step",
            f"less than 4 / max w = {4 / largest:.4g}",
            self.dual_step,
            "From there on the multipliers oscillate without end; None picks 1 / max w.",
        )
        require(
            not self.box or bool((weights == 2).all()),
            "box",
            "weights of 2 for every class",
            weights.tolist(),
            "The printed box is the case W = 2 I: pass gamma=2.0, or use ArrowHurwicz().",
        )
