"""From the features that may move to plain coordinates in which risk is the squared distance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from credibly._validation import require
from credibly.model.space import Space
from credibly.types import Bounds, finite_rows

_ROUNDS = 3
"""Times that bounds are tightened; one is enough unless several roundings add up."""


@dataclass(frozen=True, eq=False)
class Coordinates:
    """An isometry: x = origin + (u - u(origin)) * scale, over the features that move.

    A group of tied features has one coordinate; its unit is chosen so that |u - u0|^2 is still the
    sum of the squared moves of all its features, each in its scale.

    Attributes:
        origin: the values of all features of the varied leaves, flat (n, D).
        start: the coordinates of the origin (n, U).
        slot: the coordinate of each feature (D,); -1: locked.
        factor: move of a feature for a unit of its coordinate (D,).
        low: smallest value of each feature (D,), or None.
        high: largest value of each feature (D,), or None.
        plain: whether every feature has its own coordinate, in order: then there is no indexing.
    """

    origin: Tensor
    start: Tensor
    slot: Tensor
    factor: Tensor
    low: Tensor | None = None
    high: Tensor | None = None
    plain: bool = False

    @staticmethod
    def of(space: Space, parts: Sequence[tuple[str, Tensor]]) -> Coordinates:
        """The coordinates of the leaves `parts`, path and values (n, ...)."""
        shapes = [(path, tuple(leaf.shape[1:])) for path, leaf in parts]
        scale = torch.cat([space.scale_of(*where) for where in shapes])
        locked = torch.cat([space.locked_mask(*where) for where in shapes])
        slot = _slots(locked, torch.cat([space.tied_numbers(*where) for where in shapes]))
        origin = torch.cat([leaf.flatten(1) for _, leaf in parts], dim=1)
        moving, expected = slot >= 0, "at least one feature that may move"
        remedy = "Unlock the features the question is about."
        require(bool(moving.any()), "locked", expected, "all of them locked", remedy)
        sizes = torch.bincount(slot[moving])
        factor = torch.where(moving, scale / sizes[slot.clamp(min=0)].double().sqrt(), 0.0)
        _check_precision(factor.to(origin)[moving.to(origin.device)])
        low, high = map(torch.cat, zip(*(space.bounds_of(*w) for w in shapes), strict=True))
        bounded = bool((low > -torch.inf).any() or (high < torch.inf).any())
        bare = Coordinates(
            origin,
            origin[:, :0],
            slot.to(origin.device),
            factor.to(origin),
            low.to(origin) if bounded else None,
            high.to(origin) if bounded else None,
            plain=bool(torch.equal(slot, _count_up(slot))),
        )
        bare.check_inside()
        return replace(bare, start=bare.encode(origin))

    def select(self, rows: Tensor | slice) -> Coordinates:
        """Those of the chosen samples."""
        return replace(self, origin=self.origin[rows], start=self.start[rows])

    def based_at(self, values: Tensor) -> Coordinates:
        """The same around other values (n, D), and attached to them."""
        return replace(self, origin=values, start=self.encode(values))

    def encode(self, values: Tensor) -> Tensor:
        """Coordinates (n, U) of flat values (n, D): the mean over the features of a group."""
        if self.plain:
            return values / self.factor
        moving = self.slot >= 0
        slot, units = self.slot[moving], values[:, moving] / self.factor[moving]
        sizes = torch.bincount(slot)
        sums = torch.zeros(len(values), len(sizes), dtype=values.dtype, device=values.device)
        return sums.index_add(1, slot, units) / sizes

    def decode(self, u: Tensor) -> Tensor:
        """Flat values (n, D); at the origin's own coordinates exactly the origin."""
        move = u - self.start
        if not self.plain:
            move = move.index_select(1, self.slot.clamp(min=0))
        return self.origin + move * self.factor

    def limits(self, bounds: Bounds | None) -> tuple[Tensor, Tensor] | None:
        """Bounds of the coordinates (n, U), from those of the space and those of the caller."""
        if bounds is None and self.low is None:
            return None
        low, high = self._feature_limits(bounds)
        moving = self.slot >= 0
        down = ((low - self.origin)[:, moving] / self.factor[moving]).clamp(max=0)
        up = ((high - self.origin)[:, moving] / self.factor[moving]).clamp(min=0)
        least, most = self.start + self._tightest(down), self.start - self._tightest(-up)
        for _ in range(_ROUNDS):  # rounding may carry a feature over its bound
            under, over = low - self.decode(least), self.decode(most) - high
            least = self._inward(least, under, 1.0)
            most = self._inward(most, over, -1.0)
        return least, most

    def _tightest(self, values: Tensor) -> Tensor:
        """The largest number of each group (n, U), from one per moving feature."""
        slot = self.slot[self.slot >= 0].expand(len(values), -1)
        return torch.full_like(self.start, -torch.inf).scatter_reduce(1, slot, values, "amax")

    def _inward(self, limit: Tensor, excess: Tensor, sign: float) -> Tensor:
        """Coordinates moved back, towards the start, by what their features are too far out."""
        moving = self.slot >= 0
        back = self._tightest(excess[:, moving] / self.factor[moving])
        moved = torch.nextafter(limit + 2 * sign * back, torch.full_like(limit, sign * torch.inf))
        return torch.where(back > 0, moved, limit)

    def _feature_limits(self, bounds: Bounds | None) -> tuple[Tensor, Tensor]:
        low, high = (-torch.inf, torch.inf) if bounds is None else bounds
        lowest = torch.full_like(self.factor, low)
        highest = torch.full_like(self.factor, high)
        if self.low is not None and self.high is not None:
            lowest = torch.maximum(lowest, self.low)
            highest = torch.minimum(highest, self.high)
        return lowest, highest

    def free_values(self, values: Tensor) -> Tensor:
        """Those of flat values (n, D) that may move."""
        return values[:, self.slot >= 0]

    def shared(self) -> Tensor:
        """Coordinates (U,) that several tied features have in common."""
        return torch.bincount(self.slot[self.slot >= 0]) > 1

    def outside(self, bounds: Bounds | None) -> Tensor:
        """Samples (n,) in which a feature that may move breaks the bounds, the space's or these."""
        low, high = self._feature_limits(bounds)
        return self.free_values((self.origin < low) | (self.origin > high)).any(1)

    def check_inside(self) -> None:
        """The inputs themselves must keep the bounds of features that may move.

        Samples with an infinite feature are left to their own status.
        """
        outside = int((self.outside(None) & finite_rows(self.free_values(self.origin))).sum())
        expected = "bounds that hold for the inputs themselves"
        remedy = "Widen the bounds, or clamp the inputs first."
        require(outside == 0, "bounds", expected, f"{outside} samples outside of them", remedy)


def _check_precision(factor: Tensor) -> None:
    smallest, largest = float(factor.min()), float(factor.max())
    kept = torch.finfo(factor.dtype)
    expected, got = f"numbers that {factor.dtype} can hold", f"{smallest:.3g} to {largest:.3g}"
    remedy = "Rescale the features, or use float64."
    require(kept.tiny <= smallest and largest <= kept.max, "scale", expected, got, remedy)


def _slots(locked: Tensor, tied: Tensor) -> Tensor:
    """Number the coordinates in the order of their first features."""
    own = tied.max().clamp(min=-1) + 1 + _count_up(tied)
    keys = torch.where(tied >= 0, tied, own)[~locked]
    slot = torch.full_like(tied, -1)
    unique, inverse = torch.unique(keys, return_inverse=True)
    first = torch.full_like(unique, len(keys)).scatter_reduce(0, inverse, _count_up(keys), "amin")
    rank = torch.empty_like(first)
    rank[first.argsort()] = _count_up(unique)
    slot[~locked] = rank[inverse]
    return slot


def _count_up(like: Tensor) -> Tensor:
    """0, 1, 2, ..., one per entry of `like`, on its device and not on torch's default device."""
    return torch.arange(len(like), device=like.device)
