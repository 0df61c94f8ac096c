"""Derivatives through a profile, by the implicit function theorem and not through the solver.

x+ solves x + grad h(x) = x0 with h = 1/2 sum_k l_k^2 / w_k, so d x+ / d x0 = (I + Hess h)^-1: a
product with it is one linear solve. In general that is done by conjugate gradients on
Hessian-vector products. A piecewise-linear network has no curvature of its own, so Hess h = J^T M J
with the Jacobian J of the m outputs and the curvature M of h in them, and the inverse is
I - J^T M (I + J J^T M)^-1 J (Woodbury): m backwards and an m x m system, exactly.

Coordinates that a bound holds do not move, so the system is that of the others alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.model.batches import check_evaluation_mode
from credibly.model.bound import InSpace
from credibly.model.classifier import Classifier
from credibly.model.derivatives import (
    HessianProducts,
    in_full,
    output_curvature,
    output_jacobian,
    tracked_slope,
)
from credibly.model.inputs import enter_again, finite_rows
from credibly.problem.fit_risk import FitRiskProblem
from credibly.profile.given import check_profile, check_same_model
from credibly.profile.profile import Profile
from credibly.solve.base import require_share, require_whole
from credibly.solve.linear import conjugate_gradients
from credibly.types import per_sample

Curvature = Literal["full", "outputs"]

PRODUCTS = 10
"""Hessian-vector products of a backward at most; each costs about two passes."""


def attached_credibility(
    clf: Classifier,
    profile: Profile,
    *,
    x0: Tensor | None = None,
    weights: Tensor | None = None,
    curvature: Curvature = "full",
    products: int = PRODUCTS,
    accuracy: float = 1e-6,
) -> Tensor:
    """The credibilities c+ (N, K) of a solved profile, attached to what they depend on.

    Backward through the result gives gradients by `x0`, by `weights` and by the parameters of the
    model, whichever require them; so a profile can stand inside a training loss or an attack. The
    formula holds at a minimum where the model is twice differentiable; what a bound holds there
    stays where it is. On a ReLU network it is that of the linear piece x+ lies in, and x+ usually
    lies on the edge of several: take it as a direction, not as a number.

    Args:
        clf: the classifier the profile was made with.
        profile: its profile, without samples that could not be solved.
        x0: the inputs as a tensor that requires gradients; by default the profile's own, without.
        weights: w (K,) likewise.
        curvature: 'full' takes the model's own curvature along, by conjugate gradients; 'outputs'
            leaves it out, which is exact for piecewise-linear networks (ReLU, max-pooling, affine)
            and an approximation (Gauss-Newton) for others: one forward and m backwards. A sample
            whose system is singular, or nearly so in the precision at hand, gets a gradient of NaN
            by its x0; in those by weights and parameters, which all samples share, its x+ counts as
            fixed.
        products: most Hessian-vector products of a backward with 'full'.
        accuracy: residual at which the linear solve of a backward stops, relative.
    """
    _, credibility = attached_answer(
        clf, profile, x0=x0, weights=weights, curvature=curvature, products=products,
        accuracy=accuracy,
    )  # fmt: skip
    return credibility


def attached_answer(
    clf: Classifier,
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
    require_whole("products", products)
    require_share("accuracy", accuracy)
    if not bool(profile.usable.all()):
        raise InvalidArgumentError(
            "profile",
            expected="samples that were solved",
            got=f"{int((~profile.usable).sum())} that were not",
            remedy="Choose the others first: profile[profile.usable].",
        )
    given = profile.x0 if x0 is None else x0
    w = _own_weights(profile) if weights is None else weights
    _check_match("x0", given, profile.x0)
    _check_match("weights", w, _own_weights(profile))
    _check_curvature(curvature)
    clf, _ = enter_again(clf, profile.x0, profile.settings.space)
    check_evaluation_mode(clf)
    check_same_model(clf, profile)
    answer, free = _answer_and_free(clf, profile)
    clf = clf.based_at(given)  # locked and tied features of the input act through the model, too
    start = clf.encode(given)
    slope = tracked_slope(clf, answer, lambda losses: (losses.square() / (2 * w)).sum(1))
    mismatch = answer + slope - start  # zero at the answer; its graph is what counts
    problem = FitRiskProblem(clf, start.detach(), w.detach())
    x: Tensor = _ImplicitSolve.apply(  # type: ignore[no-untyped-call]  # torch has no types here
        mismatch, given, answer, problem, _Linear(curvature, products, accuracy, free)
    )
    return clf.decode(x), -clf.losses(x)


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

        bend = HessianProducts(problem.classifier, x, problem.misfit)
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
    clf = problem.classifier
    outputs, jacobian = output_jacobian(clf, x)
    if free is not None:
        jacobian = jacobian * free.flatten(1).unsqueeze(1)
    _, bend = output_curvature(lambda z: problem.misfit(clf.losses_of(z)) / 2, outputs)
    gram = jacobian @ jacobian.mT
    system = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device) + gram @ bend
    inside, _ = torch.linalg.solve_ex(system, jacobian @ right.flatten(1).unsqueeze(2))
    found = right - (jacobian.mT @ (bend @ inside)).reshape(right.shape)
    # one sample never stops the others, and where no digit is sure there is no number
    known = torch.linalg.cond(system, 1) * torch.finfo(system.dtype).eps < 1
    asked = right.flatten(1).any(1)  # a sample that was left out has no gradient to spoil
    found = torch.where(per_sample(known, found), found, torch.nan)
    return torch.where(per_sample(asked, found), found, 0.0)


def _answer_and_free(clf: Classifier, profile: Profile) -> tuple[Tensor, Tensor | None]:
    """x+ as the solver sees it, and which of its coordinates no bound holds; None: all."""
    answer = clf.encode(profile.perturbed)
    limits = clf.limits(profile.settings.bounds)
    if limits is None:
        return answer, None
    start = clf.encode(profile.x0)
    for limit in limits:  # scales may have rounded what lay exactly on it
        border = torch.as_tensor(limit, dtype=answer.dtype, device=answer.device)
        near = 8 * torch.finfo(answer.dtype).eps * (border.abs() + start.abs())
        on_it = border.isfinite() & ((answer - border).abs() <= near)
        answer = torch.where(on_it, border, answer)
    problem = FitRiskProblem(clf, start, _own_weights(profile), limits)
    free = problem.free(problem.evaluate(answer))
    if isinstance(clf, InSpace) and bool((clf.coordinates.shared() & ~free).any()):
        raise InvalidArgumentError(
            "profile",
            expected="tied features that no bound holds",
            got=f"{int((~free).any(1).sum())} samples with some on a bound",
            remedy="Where a tied group stops depends on all of its features. Choose the other "
            "samples, or solve without the tie or with wider bounds.",
        )
    return answer, free


class _ImplicitSolve(torch.autograd.Function):
    """Forward: x+. Backward: a gradient by x+ becomes one by the mismatch it is the root of.

    The inputs stand beside the mismatch, which depends on them, to be told of samples that have no
    gradient: weights and parameters are shared, and one such sample must not cost theirs.
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


def _check_curvature(curvature: str) -> None:
    if curvature not in ("full", "outputs"):
        raise InvalidArgumentError(
            "curvature",
            expected="'full' or 'outputs'",
            got=repr(curvature),
            remedy="'full' is right for every smooth model; 'outputs' for piecewise-linear ones.",
        )


def _own_weights(profile: Profile) -> Tensor:
    w, like = profile.settings.weights, profile.x0
    return torch.tensor(w, dtype=torch.float64, device=like.device).to(like)


def _check_match(name: str, given: object, own: Tensor) -> None:
    """The profile's own numbers, else the gradient would be one at a point that was not solved."""
    got = _mismatch(given, own)
    if got is not None:
        raise InvalidArgumentError(
            name,
            expected=f"the tensor the profile was made with, {tuple(own.shape)} of {own.dtype}",
            got=got,
            remedy=f"Attach the profile's own, such as {name}.clone().requires_grad_(), or solve "
            "again for the new ones.",
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
