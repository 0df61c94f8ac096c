"""SplineTransformer: B-splines of every feature, and its four ways to extrapolate."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.adapters.sklearn.context import Context
from credibly.adapters.sklearn.fixed import Fixed


def spline_transformer(model: Any, context: Context) -> nn.Module:
    """The twin of a fitted SplineTransformer."""
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
