"""Linear systems of a batch, by products with their matrices alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from credibly.types import inner, per_sample


def conjugate_gradients(
    matrix: Callable[[Tensor], Tensor], right: Tensor, *, most: int, accuracy: float
) -> tuple[Tensor, int]:
    """Solve positive definite systems, one per sample: the solutions and the products used.

    A sample stops when its residual is `accuracy` times its right side, or where its matrix turns
    out not to be positive along the direction tried.
    """
    x, r = torch.zeros_like(right), right
    p, rr = r, inner(r, r)
    goal = accuracy**2 * rr
    going = rr > goal
    tiny = torch.finfo(right.dtype).tiny
    for used in range(most):
        if not bool(going.any()):
            return x, used
        bent = matrix(p)
        curvature = inner(p, bent)
        going = going & (curvature > 0)
        alpha = torch.where(going, rr / curvature.clamp(min=tiny), 0.0)
        x = x + per_sample(alpha, p) * p
        r = r - per_sample(alpha, p) * bent
        new = inner(r, r)
        p = r + per_sample(new / rr.clamp(min=tiny), p) * p
        rr = new
        going = going & (rr > goal)
    return x, most
