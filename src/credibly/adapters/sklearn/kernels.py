"""Kernels between a batch and the fixed points of a fitted model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from credibly.adapters.sklearn.context import Context, Fixed, affine, power

Order = np.ndarray[Any, np.dtype[np.intp]]
SMOOTH = ("linear", "poly", "polynomial", "rbf", "sigmoid", "cosine", "laplacian")


def distance_terms(points: Tensor, scale: float = 1.0) -> dict[str, Tensor]:
    """The fixed tensors of `squared_distance` to points (s, d)."""
    centre = points.mean(0)
    relative = points - centre
    # the column for |x|^2 makes the sum of all three terms a single product
    column = torch.full_like(relative[:1, 0], scale).expand(1, len(points))
    factors = torch.cat([-2 * scale * relative.T, column]).contiguous()
    return {"centre": centre, "factors": factors, "offset": scale * relative.square().sum(1)}


def squared_distance(x: Tensor, centre: Tensor, factors: Tensor, offset: Tensor) -> Tensor:
    """Scale times |x - y|^2 to fixed points y, as (n, s), by one matrix product.

    Both are taken relative to the centre of the points: |x|^2 + |y|^2 - 2 x y then loses digits
    only on the scale of the points' spread, not on that of their distance from the origin. Where
    x is one of the points, rounding can give the wrong sign.
    """
    relative = x - centre
    both = torch.cat([relative, relative.square().sum(1, keepdim=True)], dim=1)
    return torch.addmm(offset, both, factors)


def _laplacian(x: Tensor, points: Tensor, gamma: float) -> Tensor:
    # feature by feature: torch.cdist cannot be differentiated twice, and all at once is large
    pairs = zip(x.T, points.T, strict=True)
    lengths: Tensor = sum((a[:, None] - b).abs() for a, b in pairs)
    return torch.exp(-gamma * lengths)


def normalise(x: Tensor, norm: str = "l2") -> Tensor:
    """Rows of norm one; rows of zeros do not change."""
    least = 10 * torch.finfo(x.dtype).eps
    if norm == "l2":
        squared = x.square().sum(1, keepdim=True)
        return x / torch.where(squared < least**2, 1.0, squared).sqrt()
    size = x.abs().sum(1, keepdim=True) if norm == "l1" else x.abs().amax(1, keepdim=True)
    return x / torch.where(size < least, 1.0, size)


def build_kernel(
    model: Any, context: Context, points: Any, params: Mapping[str, float] | None = None
) -> nn.Module:
    """The kernel of a model to its points; `params` replace what the model leaves at None."""
    kind = model.kernel
    named = repr(kind) if isinstance(kind, str) else "a function"
    features = ", on the features themselves" if kind == "precomputed" else ""
    remedy = f"Fit it with one of {', '.join(SMOOTH)}{features}."
    smooth = isinstance(kind, str) and kind in SMOOTH
    context.require(smooth, model, f"kernel={named} has no twin", remedy)
    y = context.tensor(points)

    def setting(name: str, default: float) -> float:
        # an SVC keeps the number that it found for gamma='scale' as _gamma
        given = getattr(model, f"_{name}", getattr(model, name))
        return float((params or {}).get(name, default) if given is None else given)

    gamma = setting("gamma", 1 / y.shape[1])
    if kind == "rbf":
        # rounding can give an exponent slightly above zero: no harm, its gradient is right
        return nn.Sequential(Fixed(squared_distance, **distance_terms(y, -gamma)), Fixed(torch.exp))
    if kind == "laplacian":
        return Fixed(partial(_laplacian, gamma=gamma), points=y)
    if kind == "linear":
        return Fixed(functional.linear, weight=y)
    if kind == "cosine":
        return nn.Sequential(Fixed(normalise), Fixed(functional.linear, weight=normalise(y)))
    inner = affine(gamma * y, context.tensor(setting("coef0", 1)))
    return nn.Sequential(inner, nn.Tanh() if kind == "sigmoid" else power(setting("degree", 3)))


def mixed_order(groups: Any) -> Order:
    """An order that spreads rows evenly that come group by group (sizes given).

    Weights of one class have one sign. Summed class by class they first grow to hundreds and then
    cancel, which leaves rounding a hundred times that of the sum; mixed, they cancel on the way.
    This matters: with the smaller rounding twice as many samples converge in half the passes.
    """
    places = [(np.arange(size) + 0.5) / size for size in groups if size]
    return np.concatenate(places).argsort(kind="stable")


def shuffled(count: int) -> Order:
    """The same for rows whose groups are not known; always the same order."""
    return np.random.default_rng(0).permutation(count)
