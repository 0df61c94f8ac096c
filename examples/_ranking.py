"""How well a score puts right predictions above wrong ones."""

from __future__ import annotations

import torch
from torch import Tensor


def ranks_right_above_wrong(score: Tensor, right: Tensor) -> float:
    """Share of pairs, one right and one wrong, in which the right one scores higher (AUROC).

    A tie counts half. NaN where all predictions are right, or all wrong.
    """
    above = score[right].double()[:, None] - score[~right].double()[None]
    return float(((above > 0).double() + (above == 0).double() / 2).mean())


def interval(
    score: Tensor, right: Tensor, *, against: Tensor | None = None, draws: int = 400
) -> tuple[float, float]:
    """Where the middle 90 % of the same number lies over samples drawn again (bootstrap).

    With another score `against`, of the difference between the two on the same draws.
    """
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(draws):
        rows = torch.randint(len(score), (len(score),), generator=generator)
        value = ranks_right_above_wrong(score[rows], right[rows])
        if against is not None:
            value -= ranks_right_above_wrong(against[rows], right[rows])
        found.append(value)
    low, high = torch.tensor(found).nanquantile(torch.tensor([0.05, 0.95])).tolist()
    return low, high
