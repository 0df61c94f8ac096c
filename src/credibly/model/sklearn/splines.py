"""SplineTransformer: B-splines of every feature, with its ways of going beyond the knots."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.model.sklearn.context import Context


class Splines(nn.Module):
    """The k + 1 splines that do not vanish, by de Boor's recurrence, put in their columns.

    The recurrence works on the polynomial piece it is given, so that the first and the last piece
    go on beyond the knots, as SciPy's do.
    """

    knots: Tensor  # (d, t)
    mixing: Tensor  # (basis functions, columns): folds periodic splines, drops the last one
    slopes: Tensor  # (2, d, columns): at both ends, for linear extrapolation
    low: Tensor
    high: Tensor

    def __init__(self, model: Any, context: Context) -> None:
        super().__init__()
        splines = model.bsplines_
        self.degree, self.extrapolation = int(splines[0].k), model.extrapolation
        knots = np.stack([spline.t for spline in splines])
        low, high = knots[:, self.degree], knots[:, -self.degree - 1]
        kept = splines[0].c.shape[1] - (0 if model.include_bias else 1)
        ends = [
            [s(edge, nu=1) for s, edge in zip(splines, side, strict=True)] for side in (low, high)
        ]
        for name, value in {
            "knots": knots,
            "mixing": splines[0].c[:, :kept],
            "slopes": np.array(ends)[:, :, :kept],
            "low": low,
            "high": high,
        }.items():
            self.register_buffer(name, context.tensor(value))

    def forward(self, x: Tensor) -> Tensor:
        inside = x
        if self.extrapolation == "periodic":
            inside = self.low + torch.remainder(x - self.low, self.high - self.low)
        elif self.extrapolation in ("constant", "linear"):
            inside = torch.minimum(torch.maximum(x, self.low), self.high)
        values = self._basis(inside) @ self.mixing
        if self.extrapolation == "linear":
            below, above = (x - self.low).clamp(max=0), (x - self.high).clamp(min=0)
            values = (
                values + below[:, :, None] * self.slopes[0] + above[:, :, None] * self.slopes[1]
            )
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


def _raised(
    values: list[Tensor], x: Tensor, rows: Tensor, piece: Tensor, order: int
) -> list[Tensor]:
    """The order + 1 splines of the next order on the piece of each sample."""
    raised = [torch.zeros_like(x) for _ in range(order + 1)]
    for r, value in enumerate(values):
        right = rows.gather(2, (piece + r + 1)[:, :, None]).squeeze(2)
        left = rows.gather(2, (piece + r + 1 - order)[:, :, None]).squeeze(2)
        share = value / (right - left)
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
