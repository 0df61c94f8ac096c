"""Where inputs end: one pair of numbers for all features, or one for each channel."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.model.inputs import finite_rows
from credibly.profile.arguments import check_bounds
from credibly.types import real_number

End = float | tuple[float, ...]
Box = tuple[End, End]
"""Smallest and largest value of a feature; a tuple has one number for each entry of axis 1."""


def check_box(bounds: object, x0: Tensor) -> Box | None:
    """Bounds as numbers or as tuples of numbers that the inputs themselves keep."""
    bounds = plain_box(bounds)
    if not isinstance(bounds, tuple | list) or not apart(bounds):
        return check_bounds(bounds, x0)  # type: ignore[arg-type]
    count = x0.shape[1] if x0.dim() > 1 else 0
    found = [_end(end, count) for end in bounds]
    low, high = found if len(found) == 2 else (None, None)
    if low is None or high is None or not all(a < b for a, b in zip(low, high, strict=True)):
        raise InvalidArgumentError(
            "bounds",
            expected=f"(low, high), each a number or {count} of them, one a channel, low < high",
            got=repr(bounds),
            remedy="For pixels pass (0.0, 1.0); for normalised ones tuples (0 - mean) / std and "
            "(1 - mean) / std.",
        )
    _refuse_outside((low, high), x0)
    return low, high


def plain_box(bounds: object) -> object:
    """Ends that are tensors or arrays, such as (channels, 1, 1), as numbers; others as they are."""
    if not isinstance(bounds, tuple | list):
        return bounds
    return tuple(_listed(e) if isinstance(e, Tensor | np.ndarray) else e for e in bounds)


def ends(bounds: Box, x: Tensor) -> tuple[Tensor, Tensor]:
    """Both ends as tensors that broadcast with x (n, ...)."""
    low, high = (
        x.new_tensor(end).reshape(-1, *[1] * (x.dim() - 2 if isinstance(end, tuple | list) else 0))
        for end in bounds
    )
    return low, high


def outer(bounds: Box) -> tuple[float, float]:
    """The numbers that hold for all channels."""
    low, high = bounds
    return float(np.min(low)), float(np.max(high))


def apart(bounds: Iterable[object]) -> bool:
    """Whether channels have bounds of their own."""
    return any(isinstance(end, tuple | list) for end in bounds)


def _refuse_outside(box: Box, x0: Tensor) -> None:
    low, high = ends(box, x0)
    outside = ((x0 < low) | (x0 > high)).flatten(1).any(1) & finite_rows(x0)
    if bool(outside.any()):
        raise InvalidArgumentError(
            "bounds",
            expected="bounds that hold for the inputs themselves",
            got=f"{box}; {int(outside.sum())} of {len(x0)} inputs leave them",
            remedy="Widen the bounds, or clamp the inputs first.",
        )


def _listed(end: Tensor | np.ndarray) -> object:
    """One number, or a tuple of them; what has two long axes stays nested, and is refused."""
    if end.ndim == 0:
        return end.item()
    flat = math.prod(end.shape) == max(end.shape)
    return tuple((end.reshape(-1) if flat else end).tolist())


def _end(end: object, count: int) -> tuple[float, ...] | None:
    """One number for each channel, or None."""
    given = end if isinstance(end, tuple | list) else [end] * count
    known = tuple(v for v in map(real_number, given) if v is not None)
    return known if len(known) == len(given) == count else None
