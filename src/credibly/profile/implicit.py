"""Derivatives through a profile, by the implicit function theorem and not through the solver.

x+ solves x + grad h(x) = x0 with h = 1/2 sum_k l_k^2 / w_k, so d x+ / d x0 = (I + Hess h)^-1: a
product with it is one linear solve, here by conjugate gradients on Hessian-vector products.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.model.classifier import Classifier
from credibly.model.derivatives import hessian_vector_product, tracked_slope
from credibly.problem.fit_risk import FitRiskProblem
from credibly.profile.profile import Profile
from credibly.solve.linear import conjugate_gradients

PRODUCTS = 12
"""Hessian-vector products of a backward at most; each costs about two passes."""


def attached_credibility(
    clf: Classifier,
    profile: Profile,
    *,
    x0: Tensor | None = None,
    weights: Tensor | None = None,
    products: int = PRODUCTS,
    accuracy: float = 1e-6,
) -> Tensor:
    """The credibilities c+ (N, K) of a solved profile, attached to what they depend on.

    Backward through the result gives gradients by `x0`, by `weights` and by the parameters of the
    model, whichever require them; so a profile can stand inside a training loss or an attack. The
    formula holds at a minimum where the model is twice differentiable. On a ReLU network it is that
    of the linear piece x+ lies in, and x+ usually lies on the edge of several: take it as a
    direction, not as a number.

    Args:
        clf: the classifier the profile was made with.
        profile: its profile, without samples that could not be solved.
        x0: the inputs as a tensor that requires gradients; by default the profile's own, without.
        weights: w (K,) likewise.
        products: most Hessian-vector products of a backward.
        accuracy: residual at which the linear solve of a backward stops, relative.
    """
    if not bool(profile.usable.all()):
        raise InvalidArgumentError(
            "profile",
            expected="samples that were solved",
            came=f"{int((~profile.usable).sum())} that were not",
            remedy="Choose the others first: profile[profile.usable].",
        )
    start = profile.x0 if x0 is None else x0
    w = torch.tensor(profile.settings.weights).to(start) if weights is None else weights
    _check_match(profile, start, w)
    slope = tracked_slope(clf, profile.perturbed, lambda losses: (losses.square() / (2 * w)).sum(1))
    mismatch = profile.perturbed + slope - start  # zero at the answer; its graph is what counts
    problem = FitRiskProblem(clf, start.detach(), w.detach())
    x: Tensor = _ImplicitSolve.apply(  # type: ignore[no-untyped-call]  # torch has no types here
        mismatch, profile.perturbed, problem, products, accuracy
    )
    return -clf.losses(x)


class _ImplicitSolve(torch.autograd.Function):
    """Forward: x+. Backward: a gradient by x+ becomes one by the mismatch it is the root of."""

    @staticmethod
    def forward(
        ctx: Any,
        _mismatch: Tensor,
        answer: Tensor,
        problem: FitRiskProblem,
        products: int,
        accuracy: float,
    ) -> Tensor:
        ctx.problem, ctx.products, ctx.accuracy = problem, products, accuracy
        ctx.save_for_backward(answer)
        return answer.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        (answer,) = ctx.saved_tensors
        problem: FitRiskProblem = ctx.problem

        def curved(v: Tensor) -> Tensor:
            half = hessian_vector_product(problem.classifier, answer, problem.fit, v) / 2
            return v + half

        solved, _ = conjugate_gradients(curved, gradient, most=ctx.products, accuracy=ctx.accuracy)
        return -solved, None, None, None, None


def _check_match(profile: Profile, x0: Tensor, weights: Tensor) -> None:
    if x0.shape != profile.x0.shape:
        raise InvalidArgumentError(
            "x0",
            expected=f"the inputs of the profile, {tuple(profile.x0.shape)}",
            came=f"shape {tuple(x0.shape)}",
            remedy="Pass the tensor the profile was made from.",
        )
    if tuple(weights.shape) != (len(profile.settings.weights),):
        raise InvalidArgumentError(
            "weights",
            expected=f"{len(profile.settings.weights)} numbers, one a class",
            came=f"shape {tuple(weights.shape)}",
            remedy="Pass the tensor the profile was made with.",
        )
