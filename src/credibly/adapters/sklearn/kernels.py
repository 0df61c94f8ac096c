"""Kernels between a batch and the fixed points of a fitted model."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from credibly.adapters.sklearn.context import Context

SMOOTH = ("linear", "poly", "polynomial", "rbf", "sigmoid", "cosine", "laplacian")


class SquaredDistance(nn.Module):
    """|x - y|^2 to fixed points y (s, d), as (n, s), by one matrix product.

    Both are taken relative to the centre of the points: |x|^2 + |y|^2 - 2 x y loses digits only
    on the scale of the points' spread, not on that of their distance from the origin.
    """

    centre: Tensor
    factors: Tensor
    offset: Tensor

    def __init__(self, points: Tensor, scale: float = 1.0) -> None:
        super().__init__()
        centre = points.mean(0)
        relative = points - centre
        # the column for |x|^2 makes the sum of all three terms a single product
        columns = [
            -2 * scale * relative.T,
            torch.full_like(relative[:1, 0], scale).expand(1, len(points)),
        ]
        self.register_buffer("centre", centre)
        self.register_buffer("factors", torch.cat(columns).contiguous())
        self.register_buffer("offset", scale * relative.square().sum(1))

    def unclamped(self, x: Tensor) -> Tensor:
        """The same times `scale`, below zero by rounding where x is one of the points."""
        relative = x - self.centre
        both = torch.cat([relative, relative.square().sum(1, keepdim=True)], dim=1)
        return torch.addmm(self.offset, both, self.factors)

    def forward(self, x: Tensor) -> Tensor:
        return self.unclamped(x).clamp(min=0)


class RBF(nn.Module):
    """exp(-gamma |x - y|^2)."""

    def __init__(self, points: Tensor, gamma: float) -> None:
        super().__init__()
        self.exponent = SquaredDistance(points, -gamma)

    def forward(self, x: Tensor) -> Tensor:
        # an exponent above zero by rounding is one by rounding, and its gradient is right
        return self.exponent.unclamped(x).exp()


class Laplacian(nn.Module):
    """exp(-gamma |x - y|_1)."""

    points: Tensor

    def __init__(self, points: Tensor, gamma: float) -> None:
        super().__init__()
        self.register_buffer("points", points)
        self.gamma = gamma

    def forward(self, x: Tensor) -> Tensor:
        # feature by feature: torch.cdist cannot be differentiated twice, and all at once is large
        pairs = zip(x.T, self.points.T, strict=True)
        lengths = sum((a[:, None] - b).abs() for a, b in pairs)
        return torch.exp(-self.gamma * lengths)


class InnerProduct(nn.Module):
    """A function of gamma x.y + coef0: linear, polynomial, sigmoid; or of the cosine."""

    points: Tensor

    def __init__(
        self, kind: str, points: Tensor, gamma: float, coef0: float, degree: float
    ) -> None:
        super().__init__()
        self.kind, self.coef0 = kind, coef0
        self.degree = int(degree) if float(degree).is_integer() else degree
        factors = unit(points) if kind == "cosine" else points
        scale = 1.0 if kind in ("linear", "cosine") else gamma
        self.register_buffer("points", scale * factors)

    def forward(self, x: Tensor) -> Tensor:
        products = functional.linear(unit(x) if self.kind == "cosine" else x, self.points)
        if self.kind in ("linear", "cosine"):
            return products
        shifted = products + self.coef0
        return shifted.tanh() if self.kind == "sigmoid" else shifted**self.degree


def unit(rows: Tensor) -> Tensor:
    """Rows of length one; a row of zeros stays."""
    return rows / length_or_one(rows.square().sum(1, keepdim=True)).sqrt()


def length_or_one(lengths: Tensor) -> Tensor:
    """Lengths to divide by: one in place of zero."""
    return torch.where(lengths == 0, torch.ones_like(lengths), lengths)


def build_kernel(
    model: Any, context: Context, kind: Any, points: Any, settings: dict[str, float | None]
) -> nn.Module:
    """The kernel of a model; a missing gamma is one over the number of features."""
    if not isinstance(kind, str) or kind not in SMOOTH:
        named = repr(kind) if isinstance(kind, str) else "a function"
        raise context.refusal(
            model,
            f"kernel={named} has no twin",
            remedy=f"Fit it with one of {', '.join(SMOOTH)}"
            + (", on the features themselves." if kind == "precomputed" else "."),
        )
    y = context.tensor(points)
    given = settings.get("gamma")
    gamma = 1.0 / y.shape[1] if given is None else float(given)
    if kind == "rbf":
        return RBF(y, gamma)
    if kind == "laplacian":
        return Laplacian(y, gamma)
    coef0, degree = settings.get("coef0"), settings.get("degree")
    return InnerProduct(
        kind, y, gamma, 1.0 if coef0 is None else float(coef0), 3 if degree is None else degree
    )


def mixed_order(groups: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
    """An order in which rows that come group by group (sizes given) are spread evenly.

    Weights of one class have one sign. Summed class by class they first grow to hundreds and then
    cancel, which leaves rounding a hundred times that of the sum; mixed, they cancel on the way.
    Solvers notice: with the smaller rounding twice as many samples converge in half the passes.
    """
    places = [(np.arange(size) + 0.5) / size for size in groups if size]
    return np.concatenate(places).argsort(kind="stable")


def shuffled(count: int) -> np.ndarray[Any, np.dtype[np.intp]]:
    """The same for rows whose groups are not known; always the same order."""
    return np.random.default_rng(0).permutation(count)


def pair_signs(classes: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Signs (P, K) by which one-versus-one decisions speak for the first class of each pair."""
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    signs = np.zeros((len(pairs), classes))
    for row, (i, j) in enumerate(pairs):
        signs[row, i], signs[row, j] = 1.0, -1.0
    return signs
