"""Whether ordinary inputs that the network finds alike have the class that it predicts.

The trust score of Jiang et al. (2018) in the last hidden layer, with the network's own classes in
the place of labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from credibly.decide.typicality import nearest
from credibly.model.memory import most_compared

ORDERS = (1, 3)
"""Neighbours that are measured: the nearest is sharp, the third steady."""

FLOOR = 1e-3
"""Smallest distance between features of length one: below it rounding decides."""


@dataclass(frozen=True, eq=False)
class Agreement:
    """Log of the distance to other classes over that to the same class, among ordinary inputs.

    Attributes:
        points: features of the ordinary inputs (n, d), of length one.
        classes: what the network predicts for them (n,).
    """

    points: Tensor
    classes: Tensor

    def of_new(self, points: Tensor, predicted: Tensor) -> Tensor:
        """The agreement (N,) of inputs; NaN where no ordinary input has the class, or all have."""
        return self._found(points, predicted, own=False)

    def of_own(self) -> Tensor:
        """The same (n,) of each ordinary input, among the others."""
        return self._found(self.points, self.classes, own=True)

    def _found(self, points: Tensor, predicted: Tensor, *, own: bool) -> Tensor:
        here, classes = self.points.to(points), self.classes.to(points.device)
        found, size = [], most_compared(points.device)
        for first in range(0, len(points), size):
            part, asked = points[first : first + size], predicted[first : first + size]
            same = classes == asked.to(points.device)[:, None]
            others = torch.ones_like(same)
            if own:
                rows = torch.arange(len(part), device=points.device)
                others[rows, rows + first] = False
            apart, beside = (_logs(part, here, who) for who in (~same, same & others))
            found.append((apart - beside).mean(1))
        return torch.cat(found).cpu()


def _logs(points: Tensor, here: Tensor, allowed: Tensor) -> Tensor:
    """Logs of distances (N, orders); that of the last allowed one where there are fewer."""
    most = min(ORDERS[-1], len(here))
    found = nearest(points, here, most, allowed).clamp(min=FLOOR)
    found = found.where(found.isfinite(), -torch.inf).cummax(1).values  # the last one that is known
    found = found.where(found > 0, torch.nan)
    return found[:, [min(order, most) - 1 for order in ORDERS]].log()
