"""GaussianProcessClassifier: the probabilities of the Laplace approximation."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.adapters.sklearn.context import Context, Fixed, power
from credibly.adapters.sklearn.heads import Head, normalised
from credibly.adapters.sklearn.kernels import distance_terms, shuffled, squared_distance

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


# Williams and Barber's sum of five error functions in place of the logistic function
_LAMBDAS = (0.41, 0.4, 0.37, 0.44, 0.39)
_COEFFICIENTS = (-1854.8214151, 3516.89893646, 221.29346712, 128.12323805, -2010.49422654)


def _process(model: Any, context: Context) -> nn.Module:
    """One binary process: x to the probability (n,) of the second class."""
    order = shuffled(len(model.X_train_))
    points = context.tensor(np.asarray(model.X_train_)[order])
    # L is a factor of I + W^1/2 K W^1/2, whose eigenvalues are at least 1: inverting is safe
    whitening = np.linalg.solve(model.L_, np.diag(model.W_sr_))[:, order]
    probability = Fixed(
        _probability,
        weights=context.tensor((model.y_train_ - model.pi_)[order]),
        whitening=context.tensor(whitening).T.contiguous(),
        lambdas=context.tensor(_LAMBDAS),
        coefficients=context.tensor(_COEFFICIENTS),
    )
    return nn.Sequential(build_covariance(model.kernel_, points, context), probability)


def _probability(
    both: Both, weights: Tensor, whitening: Tensor, lambdas: Tensor, coefficients: Tensor
) -> Tensor:
    gram, own = both
    mean = gram @ weights
    variance = own - (gram @ whitening).square().sum(1)
    # scikit-learn's alpha = 1 / (2 variance), written so that nothing is divided by a variance
    inner = lambdas * mean[:, None] / (1 + 2 * variance[:, None] * lambdas.square()).sqrt()
    halves: Tensor = (inner.erf() + 1) * coefficients / 2
    return halves.sum(1)


class GaussianProcessHead(Head):
    """One binary process for two classes, else one per class."""

    least = 1e-9  # below this the sum of error functions, whose terms are thousands, is rounding

    def __init__(self, source: str, processes: list[nn.Module]) -> None:
        super().__init__(source, "cross_entropy")
        self.processes = nn.ModuleList(processes)

    def predict_proba(self, x: Tensor) -> Tensor:
        return normalised(torch.stack([process(x) for process in self.processes], dim=1))


def gaussian_process(model: Any, context: Context) -> Head:
    """The twin of a fitted GaussianProcessClassifier."""
    several = model.n_classes_ > 2
    context.require(
        not several or model.multi_class != "one_vs_one",
        model,
        "multi_class='one_vs_one' decides by votes and has no probabilities",
        "Fit it with multi_class='one_vs_rest'.",
    )
    inner = model.base_estimator_
    found = inner.estimators_ if several else [inner]
    finite = all(hasattr(one, "L_") and bool(np.isfinite(one.W_sr_).all()) for one in found)
    context.require(finite, model, "its posterior is not finite", "Fit it again.")
    return GaussianProcessHead(context.name(model), [_process(one, context) for one in found])
