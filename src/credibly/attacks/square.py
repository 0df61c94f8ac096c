"""Random search without any gradient, on the decisions of the deployed system (A7)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from credibly._validation import share
from credibly.attacks.base import Attack, Task
from credibly.attacks.noise import uniform, with_stream
from credibly.attacks.system import Outcome
from credibly.types import norm, per_sample

_HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
"""Queries, of 10,000, at which the area of the windows is halved."""

_TILES = 5
"""Tiles along each side of the first perturbation in the Euclidean norm."""


@dataclass(frozen=True, kw_only=True)
class Square(Attack):
    """A7: windows of random signs, kept where the goal falls (Andriushchenko et al. 2020).

    Each step is one query of the deployed system, solver included. Samples that succeed are not
    changed any more. Inputs (n, c, h, w) and (n, h, w) get square windows, others intervals.

    Attributes:
        share: part of the features in the first windows.

    Example: see docs/how-to/attacks.md.
    """

    steps: int = 200
    share: float = 0.3

    needs_gradient: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        share("share", self.share, closed=True)

    def run(self, task: Task) -> list[Tensor]:
        x = self._first(task)
        verdict = self._ask(task, x)
        goal, done = verdict.goal.nan_to_num(nan=torch.inf), verdict.success
        for number in range(self.steps):
            rows = (~done).nonzero().squeeze(1)
            if len(rows) == 0:
                break
            part = task.select(rows, torch.zeros_like(rows))
            trial = self._changed(part, x[rows], with_stream(task.keys[rows], number + 1), number)
            verdict = self._ask(part, trial)
            better = verdict.success | (verdict.goal < goal[rows])
            taken = rows[better]
            x[taken], goal[taken] = trial[better], verdict.goal[better]
            done[taken] = verdict.success[better]
        return [x]

    def _ask(self, task: Task, x: Tensor) -> Outcome:
        return self.system.judge(task.clf, x, task.labels, target=task.target)

    def _first(self, task: Task) -> Tensor:
        """Vertical stripes in the box; coarse tiles in the Euclidean ball."""
        c, h, w = _image(task.ball.x0)
        keys = with_stream(task.keys, 0)
        if self.norm == "linf":
            signs = _signs(uniform(keys, (c, 1, w))).expand(-1, c, h, w)
        else:
            tiles = _signs(uniform(keys, (c, _TILES, _TILES)))
            down, across = (torch.arange(n, device=keys.device) * _TILES // n for n in (h, w))
            signs = tiles[:, :, down][:, :, :, across] / math.sqrt(c * h * w)
        shift = self.eps * signs.reshape(task.ball.x0.shape).to(task.ball.x0)
        return task.ball.finished(task.ball.x0 + shift)

    def _changed(self, task: Task, x: Tensor, keys: Tensor, number: int) -> Tensor:
        c, h, w = _image(x)
        drawn = uniform(keys, (5 + c,))
        area = self._area(number) * h * w
        side = max(1, min(min(h, w) - 1, round(math.sqrt(area)))) if h > 1 else 1
        size = (side, side) if h > 1 else (1, max(1, round(area)))
        window = _Window.at(drawn[:, :2], size, (h, w))
        signs = _signs(drawn[:, 5:]).to(x)[:, :, None, None]
        shift = (x - task.ball.x0).reshape(-1, c, h, w)
        if self.norm == "linf":
            changed = torch.where(window.mask, self.eps * signs, shift)
        else:
            other = _Window.at(drawn[:, 2:4], size, (h, w))
            turned = drawn[:, 4] < 0.5
            changed = self._moved_mass(shift, window, other, signs, turned)
        return task.ball.finished(task.ball.x0 + changed.reshape(x.shape))

    def _moved_mass(
        self, shift: Tensor, window: _Window, other: _Window, signs: Tensor, turned: Tensor
    ) -> Tensor:
        """Move the length used in two windows, and what eps leaves, into a bump in the first."""
        tiny = torch.finfo(shift.dtype).tiny
        either = window.mask | other.mask
        used = (shift * either).flatten(1).square().sum(1)
        left = (self.eps**2 - shift.flatten(1).square().sum(1)).clamp(min=0)
        inside = shift * window.mask
        direction = window.bump(turned).to(shift) * signs / math.sqrt(shift.shape[1])
        direction = direction + inside / per_sample(norm(inside).clamp(min=tiny), inside)
        length = norm(direction).clamp(min=tiny)
        direction = direction / per_sample(length, direction)
        return shift * ~either + per_sample((used + left).sqrt(), shift) * direction

    def _area(self, number: int) -> float:
        """Share of the features in the windows of this query."""
        scaled = number / self.steps * 10_000
        return float(self.share) * 0.5 ** sum(scaled > query for query in _HALVINGS)


@dataclass(frozen=True)
class _Window:
    """One rectangle per sample: where each row and column lies in it, and which are inside."""

    down: Tensor  # (m, h)
    across: Tensor  # (m, w)
    size: tuple[int, int]

    @staticmethod
    def at(drawn: Tensor, size: tuple[int, int], image: tuple[int, int]) -> _Window:
        """At random places: drawn is (m, 2) in [0, 1)."""
        places = [
            torch.arange(whole, device=drawn.device)
            - (drawn[:, k] * (whole - side + 1)).floor().long()[:, None]
            for k, (whole, side) in enumerate(zip(image, size, strict=True))
        ]
        return _Window(places[0], places[1], size)

    @property
    def mask(self) -> Tensor:
        """(m, 1, h, w)."""
        down = (self.down >= 0) & (self.down < self.size[0])
        across = (self.across >= 0) & (self.across < self.size[1])
        return (down[:, :, None] & across[:, None, :]).unsqueeze(1)

    def bump(self, turned: Tensor) -> Tensor:
        """Two hills of opposite sign, side by side or one above the other: (m, 1, h, w)."""
        high, wide = self.size
        i = self.down.clamp(0, high - 1)[:, :, None].double()
        j = self.across.clamp(0, wide - 1)[:, None, :].double()
        depth_i = torch.minimum(i, high - 1 - i) + (i.new_zeros(()) if high > 1 else 1e9)
        depth_j = torch.minimum(j, wide - 1 - j) + (j.new_zeros(()) if wide > 1 else 1e9)
        depth = torch.minimum(depth_i, depth_j).clamp(max=max(high, wide))
        hill = 1 / (max(high, wide) / 2 + 1 - depth.clamp(max=max(high, wide) / 2))
        first = torch.where(turned[:, None, None], 2 * i < high, 2 * j < wide)
        both = torch.where(first, hill, -hill).unsqueeze(1) * self.mask
        length = norm(both).clamp(min=torch.finfo(both.dtype).tiny)
        return both / per_sample(length, both)


def _signs(drawn: Tensor) -> Tensor:
    return torch.where(drawn < 0.5, -1.0, 1.0).double()


def _image(x: Tensor) -> tuple[int, int, int]:
    """Channels, height and width of the inputs seen as images."""
    channels, height, width = {4: x.shape[1:], 3: (1, *x.shape[1:])}.get(
        x.dim(), (1, 1, x[0].numel())
    )
    return channels, height, width
