"""Covariance functions of Gaussian processes: k(x, training points) and k(x, x)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from credibly.adapters.sklearn.context import Context
from credibly.adapters.sklearn.fixed import Fixed, power
from credibly.adapters.sklearn.kernels import distance_terms, squared_distance

Both = tuple[Tensor, Tensor]
"""Covariances with the training points (n, s), and of each sample with itself (n,)."""


class Combined(nn.Module):
    """The sum or product of two covariances, or a power of one."""

    def __init__(self, function: Callable[..., Tensor], *parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Both:
        cross, own = zip(*(part(x) for part in self.parts), strict=True)
        return self.function(*cross), self.function(*own)


def _stationary(
    x: Tensor, shape: Callable[[Tensor], Tensor], scale: Tensor, **terms: Tensor
) -> Both:
    """A function of the scaled distance that is one at zero."""
    squared = squared_distance(x / scale, **terms).clamp(min=0)
    return shape(squared), torch.ones_like(x[:, 0])


def _constant(x: Tensor, count: int, cross: float, own: float) -> Both:
    """The same for all samples, or noise: zero for other samples."""
    return torch.full_like(x[:, :1], cross).expand(-1, count), torch.full_like(x[:, 0], own)


def _dot_product(x: Tensor, points: Tensor, offset: float) -> Both:
    return x @ points.T + offset, x.square().sum(1) + offset


def _gaussian(squared: Tensor) -> Tensor:
    return (-squared / 2).exp()


def _matern(squared: Tensor, smoothness: float) -> Tensor:
    root = _safe_root(squared * (2 * smoothness))
    factor = torch.ones_like(root)
    if smoothness > 1:
        factor = factor + root
    if smoothness > 2:
        factor = factor + root.square() / 3
    return factor * (-root).exp()


def _rational(squared: Tensor, power: float) -> Tensor:
    return (1 + squared / (2 * power)) ** -power


def _safe_root(squared: Tensor) -> Tensor:
    """The square root, with the derivative zero at zero in place of infinity."""
    positive = squared > 0
    return torch.where(positive, torch.where(positive, squared, 1.0).sqrt(), 0.0)


def _shape(kernel: Any, context: Context) -> Callable[[Tensor], Tensor]:
    """A stationary kernel as a function of the squared distance in units of its length scale."""
    kind = type(kernel).__name__
    if kind == "RationalQuadratic":
        return partial(_rational, power=float(kernel.alpha))
    smoothness = float(kernel.nu) if kind == "Matern" else math.inf
    context.require(
        smoothness in (0.5, 1.5, 2.5, math.inf),
        kernel,
        f"nu={smoothness} needs a Bessel function, which torch cannot differentiate",
        "Fit it with nu=0.5, 1.5, 2.5 or inf.",
    )
    return _gaussian if smoothness == math.inf else partial(_matern, smoothness=smoothness)


def build_covariance(kernel: Any, points: Tensor, context: Context) -> nn.Module:
    """The twin of a fitted kernel, which may be nested; it returns `Both`."""
    kind, count = type(kernel).__name__, len(points)
    if kind in ("RBF", "Matern", "RationalQuadratic"):
        scale = context.tensor(kernel.length_scale)
        function = partial(_stationary, shape=_shape(kernel, context))
        return Fixed(function, scale=scale, **distance_terms(points / scale))
    if kind in ("Sum", "Product"):
        parts = [build_covariance(part, points, context) for part in (kernel.k1, kernel.k2)]
        return Combined(operator.mul if kind == "Product" else operator.add, *parts)
    if kind == "Exponentiation":
        base = build_covariance(kernel.kernel, points, context)
        return Combined(power(kernel.exponent), base)
    if kind == "ConstantKernel":
        value = kernel.constant_value
        return Fixed(partial(_constant, count=count, cross=value, own=value))
    if kind == "WhiteKernel":
        return Fixed(partial(_constant, count=count, cross=0.0, own=kernel.noise_level))
    context.require(
        kind == "DotProduct",
        kernel,
        "this kernel of a Gaussian process has no twin",
        "Use RBF, Matern, RationalQuadratic, DotProduct, ConstantKernel and WhiteKernel, "
        "their sums, products and powers.",
    )
    return Fixed(partial(_dot_product, offset=float(kernel.sigma_0) ** 2), points=points)
