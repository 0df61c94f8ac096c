"""Bounds of inputs: one pair of numbers for all features, or one for each channel."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from torch import Tensor

from credibly._validation import real_number, require
from credibly.profile.arguments import check_bounds
from credibly.types import finite_rows

End = float | tuple[float, ...]
Box = tuple[End, End]
"""Smallest and largest value of a feature; a tuple has one number for each entry of axis 1."""


def check_box(bounds: object, x0: Tensor) -> Box | None:
    """Bounds as numbers or as tuples of numbers that hold for the inputs themselves."""
    bounds = plain_box(bounds)
    if not isinstance(bounds, tuple | list) or not apart(bounds):
        return check_bounds(bounds, x0)  # type: ignore[arg-type]
    count = x0.shape[1] if x0.dim() > 1 else 0
    found = [_numbers(end, count) for end in bounds]
    low, high = found if len(found) == 2 else ((), ())
    require(
        len(low) == len(high) == count > 0 and all(a < b for a, b in zip(low, high, strict=True)),
        "bounds",
        f"(low, high), each a number or {count} of them, one per channel, low < high",
        repr(bounds),
        "For pixels pass (0.0, 1.0); for normalised ones tuples (0 - mean) / std and "
        "(1 - mean) / std.",
    )
    lowest, highest = ends((low, high), x0)
    outside = ((x0 < lowest) | (x0 > highest)).flatten(1).any(1) & finite_rows(x0)
    require(
        not bool(outside.any()),
        "bounds",
        "bounds that hold for the inputs themselves",
        f"{(low, high)}; {int(outside.sum())} of {len(x0)} inputs leave them",
        "Widen the bounds, or clamp the inputs first.",
    )
    return low, high


def plain_box(bounds: object) -> object:
    """Ends that are tensors or arrays, such as (channels, 1, 1), as numbers; others unchanged."""
    if isinstance(bounds, Tensor | np.ndarray):
        bounds = bounds.squeeze().tolist()
        return tuple(bounds) if isinstance(bounds, list) else bounds
    return tuple(map(plain_box, bounds)) if isinstance(bounds, tuple | list) else bounds


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


def _numbers(end: object, count: int) -> tuple[float, ...]:
    """One number for each channel, or nothing where one is not a number."""
    given = end if isinstance(end, tuple | list) else [end] * count
    known = tuple(v for v in map(real_number, given) if v is not None)
    return known if len(known) == len(given) else ()
