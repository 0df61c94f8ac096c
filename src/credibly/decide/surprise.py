"""How rare a number is among those of ordinary inputs: surprise, and conformal p-values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from credibly.errors import FileFormatError
from credibly.types import CPU

FEWEST = 16
"""Ordinary values beyond a knot, at least: fewer do not tell where a quantile is."""


@dataclass(frozen=True)
class Surprise:
    """-log of the share of ordinary values that are as large, as a function of the value.

    Between quantiles that halve the rest (all, 1/2, 1/4, 1/8, ...) it is linear. Beyond the last it
    goes on as for an exponential tail, so that values that no ordinary input reaches still differ:
    plain ranks tie there, and the rarest of several signals could never be rarer than their number.
    The scale of the tail is that of its median or, where that is shorter, of its second largest
    value: signals with long tails would else look stranger than others on ordinary inputs.

    Attributes:
        knots: values at which it is 0, log 2, 2 log 2, ...; they rise strictly.
        rises: what it is there.
        slope: of the tail.
    """

    knots: tuple[float, ...]
    rises: tuple[float, ...]
    slope: float

    @classmethod
    def fit(cls, values: Tensor, *, robust: bool = False) -> Surprise | None:
        """From the values (n,) of ordinary inputs; None if they do not vary.

        With `robust`, the scale of the tail is that of its median alone: a few broken inputs among
        the ordinary ones do not set it.
        """
        known = values[~values.isnan()].double().cpu().sort().values
        if len(known) < 2 or not bool(known[0] < known[-1]):
            return None
        halvings = max(1, int(math.log2(max(len(known) / FEWEST, 2.0))))
        levels = [1 - 0.5**k for k in range(halvings + 1)]
        found = known.quantile(torch.tensor(levels, dtype=known.dtype, device=CPU)).tolist()
        knots, rises = [found[0]], [0.0]
        for k, knot in enumerate(found[1:], start=1):
            if knot > knots[-1]:
                knots.append(knot)
                rises.append(k * math.log(2))
        beyond = known[known > knots[-1]] - knots[-1]
        # half of an exponential tail lies below log 2 of its scale
        scale = float(beyond.median()) / math.log(2) if len(beyond) else 0.0
        if len(beyond) > 2 and not robust:
            scale = max(scale, float(beyond[-2]) / (math.log(len(beyond) / 2) + 1))
        spreads = (knots[-1] - float(known.quantile(0.25)), knots[-1] - knots[0], scale)
        spread = next(width for width in spreads if width > 0)
        return cls(tuple(knots), tuple(rises), 1 / max(scale, 1e-3 * spread))

    def __call__(self, values: Tensor) -> Tensor:
        """Surprise (n,); NaN stays NaN."""
        x = values.double().cpu().numpy()
        inside = np.where(np.isnan(x), x, np.interp(x, self.knots, self.rises))
        beyond = self.rises[-1] + (x - self.knots[-1]) * self.slope
        return torch.from_numpy(np.where(x > self.knots[-1], beyond, inside))

    def as_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return {"knots": list(self.knots), "rises": list(self.rises), "slope": self.slope}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Surprise:
        """Read what `as_json` wrote."""
        knots, rises = (tuple(map(float, content[name])) for name in ("knots", "rises"))
        slope = float(content["slope"])
        rising = all(a < b for a, b in (*pairwise(knots), *pairwise(rises)))
        finite = all(map(math.isfinite, (*knots, *rises, slope)))
        if len(knots) != len(rises) or not knots or not rising or not finite:
            raise FileFormatError("expected rising knots, as many rises, all of them finite")
        if rises[0] < 0 or slope <= 0:
            raise FileFormatError("expected a surprise that begins at its first knots and rises")
        return cls(knots, rises, slope)


def inputs_needed(false_alarms: float) -> int:
    """Ordinary inputs without which no p-value is as small as this rate."""
    return math.ceil(1 / false_alarms - 1 - 1e-9)
