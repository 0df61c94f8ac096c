"""Scalers, projections, feature maps and splines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.adapters.sklearn.context import Context, Fixed, affine
from credibly.adapters.sklearn.kernels import build_kernel, normalise


def spline_transformer(model: Any, context: Context) -> nn.Module:
    """The twin of a fitted SplineTransformer, with its four ways to extrapolate."""
    _check(model, context)
    splines, extrapolation = model.bsplines_, model.extrapolation
    degree = int(splines[0].k)
    knots = np.stack([spline.t for spline in splines])
    edges = np.stack([knots[:, degree], knots[:, -degree - 1]])
    kept = splines[0].c.shape[1] - (0 if model.include_bias else 1)
    ends = np.stack([_ends(model, edges, order)[:, :, :kept] for order in (0, 1)])
    ends[1] *= extrapolation == "linear"
    fitted = {
        "knots": knots,  # (d, t)
        "mixing": splines[0].c[:, :kept],  # (b, columns): folds periodic splines, drops the last
        "edges": edges,  # (2, d)
        "ends": ends,  # (2, 2, d, columns): values and slopes at both edges
    }
    function = partial(_splines, degree=degree, extrapolation=extrapolation)
    return Fixed(function, **{name: context.tensor(value) for name, value in fitted.items()})


def _splines(x: Tensor, degree: int, extrapolation: str, **fitted: Tensor) -> Tensor:
    low, high = fitted["edges"]
    inside = x
    if extrapolation == "periodic":
        period = high - low
        inside = low + torch.remainder(x - low, torch.where(period > 0, period, 1.0))
        inside = torch.where(period > 0, inside, 0.0)  # as scikit-learn does
    elif extrapolation != "continue":
        inside = torch.minimum(torch.maximum(x, low), high)
    found = _basis(inside, fitted["knots"], degree) @ fitted["mixing"]
    if extrapolation in ("constant", "linear"):
        for edge, outside, value, slope in zip(
            (low, high), (x < low, x > high), *fitted["ends"], strict=True
        ):
            line = value + (x - edge)[:, :, None] * slope
            found = torch.where(outside[:, :, None], line, found)
    return found.flatten(1)


def _basis(x: Tensor, knots: Tensor, degree: int) -> Tensor:
    """All basis functions (n, d, b): those that are not zero, by de Boor's recurrence.

    The recurrence works on the polynomial piece it is given, so the first and the last piece
    continue beyond the knots, as SciPy's do.
    """
    features, count = knots.shape
    piece = torch.searchsorted(knots, x.detach().T.contiguous(), right=True).T - 1
    piece = piece.clamp(degree, count - degree - 2)
    rows = knots.expand(len(x), features, count)
    values = [torch.ones_like(x)]
    for order in range(1, degree + 1):
        values = _next_order(values, x, rows, piece, order)
    index = piece[:, :, None] - degree + torch.arange(degree + 1, device=x.device)
    empty = x.new_zeros(len(x), features, count - degree - 1)
    return empty.scatter(2, index, torch.stack(values, dim=2))


def _next_order(
    values: list[Tensor], x: Tensor, rows: Tensor, piece: Tensor, order: int
) -> list[Tensor]:
    """The order + 1 splines of the next order on the piece of each sample."""
    found = [torch.zeros_like(x) for _ in range(order + 1)]
    for r, value in enumerate(values):
        right = rows.gather(2, (piece + r + 1)[:, :, None]).squeeze(2)
        left = rows.gather(2, (piece + r + 1 - order)[:, :, None]).squeeze(2)
        gap = right - left  # zero between equal knots, whose splines are zero
        share = torch.where(gap > 0, value / torch.where(gap > 0, gap, 1.0), 0.0)
        found[r] = found[r] + (right - x) * share
        found[r + 1] = found[r + 1] + (x - left) * share
    return found


def _ends(model: Any, edges: Any, order: int) -> Any:
    """Values or slopes (2, d, b) at both ends, of the splines that scikit-learn extrapolates."""
    degree = int(model.bsplines_[0].k)
    reach = max(degree, 2) if model.extrapolation == "linear" else degree
    splines = model.bsplines_
    sides = [[s(edge, nu=order) for s, edge in zip(splines, side, strict=True)] for side in edges]
    ends = np.array(sides)
    ends[0, :, reach:] = 0.0
    ends[1, :, : ends.shape[2] - reach] = 0.0
    return ends


def _check(model: Any, context: Context) -> None:
    why = "splines of degree 0 are piecewise constant: no gradient"
    context.require(model.degree > 0, model, why, "Fit it with degree=3.")
    context.require(
        model.extrapolation != "error",
        model,
        "extrapolation='error' has no value beyond the knots, where an input may move",
        "Fit it with extrapolation='linear', 'constant', 'continue' or 'periodic'.",
    )
    context.require(
        model.degree > 1 or model.extrapolation != "linear" or len(model.bsplines_) == 1,
        model,
        "with degree=1 and extrapolation='linear' scikit-learn takes other ends for every feature "
        "after the first, and jumps there",
        "Fit it with extrapolation='continue', which is what is meant, or degree=3.",
    )


Limits = tuple[float, float]


def select(columns: Any) -> Fixed:
    """Some of the columns."""
    index = torch.as_tensor(np.asarray(columns), dtype=torch.long)
    return Fixed(partial(torch.index_select, dim=1), index=index)


def _scale(x: Tensor, shift: Tensor, factor: Tensor, limits: Limits | None) -> Tensor:
    scaled = (x - shift) * factor
    return scaled if limits is None else scaled.clamp(*limits)


def _scaler(context: Context, shift: Any, factor: Any, limits: Limits | None = None) -> nn.Module:
    """(x - shift) * factor, cut to the limits."""
    function = partial(_scale, limits=limits)
    return Fixed(function, shift=context.tensor(shift), factor=context.tensor(factor))


def _standard(model: Any, context: Context) -> nn.Module:
    """StandardScaler and RobustScaler."""
    robust = hasattr(model, "center_")
    centre = model.center_ if robust else model.mean_ if model.with_mean else None
    factor = 1.0 if model.scale_ is None else 1 / model.scale_
    return _scaler(context, 0.0 if centre is None else centre, factor)


def _max_abs(model: Any, context: Context) -> nn.Module:
    limits = (-1.0, 1.0) if getattr(model, "clip", False) else None
    return _scaler(context, 0.0, 1 / model.scale_, limits)


def _min_max(model: Any, context: Context) -> nn.Module:
    low, high = model.feature_range
    limits = (float(low), float(high)) if model.clip else None
    return _scaler(context, -model.min_ / model.scale_, model.scale_, limits)


def _principal_components(model: Any, context: Context) -> nn.Module:
    weight, mean = model.components_, getattr(model, "mean_", None)
    if getattr(model, "whiten", False):
        spread = np.sqrt(model.explained_variance_)
        weight = weight / np.maximum(spread, np.finfo(spread.dtype).eps)[:, None]
    bias = np.zeros(len(weight)) if mean is None else -weight @ mean
    return affine(context.tensor(weight), context.tensor(bias))


def _nystroem(model: Any, context: Context) -> nn.Module:
    kernel = build_kernel(model, context, model.components_, model.kernel_params)
    return nn.Sequential(kernel, Fixed(torch.mm, mat2=context.tensor(model.normalization_.T)))


def _fourier(model: Any, context: Context) -> nn.Module:
    """Random Fourier features."""
    waves = affine(context.tensor(model.random_weights_.T), context.tensor(model.random_offset_))
    return nn.Sequential(waves, Fixed(partial(_cosines, factor=(2.0 / model.n_components) ** 0.5)))


def _cosines(x: Tensor, factor: float) -> Tensor:
    return x.cos() * factor


def _polynomial(model: Any, context: Context) -> nn.Module:  # noqa: ARG001
    """Products of columns, by their indices (f, degree); one past the last column is one."""
    features = model.powers_.shape[1]
    lists = [np.repeat(np.arange(features), row) for row in model.powers_]
    degree = max(1, *(len(row) for row in lists))
    padded = [np.pad(row, (0, degree - len(row)), constant_values=features) for row in lists]
    return Fixed(_products, factors=torch.as_tensor(np.stack(padded), dtype=torch.long))


def _products(x: Tensor, factors: Tensor) -> Tensor:
    extended = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
    product = extended[:, factors[:, 0]]
    for column in factors.T[1:]:
        product = product * extended[:, column]
    return product


def _normalizer(model: Any, context: Context) -> nn.Module:  # noqa: ARG001
    return Fixed(partial(normalise, norm=model.norm))


def _function(model: Any, context: Context) -> nn.Module:
    context.require(
        model.func is None,
        model,
        "its function is NumPy's, not torch's",
        "Leave it out of the pipeline, and pass the same in torch as "
        "credibly.Classifier(twin.net, preprocess=...).",
    )
    return nn.Identity()


ENCODE = (
    "Fill and encode the columns of categories before the model, fit it on the encoded table, and "
    "lock them: from_sklearn(model, space=Space(columns=names, locked=[...])). See docs/how-to/"
    "scikit-learn.md, Categories and missing values."
)
"""What to do about steps that turn categories into numbers."""


def _imputer(model: Any, context: Context) -> nn.Module:
    """It does nothing to complete rows; the profile gives incomplete ones a status."""
    numeric = np.asarray(model.statistics_).dtype.kind in "fiub"
    context.require(numeric, model, "it fills categories, which cannot move", ENCODE)
    gap = model.missing_values
    plain = isinstance(gap, float) and np.isnan(gap) and not model.add_indicator
    context.require(
        plain and not bool(np.isnan(model.statistics_).any()),
        model,
        "only missing_values=nan without indicators or empty columns has a twin",
        "Fill in missing values before the pipeline.",
    )
    return nn.Identity()


TRANSFORMS: dict[str, Callable[[Any, Context], nn.Module]] = {
    "StandardScaler": _standard,
    "RobustScaler": _standard,
    "MaxAbsScaler": _max_abs,
    "MinMaxScaler": _min_max,
    "PCA": _principal_components,
    "IncrementalPCA": _principal_components,
    "TruncatedSVD": _principal_components,
    "Nystroem": _nystroem,
    "RBFSampler": _fourier,
    "PolynomialFeatures": _polynomial,
    "SplineTransformer": spline_transformer,
    "Normalizer": _normalizer,
    "FunctionTransformer": _function,
    "SimpleImputer": _imputer,
}
