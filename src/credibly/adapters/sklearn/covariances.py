"""Covariance functions of Gaussian processes: k(x, training points) and k(x, x)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from credibly.adapters.sklearn.context import Context
from credibly.adapters.sklearn.kernels import SquaredDistance


class Covariance(nn.Module):
    """Values to the training points (n, s); with oneself (n,)."""

    def forward(self, x: Tensor) -> Tensor:
        """Covariances with the training points (n, s)."""
        raise NotImplementedError

    def diagonal(self, x: Tensor) -> Tensor:
        """Covariance of each sample with itself (n,)."""
        return torch.ones_like(x[:, 0])


class Stationary(Covariance):
    """A function of the scaled distance that is one at zero."""

    scale: Tensor

    def __init__(self, kernel: Any, points: Tensor, context: Context) -> None:
        super().__init__()
        self.register_buffer("scale", context.tensor(kernel.length_scale))
        self.distance = SquaredDistance(points / self.scale)

    def forward(self, x: Tensor) -> Tensor:
        return self.shape_of(self.distance(x / self.scale))

    def shape_of(self, squared: Tensor) -> Tensor:
        """The kernel as a function of the squared distance."""
        return (-squared / 2).exp()


class Matern(Stationary):
    """Matern of the four smoothnesses that have a closed form."""

    def __init__(self, kernel: Any, points: Tensor, context: Context) -> None:
        super().__init__(kernel, points, context)
        self.smoothness = float(kernel.nu)
        if self.smoothness not in (0.5, 1.5, 2.5, math.inf):
            raise context.refusal(
                kernel,
                f"nu={kernel.nu} needs a Bessel function, which torch cannot differentiate",
                remedy="Fit it with nu=0.5, 1.5, 2.5 or inf.",
            )

    def shape_of(self, squared: Tensor) -> Tensor:
        if self.smoothness == math.inf:
            return super().shape_of(squared)
        root = safe_root(squared * (2 * self.smoothness))
        factor = torch.ones_like(root)
        if self.smoothness > 1:
            factor = factor + root
        if self.smoothness > 2:
            factor = factor + root.square() / 3
        return factor * (-root).exp()


class RationalQuadratic(Stationary):
    """(1 + d^2 / (2 a l^2))^-a."""

    def __init__(self, kernel: Any, points: Tensor, context: Context) -> None:
        super().__init__(kernel, points, context)
        self.power = float(kernel.alpha)

    def shape_of(self, squared: Tensor) -> Tensor:
        return (1 + squared / (2 * self.power)) ** -self.power


class Constant(Covariance):
    """The same for all, or noise: the same for oneself and zero for others."""

    def __init__(self, count: int, cross: float, own: float) -> None:
        super().__init__()
        self.count, self.cross, self.own = count, cross, own

    def forward(self, x: Tensor) -> Tensor:
        return torch.full_like(x[:, :1], self.cross).expand(-1, self.count)

    def diagonal(self, x: Tensor) -> Tensor:
        return torch.full_like(x[:, 0], self.own)


class DotProduct(Covariance):
    """s^2 + x.y."""

    points: Tensor

    def __init__(self, kernel: Any, points: Tensor) -> None:
        super().__init__()
        self.offset = float(kernel.sigma_0) ** 2
        self.register_buffer("points", points)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.points.T + self.offset

    def diagonal(self, x: Tensor) -> Tensor:
        return x.square().sum(1) + self.offset


class Pair(Covariance):
    """Sum or product of two."""

    def __init__(self, first: Covariance, second: Covariance, *, product: bool) -> None:
        super().__init__()
        self.first, self.second, self.product = first, second, product

    def _combine(self, left: Tensor, right: Tensor) -> Tensor:
        return left * right if self.product else left + right

    def forward(self, x: Tensor) -> Tensor:
        return self._combine(self.first(x), self.second(x))

    def diagonal(self, x: Tensor) -> Tensor:
        return self._combine(self.first.diagonal(x), self.second.diagonal(x))


class Power(Covariance):
    """Another one to a power."""

    def __init__(self, base: Covariance, exponent: float) -> None:
        super().__init__()
        self.base = base
        self.exponent = int(exponent) if float(exponent).is_integer() else exponent

    def forward(self, x: Tensor) -> Tensor:
        values: Tensor = self.base(x)
        return values**self.exponent

    def diagonal(self, x: Tensor) -> Tensor:
        return self.base.diagonal(x) ** self.exponent


def safe_root(squared: Tensor) -> Tensor:
    """The square root, with the derivative zero at zero in place of infinity."""
    positive = squared > 0
    return torch.where(positive, torch.where(positive, squared, 1.0).sqrt(), 0.0)


_STATIONARY: dict[str, type[Stationary]] = {
    "RBF": Stationary,
    "Matern": Matern,
    "RationalQuadratic": RationalQuadratic,
}


def build_covariance(kernel: Any, points: Tensor, context: Context) -> Covariance:
    """The twin of a fitted kernel, whose parts may be nested."""
    kind = type(kernel).__name__
    if kind in _STATIONARY:
        return _STATIONARY[kind](kernel, points, context)
    if kind in ("Sum", "Product"):
        parts = [build_covariance(part, points, context) for part in (kernel.k1, kernel.k2)]
        return Pair(*parts, product=kind == "Product")
    if kind == "Exponentiation":
        return Power(build_covariance(kernel.kernel, points, context), kernel.exponent)
    if kind == "ConstantKernel":
        return Constant(len(points), kernel.constant_value, kernel.constant_value)
    if kind == "WhiteKernel":
        return Constant(len(points), 0.0, kernel.noise_level)
    if kind == "DotProduct":
        return DotProduct(kernel, points)
    raise context.refusal(
        kernel,
        "this kernel of a Gaussian process has no twin",
        remedy="Use RBF, Matern, RationalQuadratic, DotProduct, ConstantKernel and WhiteKernel, "
        "their sums, products and powers.",
    )
