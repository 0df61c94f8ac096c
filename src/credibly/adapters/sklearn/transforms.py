"""Scalers, projections and feature maps as modules without parameters to learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.adapters.sklearn.context import Context
from credibly.adapters.sklearn.kernels import build_kernel
from credibly.adapters.sklearn.linear import Affine
from credibly.adapters.sklearn.splines import spline_transformer


class Scale(nn.Module):
    """(x - shift) * factor, cut to [low, high] where limits are given."""

    shift: Tensor
    factor: Tensor

    def __init__(
        self, shift: Tensor, factor: Tensor, limits: tuple[float, float] | None = None
    ) -> None:
        super().__init__()
        self.register_buffer("shift", shift)
        self.register_buffer("factor", factor)
        self.limits = limits

    def forward(self, x: Tensor) -> Tensor:
        scaled = (x - self.shift) * self.factor
        return scaled if self.limits is None else scaled.clamp(*self.limits)


class Select(nn.Module):
    """Some of the columns."""

    columns: Tensor

    def __init__(self, columns: Any) -> None:
        super().__init__()
        self.register_buffer("columns", torch.as_tensor(np.asarray(columns), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        return x.index_select(1, self.columns)


class Products(nn.Module):
    """Products of columns: which ones is said by indices (f, degree); the last column is one."""

    factors: Tensor

    def __init__(self, powers: Any) -> None:
        super().__init__()
        features = powers.shape[1]
        lists = [np.repeat(np.arange(features), row) for row in powers]
        degree = max(1, *(len(row) for row in lists))
        padded = [np.pad(row, (0, degree - len(row)), constant_values=features) for row in lists]
        self.register_buffer("factors", torch.as_tensor(np.stack(padded), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        extended = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
        product = extended[:, self.factors[:, 0]]
        for column in self.factors.T[1:]:
            product = product * extended[:, column]
        return product


class Normalise(nn.Module):
    """Rows of norm one; rows that are zero stay."""

    def __init__(self, norm: str) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        if self.norm == "l2":
            squared = x.square().sum(1, keepdim=True)
            tiny = (10 * torch.finfo(x.dtype).eps) ** 2
            return x / torch.where(squared < tiny, 1.0, squared).sqrt()
        size = x.abs().sum(1, keepdim=True) if self.norm == "l1" else x.abs().amax(1, keepdim=True)
        return x / torch.where(size < 10 * torch.finfo(x.dtype).eps, 1.0, size)


class FeatureMap(nn.Module):
    """A kernel to some points, times a matrix."""

    factors: Tensor

    def __init__(self, kernel: nn.Module, factors: Tensor) -> None:
        super().__init__()
        self.kernel = kernel
        self.register_buffer("factors", factors)

    def forward(self, x: Tensor) -> Tensor:
        return torch.mm(self.kernel(x), self.factors)


class Cosines(nn.Module):
    """Random Fourier features."""

    def __init__(self, projection: Affine, factor: float) -> None:
        super().__init__()
        self.projection, self.factor = projection, factor

    def forward(self, x: Tensor) -> Tensor:
        waves: Tensor = self.projection(x)
        return waves.cos() * self.factor


def _shift_and_scale(shift: Any, scale: Any, features: int, context: Context) -> nn.Module:
    zeros, ones = np.zeros(features), np.ones(features)
    return Scale(
        context.tensor(zeros if shift is None else shift),
        context.tensor(ones if scale is None else 1 / scale),
    )


def _standard(model: Any, context: Context) -> nn.Module:
    shift = model.mean_ if model.with_mean else None
    return _shift_and_scale(shift, model.scale_, model.n_features_in_, context)


def _robust(model: Any, context: Context) -> nn.Module:
    return _shift_and_scale(model.center_, model.scale_, model.n_features_in_, context)


def _max_abs(model: Any, context: Context) -> nn.Module:
    limits = (-1.0, 1.0) if getattr(model, "clip", False) else None
    zeros = context.tensor(np.zeros(model.n_features_in_))
    return Scale(zeros, context.tensor(1 / model.scale_), limits)


def _min_max(model: Any, context: Context) -> nn.Module:
    limits = tuple(map(float, model.feature_range)) if model.clip else None
    shift = -model.min_ / model.scale_
    return Scale(context.tensor(shift), context.tensor(model.scale_), limits)  # type: ignore[arg-type]


def _principal_components(model: Any, context: Context) -> nn.Module:
    weight, mean = model.components_, getattr(model, "mean_", None)
    if getattr(model, "whiten", False):
        spread = np.sqrt(model.explained_variance_)
        weight = weight / np.maximum(spread, np.finfo(spread.dtype).eps)[:, None]
    bias = np.zeros(len(weight)) if mean is None else -weight @ mean
    return Affine(context.tensor(weight), context.tensor(bias))


def _nystroem(model: Any, context: Context) -> nn.Module:
    settings = {name: getattr(model, name) for name in ("gamma", "coef0", "degree")}
    settings |= model.kernel_params or {}
    kernel = build_kernel(model, context, model.kernel, model.components_, settings)
    return FeatureMap(kernel, context.tensor(model.normalization_.T))


def _fourier(model: Any, context: Context) -> nn.Module:
    weight = context.tensor(model.random_weights_.T)
    affine = Affine(weight, context.tensor(model.random_offset_))
    return Cosines(affine, (2.0 / model.n_components) ** 0.5)


def _function(model: Any, context: Context) -> nn.Module:
    if model.func is not None:
        raise context.refusal(
            model,
            "its function is NumPy's, not torch's",
            remedy="Leave it out of the pipeline, and pass the same in torch as "
            "credibly.Classifier(twin.net, preprocess=...).",
        )
    return nn.Identity()


ENCODE = (
    "Fill and encode the columns of categories before the model, fit it on the encoded table, and "
    "lock them: from_sklearn(model, space=Space(columns=names, locked=[...])). See docs/"
    "scikit-learn.md, Categories and gaps."
)
"""The way round for what makes numbers of categories."""


def _imputer(model: Any, context: Context) -> nn.Module:
    """On inputs without gaps it does nothing; others get a status of their own."""
    gap = model.missing_values
    if np.asarray(model.statistics_).dtype.kind not in "fiub":
        raise context.refusal(model, "it fills categories, which cannot move", remedy=ENCODE)
    plain = isinstance(gap, float) and np.isnan(gap) and not model.add_indicator
    if not plain or bool(np.isnan(model.statistics_).any()):
        raise context.refusal(
            model,
            "only missing_values=nan without indicators or empty columns has a twin",
            remedy="Fill the gaps before the pipeline.",
        )
    return nn.Identity()


TRANSFORMS: dict[str, Callable[[Any, Context], nn.Module]] = {
    "StandardScaler": _standard,
    "RobustScaler": _robust,
    "MaxAbsScaler": _max_abs,
    "MinMaxScaler": _min_max,
    "PCA": _principal_components,
    "IncrementalPCA": _principal_components,
    "TruncatedSVD": _principal_components,
    "Nystroem": _nystroem,
    "RBFSampler": _fourier,
    "PolynomialFeatures": lambda model, _: Products(model.powers_),
    "SplineTransformer": spline_transformer,
    "Normalizer": lambda model, _: Normalise(model.norm),
    "FunctionTransformer": _function,
    "SimpleImputer": _imputer,
}
