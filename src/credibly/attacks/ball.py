"""The set an attacker may use: a ball around each input, inside a box of bounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from credibly._validation import real_number, require
from credibly.attacks.noise import normal, uniform
from credibly.profile.arguments import check_bounds
from credibly.types import finite_rows, norm, per_sample

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


Norm = Literal["linf", "l2"]

_ROUNDS = 12
"""Rounds of the projection on a Euclidean ball and bounds; few are needed."""


@dataclass(frozen=True)
class Ball:
    """Balls around the samples of a batch, cut by the bounds.

    Attributes:
        x0: centres (n, ...), inside the bounds.
        eps: radius.
        kind: 'linf' or 'l2'.
        low: smallest allowed value of each feature, or None.
        high: largest.
    """

    x0: Tensor
    eps: float
    kind: Norm
    low: Tensor | None
    high: Tensor | None

    @staticmethod
    def around(x0: Tensor, eps: float, kind: Norm, bounds: Box | None) -> Ball:
        """Balls whose edges are computed once."""
        low = high = None
        if bounds is not None:
            low, high = (end.expand_as(x0).clone() for end in ends(bounds, x0))
        if kind == "linf":
            under, over = _edge(x0, -eps), _edge(x0, eps)
            low = under if low is None else torch.maximum(low, under)
            high = over if high is None else torch.minimum(high, over)
        return Ball(x0, eps, kind, low, high)

    def select(self, rows: Tensor) -> Ball:
        """The balls of the chosen samples; they may repeat."""
        low, high = (None if end is None else end[rows] for end in (self.low, self.high))
        return Ball(self.x0[rows], self.eps, self.kind, low, high)

    def project(self, x: Tensor) -> Tensor:
        """The nearest allowed point."""
        if self.kind == "linf":
            return self._clamped(x)
        shift = x - self.x0
        return self._clamped(self.x0 + per_sample(self._share(shift), x) * shift)

    def finished(self, x: Tensor) -> Tensor:
        """The nearest allowed point, inside the ball to the last bit."""
        x = self.project(x)
        if self.kind == "linf":
            return x
        for number in range(8):  # each time with a little more slack, only where needed
            length = norm(x.double() - self.x0.double())
            slack = torch.finfo(x.dtype).eps * 4.0**number
            share = self.eps / length.clamp(min=torch.finfo(torch.float64).tiny) * (1 - slack)
            nearer = self.x0 + per_sample(share.to(x), x) * (x - self.x0)
            out = length > self.eps * (
                1 - 1e-15
            )  # whatever the order in which the squares are summed
            x = torch.where(per_sample(out, x), self._clamped(nearer), x)
        return x

    def start(self, keys: Tensor) -> Tensor:
        """A random point of each ball: uniform in the box, or in the Euclidean ball."""
        shape = self.x0.shape[1:]
        if self.kind == "linf":
            shift = (2 * uniform(keys, shape) - 1) * self.eps
        else:
            away = normal(keys, shape)
            radius = uniform(keys, (1,))[:, 0] ** (1 / self.x0[0].numel())
            shift = per_sample(self.eps * radius / norm(away), away) * away
        return self.project(self.x0 + shift.to(self.x0))

    def step(self, x: Tensor, gradient: Tensor, size: float) -> Tensor:
        """One ascent step of a length in the norm of the ball, then the projection."""
        if self.kind == "linf":
            return self.project(x + size * gradient.sign())
        length = norm(gradient)
        usable = length.clamp(min=torch.finfo(length.dtype).tiny)
        return self.project(x + size * gradient / per_sample(usable, gradient))

    def _clamped(self, x: Tensor) -> Tensor:
        return x if self.low is None else x.clamp(self.low, self.high)

    def _share(self, shift: Tensor) -> Tensor:
        """How much of each shift (n,) to keep so that it has length eps inside the bounds.

        The nearest point is clamp(x0 + t shift). Its length grows with t: features at a bound count
        as they are, the others make up the rest. Starting from below, t never overshoots, and stops
        changing once no more features reach a bound.
        """
        tiny = torch.finfo(shift.dtype).tiny
        t = (self.eps / norm(shift).clamp(min=tiny)).clamp(max=1.0)
        if self.low is None or self.high is None:
            return t
        for _ in range(_ROUNDS):
            wanted = self.x0 + per_sample(t, shift) * shift
            held = (wanted < self.low) | (wanted > self.high)
            kept = self._clamped(wanted) - self.x0
            rest = self.eps**2 - (kept * held).flatten(1).square().sum(1)
            free = (shift * ~held).flatten(1).square().sum(1)
            better = (rest.clamp(min=0) / free.clamp(min=tiny)).sqrt().clamp(max=1.0)
            t = torch.maximum(t, better)
        return t


def _edge(x0: Tensor, eps: float) -> Tensor:
    """The furthest number within |eps| of x0 on one side, exactly: rounding must not leave it."""
    edge = (x0.double() + eps).to(x0.dtype)
    outside = (edge.double() - x0.double()).abs() > abs(eps)
    return torch.where(outside, torch.nextafter(edge, x0), edge)
