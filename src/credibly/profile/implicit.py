"""Derivatives through a profile, by the implicit function theorem and not through the solver.

x+ solves x + grad h(x) = x0 with h = 1/2 sum_k l_k^2 / w_k, so d x+ / d x0 = (I + Hess h)^-1: a
product with it is one linear solve. In general that is done by conjugate gradients on
Hessian-vector products. A piecewise-linear network has no curvature of its own, so Hess h = J^T M J
with the Jacobian J of the m outputs and the curvature M of h in them, and the inverse is
I - J^T M (I + J J^T M)^-1 J (Woodbury): m backwards and an m x m system, exactly.

Coordinates that a bound holds do not move, so the system is that of the others alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from credibly import _validation as check
from credibly.model.batches import check_evaluation_mode
from credibly.model.classifier import Classifier
from credibly.model.derivatives import (
    HessianProducts,
    in_full,
    output_curvature,
    output_jacobian,
    tracked_slope,
)
from credibly.model.in_space import InSpace
from credibly.model.variable import Variable
from credibly.problem.fit_risk import FitRiskProblem
from credibly.profile.given import check_profile, check_same_model, rebind_profile, weights_of
from credibly.profile.profile import Profile
from credibly.solve.linear import conjugate_gradients
from credibly.types import finite_rows, per_sample

Curvature = Literal["full", "outputs"]

PRODUCTS = 10
"""Hessian-vector products of a backward at most; each costs about two passes."""


def attached_credibility(
    clf: Classifier | Variable,
    profile: Profile,
    *,
    x0: Tensor | None = None,
    weights: Tensor | None = None,
    curvature: Curvature = "full",
    products: int = PRODUCTS,
    accuracy: float = 1e-6,
) -> Tensor:
    """The credibilities c+ (N, K) of a solved profile, attached to what they depend on.

    Backward through the result gives gradients with respect to `x0`, `weights` and the parameters
    of the model, whichever require them; so a profile can be part of a training loss or an attack.
    The formula holds at a minimum where the model is twice differentiable; features that a bound
    holds do not move. On a ReLU network it is the formula of the linear piece of x+, and x+ usually
    lies on the edge of several: take the gradient as a direction, not as a number.

    Args:
        clf: the classifier the profile was made with.
        profile: its profile, without samples that could not be solved.
        x0: the inputs as a tensor that requires gradients; by default the profile's own, without.
        weights: w (K,) likewise.
        curvature: 'full' includes the curvature of the model, by conjugate gradients; 'outputs'
            leaves it out, which is exact for piecewise-linear networks (ReLU, max-pooling, affine)
            and an approximation (Gauss-Newton) for others: one forward and m backwards. A sample
            whose system is singular, or nearly so in its precision, gets a NaN gradient with
            respect to its x0; for weights and parameters, which all samples share, its x+ counts as
            fixed.
        products: most Hessian-vector products of a backward with 'full'.
        accuracy: relative residual at which the linear solve of a backward stops.

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(lambda x: x @ torch.tensor([[2.0, -2.0], [1.0, 0.0]]))
        >>> x0 = torch.tensor([[1.0, 2.0]], requires_grad=True)
        >>> profile = cr.credibility(clf, x0.detach(), gamma=5.0)
        >>> cr.attached_credibility(clf, profile, x0=x0).requires_grad
        True
    """
    return attached_answer(
        clf, profile, x0=x0, weights=weights, curvature=curvature, products=products,
        accuracy=accuracy,
    )[1]  # fmt: skip


def attached_answer(
    clf: Classifier | Variable,
    profile: Profile,
    *,
    x0: Tensor | None = None,
    weights: Tensor | None = None,
    curvature: Curvature = "full",
    products: int = PRODUCTS,
    accuracy: float = 1e-6,
) -> tuple[Tensor, Tensor]:
    """The moved inputs x+ (N, ...) and c+ (N, K), both attached; see `attached_credibility`."""
    check_profile(profile)
    check.whole("products", products)
    check.tolerance(accuracy, "accuracy")
    check.require(
        bool(profile.usable.all()),
        "profile",
        "samples that were solved",
        f"{int((~profile.usable).sum())} that were not",
        "Choose the others first: profile[profile.usable].",
    )
    given = profile.x0 if x0 is None else x0
    w = weights_of(profile) if weights is None else weights
    _check_match("x0", given, profile.x0)
    _check_match("weights", w, weights_of(profile))
    remedy = "'full' is right for every smooth model; 'outputs' for piecewise-linear ones."
    check.choice("curvature", curvature, get_args(Curvature), remedy)
    variable = rebind_profile(clf, profile)
    check_evaluation_mode(variable.clf)
    check_same_model(variable.clf, profile)
    answer, free = _answer_and_free(variable, profile)
    variable = variable.based_at(given)  # locked and tied features also affect the model
    start = variable.encode(given)
    slope = tracked_slope(variable, answer, lambda losses: (losses.square() / (2 * w)).sum(1))
    mismatch = answer + slope - start  # zero at the answer; only its graph matters
    problem = FitRiskProblem(replace(variable, start=start.detach()), w.detach())
    x: Tensor = _ImplicitSolve.apply(  # type: ignore[no-untyped-call]  # torch has no types here
        mismatch, given, answer, problem, _Linear(curvature, products, accuracy, free)
    )
    return variable.decode(x), -variable.losses(x)


@dataclass(frozen=True)
class _Linear:
    """How the linear system of a backward is solved."""

    curvature: Curvature
    products: int
    accuracy: float
    free: Tensor | None

    def solve(self, problem: FitRiskProblem, x: Tensor, right: Tensor) -> Tensor:
        """(I + Hess h)^-1 applied to `right`, shaped like x, over what no bound holds."""
        right = self._freed(right)
        if self.curvature == "outputs":
            return _woodbury(problem, x, right, self.free)

        bend = HessianProducts(problem.variable, x, problem.misfit)
        found, _ = conjugate_gradients(
            lambda v: v + self._freed(bend(v)) / 2,
            right,
            most=self.products,
            accuracy=self.accuracy,
        )
        return found

    def _freed(self, values: Tensor) -> Tensor:
        return values if self.free is None else values * self.free


def _woodbury(problem: FitRiskProblem, x: Tensor, right: Tensor, free: Tensor | None) -> Tensor:
    variable = problem.variable
    outputs, jacobian = output_jacobian(variable, x)
    if free is not None:
        jacobian = jacobian * free.flatten(1).unsqueeze(1)
    _, bend = output_curvature(lambda z: problem.misfit(variable.losses_of(z)) / 2, outputs)
    gram = jacobian @ jacobian.mT
    system = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device) + gram @ bend
    inside, _ = torch.linalg.solve_ex(system, jacobian @ right.flatten(1).unsqueeze(2))
    found = right - (jacobian.mT @ (bend @ inside)).reshape(right.shape)
    # a singular system affects only its own sample, which gets NaN
    known = torch.linalg.cond(system, 1) * torch.finfo(system.dtype).eps < 1
    asked = right.flatten(1).any(1)  # a sample that was left out has a gradient of zero
    found = torch.where(per_sample(known, found), found, torch.nan)
    return torch.where(per_sample(asked, found), found, 0.0)


def _answer_and_free(variable: Variable, profile: Profile) -> tuple[Tensor, Tensor | None]:
    """x+ in the coordinates of the solver, and those that no bound holds; None: all."""
    answer = variable.encode(profile.perturbed)
    limits = variable.limits(profile.settings.bounds)
    if limits is None:
        return answer, None
    start = variable.encode(profile.x0)
    for limit in limits:  # scaling may have rounded what was exactly on it
        border = torch.as_tensor(limit, dtype=answer.dtype, device=answer.device)
        near = 8 * torch.finfo(answer.dtype).eps * (border.abs() + start.abs())
        on_it = border.isfinite() & ((answer - border).abs() <= near)
        answer = torch.where(on_it, border, answer)
    problem = FitRiskProblem(replace(variable, start=start), weights_of(profile), limits)
    free = problem.free(problem.evaluate(answer))
    own = variable.innermost
    tied = isinstance(own, InSpace) and bool((own.coordinates.shared() & ~free).any())
    check.require(
        not tied,
        "profile",
        "tied features that no bound holds",
        f"{int((~free).flatten(1).any(1).sum())} samples with some on a bound",
        "Where a tied group stops depends on all of its features. Choose the other samples, or "
        "solve without the tie or with wider bounds.",
    )
    return answer, free


class _ImplicitSolve(torch.autograd.Function):
    """Forward: x+. Backward: from a gradient at x+ to one at the mismatch, whose root x+ is.

    The inputs are an argument of their own, although the mismatch depends on them, so that samples
    without a gradient get NaN there and do not affect the shared weights and parameters.
    """

    @staticmethod
    def forward(
        ctx: Any,
        _mismatch: Tensor,
        given: Tensor,
        answer: Tensor,
        problem: FitRiskProblem,
        linear: _Linear,
    ) -> Tensor:
        ctx.problem, ctx.linear, ctx.shape = problem, linear, given.shape
        ctx.save_for_backward(answer)
        return answer.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        (answer,) = ctx.saved_tensors
        with in_full(answer.device):  # no system is solved in half precision
            found = ctx.linear.solve(ctx.problem, answer, gradient)
        lost = finite_rows(gradient) & ~finite_rows(found)
        by_mismatch = torch.where(per_sample(lost, found), 0.0, -found)
        by_given = torch.where(lost, torch.nan, torch.zeros_like(found.flatten(1)[:, 0]))
        spread = per_sample(by_given, gradient.new_empty(ctx.shape)).expand(ctx.shape)
        return by_mismatch, spread, None, None, None


def _check_match(name: str, given: object, own: Tensor) -> None:
    """Refuse other numbers than the profile's: the gradient would be that of an unsolved point."""
    got = _mismatch(given, own)
    check.require(
        got is None,
        name,
        f"the tensor the profile was made with, {tuple(own.shape)} of {own.dtype}",
        got or "",
        f"Attach the profile's own, such as {name}.clone().requires_grad_(), or solve again for "
        "the new ones.",
    )


def _mismatch(given: object, own: Tensor) -> str | None:
    if not isinstance(given, Tensor):
        return type(given).__name__
    if given.shape != own.shape or given.dtype != own.dtype or given.device != own.device:
        return f"shape {tuple(given.shape)} of {given.dtype} on {given.device}"
    near = torch.finfo(own.dtype).eps ** 0.5  # scales and units may round a little
    if not torch.allclose(given.detach(), own, rtol=near, atol=near):
        return f"other values, by up to {float((given.detach() - own).abs().max()):.3g}"
    return None
