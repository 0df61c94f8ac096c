"""Prox-linear steps: the network is linearised, the convex loss on top of it is kept.

With z the outputs, J their Jacobian, d = x - x0 and G(z) = sum_k l_k(z)^2 / w_k, a step solves

    min_u  |u|^2 + mu |u - d|^2 + G(z + J (u - d))

whose solution lies in span(d, J^T): a problem in the m outputs with the Gram matrix J J^T.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from credibly._validation import choice, whole
from credibly.model.derivatives import (
    BACKWARD,
    FORWARD,
    OutputLinearisation,
    output_curvature,
    output_curvature_product,
    output_jacobian,
)
from credibly.problem.fit_risk import FitRiskProblem, Point
from credibly.solve.base import CHOICE_REMEDY, Stage, State, fresh, rounding_of
from credibly.solve.linear import conjugate_gradients
from credibly.types import finite_rows, per_sample

DENSE_LIMIT = 1 << 28
"""Most numbers in the Jacobians of a batch that 'auto' stores (1 GiB)."""

_INNER_STEPS = 20
_MOST_DAMPING = 1e8


@dataclass(frozen=True)
class ProxLinearState(State):
    """The linearisation at `point`: outputs and, unless matrix-free, their Jacobian."""

    outputs: Tensor | None
    jacobian: Tensor | None
    damping: Tensor


@dataclass(frozen=True, kw_only=True)
class GaussNewton(Stage[ProxLinearState]):
    """Few, expensive steps: each needs one backward per output. One step solves affine models.

    Attributes:
        steps, tolerance, decrease, patience: when a sample ends; see `credibly.solve.base.Stage`.
        jacobian: 'dense' stores it (n, m, D); 'free' uses products with it in a conjugate-gradient
            solve; 'auto' is dense while it fits `DENSE_LIMIT` numbers and m is at most 64.
        products: most conjugate-gradient steps of a matrix-free step.

    Example: pass it as `solver` of `credibly.credibility`; see docs/explanation/solvers.md.
    """

    steps: int = 50
    patience: int | None = 6
    jacobian: Literal["auto", "dense", "free"] = "auto"
    products: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("jacobian", self.jacobian, ("auto", "dense", "free"), CHOICE_REMEDY)
        whole("products", self.products)

    def begin(self, problem: FitRiskProblem, point: Point) -> ProxLinearState:
        damping = torch.zeros_like(point.objective)
        state = ProxLinearState(**fresh(point), outputs=None, jacobian=None, damping=damping)
        if not self._stores_jacobian(point):
            return state
        outputs, jacobian = output_jacobian(problem.variable, point.x)
        spent = state.cost + FORWARD + BACKWARD * outputs.shape[1]
        return replace(state, outputs=outputs, jacobian=jacobian, cost=spent)

    def _stores_jacobian(self, point: Point) -> bool:
        classes = point.losses.shape[1]
        fits = classes <= 64 and classes * point.x.numel() <= DENSE_LIMIT
        return self.jacobian == "dense" or (self.jacobian == "auto" and fits)

    def advance(self, problem: FitRiskProblem, state: ProxLinearState) -> ProxLinearState:
        old = state.point
        proposal, spent = self._propose(problem, state)
        trial = problem.evaluate(problem.project(proposal))
        accepted = trial.objective <= old.objective + rounding_of(old)
        accepted &= finite_rows(trial.gradient)
        damping = torch.where(accepted, 0.3 * state.damping, (4 * state.damping).clamp(min=0.25))
        moved = replace(
            state,
            point=old.replaced(trial, accepted),
            visited=trial,
            stuck=damping > _MOST_DAMPING,
            cost=torch.full_like(state.cost, 1.0 + spent),
            damping=damping,
        )
        return self._relinearise(problem, moved, accepted)

    def _relinearise(
        self, problem: FitRiskProblem, state: ProxLinearState, rows: Tensor
    ) -> ProxLinearState:
        """Linearise again where a step was accepted; elsewhere nothing has changed."""
        if state.outputs is None or state.jacobian is None or not bool(rows.any()):
            return state
        outputs, jacobian = state.outputs.clone(), state.jacobian.clone()
        chosen = rows.nonzero().squeeze(1)
        outputs[chosen], jacobian[chosen] = output_jacobian(
            problem.variable.select(chosen), state.point.x[chosen]
        )
        cost = state.cost + rows * (FORWARD + BACKWARD * outputs.shape[1])
        return replace(state, outputs=outputs, jacobian=jacobian, cost=cost)

    def _propose(self, problem: FitRiskProblem, state: ProxLinearState) -> tuple[Tensor, float]:
        """The minimum of the linearised problem, and the passes it took."""
        if state.outputs is None or state.jacobian is None:
            return self._propose_free(problem, state)
        shift, free = (state.point.x - problem.x0).flatten(1), problem.free(state.point).flatten(1)
        u = _prox_linear(
            _fit_of_outputs(problem),
            state.outputs,
            state.jacobian * free.unsqueeze(1),
            shift,
            state.damping,
        )
        return problem.x0 + torch.where(free, u, shift).reshape_as(problem.x0), 0.0

    def _propose_free(
        self, problem: FitRiskProblem, state: ProxLinearState
    ) -> tuple[Tensor, float]:
        """One Newton step of the same problem, by conjugate gradients on products with J."""
        linear = OutputLinearisation(problem.variable, state.point.x)
        fit, free = _fit_of_outputs(problem), problem.free(state.point)
        weight = 2 * (1 + state.damping)

        def curvature(v: Tensor) -> Tensor:
            pushed = linear.forward(v)
            bent = output_curvature_product(fit, linear.outputs, pushed)
            return per_sample(weight, v) * v + free * linear.transposed(bent)

        right = -problem.free_gradient(state.point)
        move, products = conjugate_gradients(curvature, right, most=self.products, accuracy=1e-2)
        return state.point.x + move, FORWARD + BACKWARD * (1 + 3 * products)


def _fit_of_outputs(problem: FitRiskProblem) -> Callable[[Tensor], Tensor]:
    """G: outputs (n, m) -> sum_k l_k^2 / w_k (n,)."""
    return lambda z: problem.misfit(problem.variable.losses_of(z))


def _prox_linear(
    fit: Callable[[Tensor], Tensor], z: Tensor, jacobian: Tensor, shift: Tensor, damping: Tensor
) -> Tensor:
    """Solve the linearised problem by Newton's method on q = J (u - d), one row per sample.

    The condition is (1 + mu) q + J d + 1/2 J J^T grad G(z + q) = 0; Newton steps that do not
    bring its left side closer to zero are halved.
    """
    gram = jacobian @ jacobian.mT
    pushed = (jacobian @ shift.unsqueeze(2)).squeeze(2)
    scale = (1 + damping)[:, None]
    identity = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)

    def mismatch(q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        slope, bend = output_curvature(fit, z + q)
        left = scale * q + pushed + 0.5 * (gram @ slope.unsqueeze(2)).squeeze(2)
        return left, scale.unsqueeze(2) * identity + 0.5 * gram @ bend, slope

    q = torch.zeros_like(z)
    left, matrix, slope = mismatch(q)
    length = torch.ones_like(damping)
    for _ in range(_INNER_STEPS):
        # a matrix that rounding made singular costs only its own sample, whose step is then refused
        move = torch.linalg.solve_ex(matrix, left.unsqueeze(2)).result.squeeze(2)
        candidate = mismatch(q - length[:, None] * move)
        better = candidate[0].norm(dim=1) < left.norm(dim=1)
        rows = better[:, None]
        q = torch.where(rows, q - length[:, None] * move, q)
        left = torch.where(rows, candidate[0], left)
        matrix = torch.where(rows.unsqueeze(2), candidate[1], matrix)
        slope = torch.where(rows, candidate[2], slope)
        length = torch.where(better, torch.clamp(2 * length, max=1.0), 0.5 * length)
    pull = (jacobian.mT @ slope.unsqueeze(2)).squeeze(2)
    return (damping[:, None] * shift - 0.5 * pull) / scale
