"""SplineTransformer: B-splines of every feature, with its ways of going beyond the knots."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.adapters.sklearn.context import Context


class Splines(nn.Module):
    """The k + 1 splines that do not vanish, by de Boor's recurrence, put in their columns.

    The recurrence works on the polynomial piece it is given, so that the first and the last piece
    go on beyond the knots, as SciPy's do.
    """

    knots: Tensor  # (d, t)
    mixing: Tensor  # (basis functions, columns): folds periodic splines, drops the last one
    values: Tensor  # (2, d, columns): at both ends, for constant and linear extrapolation
    slopes: Tensor  # likewise
    low: Tensor
    high: Tensor

    def __init__(self, model: Any, context: Context) -> None:
        super().__init__()
        splines = model.bsplines_
        self.degree, self.extrapolation = int(splines[0].k), model.extrapolation
        knots = np.stack([spline.t for spline in splines])
        low, high = knots[:, self.degree], knots[:, -self.degree - 1]
        kept = splines[0].c.shape[1] - (0 if model.include_bias else 1)
        linear = float(self.extrapolation == "linear")
        for name, value in {
            "knots": knots,
            "mixing": splines[0].c[:, :kept],
            "values": _ends(model, (low, high), 0)[:, :, :kept],
            "slopes": linear * _ends(model, (low, high), 1)[:, :, :kept],
            "low": low,
            "high": high,
        }.items():
            self.register_buffer(name, context.tensor(value))

    def forward(self, x: Tensor) -> Tensor:
        if self.extrapolation == "continue":
            return (self._basis(x) @ self.mixing).flatten(1)
        if self.extrapolation == "periodic":
            period = self.high - self.low
            inside = self.low + torch.remainder(x - self.low, torch.where(period > 0, period, 1.0))
            inside = torch.where(period > 0, inside, 0.0)  # as scikit-learn does
            return (self._basis(inside) @ self.mixing).flatten(1)
        values = self._basis(torch.minimum(torch.maximum(x, self.low), self.high)) @ self.mixing
        for side, edge, outside in ((0, self.low, x < self.low), (1, self.high, x > self.high)):
            line = self.values[side] + (x - edge)[:, :, None] * self.slopes[side]
            values = torch.where(outside[:, :, None], line, values)
        return values.flatten(1)

    def _basis(self, x: Tensor) -> Tensor:
        """All basis functions (n, d, b)."""
        degree, (features, count) = self.degree, self.knots.shape
        columns = x.detach().T.contiguous()
        piece = torch.searchsorted(self.knots, columns, right=True).T - 1
        piece = piece.clamp(degree, count - degree - 2)
        rows = self.knots.expand(len(x), features, count)
        values = [torch.ones_like(x)]
        for order in range(1, degree + 1):
            values = _raised(values, x, rows, piece, order)
        index = piece[:, :, None] - degree + torch.arange(degree + 1, device=x.device)
        empty = x.new_zeros(len(x), features, count - degree - 1)
        return empty.scatter(2, index, torch.stack(values, dim=2))


def _ends(model: Any, edges: tuple[Any, Any], order: int) -> Any:
    """Values or slopes (2, d, b) at both ends, of the splines that scikit-learn extrapolates."""
    degree = int(model.bsplines_[0].k)
    reach = max(degree, 2) if model.extrapolation == "linear" else degree
    sides = [
        [spline(edge, nu=order) for spline, edge in zip(model.bsplines_, side, strict=True)]
        for side in edges
    ]
    ends = np.array(sides)
    ends[0, :, reach:] = 0.0
    ends[1, :, : ends.shape[2] - reach] = 0.0
    return ends


def _raised(
    values: list[Tensor], x: Tensor, rows: Tensor, piece: Tensor, order: int
) -> list[Tensor]:
    """The order + 1 splines of the next order on the piece of each sample."""
    raised = [torch.zeros_like(x) for _ in range(order + 1)]
    for r, value in enumerate(values):
        right = rows.gather(2, (piece + r + 1)[:, :, None]).squeeze(2)
        left = rows.gather(2, (piece + r + 1 - order)[:, :, None]).squeeze(2)
        gap = right - left  # zero between equal knots, whose splines vanish
        share = torch.where(gap > 0, value / torch.where(gap > 0, gap, 1.0), 0.0)
        raised[r] = raised[r] + (right - x) * share
        raised[r + 1] = raised[r + 1] + (x - left) * share
    return raised


def spline_transformer(model: Any, context: Context) -> nn.Module:
    """Refuses what has no gradient or no value."""
    if model.degree == 0:
        raise context.refusal(
            model,
            "splines of degree 0 are piecewise constant: no gradient",
            remedy="Fit it with degree=3.",
        )
    if model.extrapolation == "error":
        raise context.refusal(
            model,
            "extrapolation='error' has no value beyond the knots, where an input may move",
            remedy="Fit it with extrapolation='linear', 'constant', 'continue' or 'periodic'.",
        )
    if model.degree == 1 and model.extrapolation == "linear" and len(model.bsplines_) > 1:
        raise context.refusal(
            model,
            "with degree=1 and extrapolation='linear' scikit-learn takes other ends for every "
            "feature after the first, and jumps there",
            remedy="Fit it with extrapolation='continue', which is what is meant, or degree=3.",
        )
    return Splines(model, context)
