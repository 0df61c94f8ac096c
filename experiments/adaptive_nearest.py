"""DeepFool and Carlini-Wagner in L2, for machines without foolbox; tests compare them with it.

They look for the nearest input of another class and stop there, where the network is hardly
confident. A measure of too much confidence does not detect such attacks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

import credibly as cr
from credibly.attacks.ball import Box, ends
from credibly.model.derivatives import gradient_of, output_jacobian
from credibly.types import norm, per_sample

_INSIDE = 1e-6
"""Relative distance to the bounds that inputs keep, since tanh does not reach them."""


@dataclass(frozen=True)
class DeepFool:
    """Steps to the nearest boundary of the linearised network (Moosavi-Dezfooli et al. 2016).

    Attributes:
        steps: at most.
        overshoot: how far to go beyond the boundary, as a share.
        bounds: of the inputs, see `credibly.attacks.Attack`.
    """

    steps: int = 50
    overshoot: float = 0.02
    bounds: Box = (0.0, 1.0)

    def __call__(self, clf: cr.Classifier, x: Tensor, labels: Tensor) -> Tensor:
        """Return inputs (n, ...) of another class, in bounds; the image itself if none found."""
        current, total, own = x, torch.zeros_like(x), labels[:, None]
        low, high = ends(self.bounds, x)
        for _ in range(self.steps):
            outputs, slopes = output_jacobian(clf, current)
            still = outputs.argmax(1) == labels
            if not bool(still.any()):
                break
            gap = (outputs - outputs.gather(1, own)).abs()
            apart = slopes - slopes.gather(1, own[:, :, None].expand(-1, 1, slopes.shape[2]))
            square = apart.square().sum(2).clamp(min=torch.finfo(x.dtype).tiny)
            distance = (gap / square.sqrt()).scatter(1, own, torch.inf)
            nearest = distance.argmin(1, keepdim=True)
            scale = (gap.gather(1, nearest) + 1e-4) / square.gather(1, nearest)
            way = apart.gather(1, nearest[:, :, None].expand(-1, 1, apart.shape[2])).squeeze(1)
            total = total + per_sample(still, x) * (scale * way).reshape(x.shape)
            current = (x + (1 + self.overshoot) * total).clamp(low, high)
        return _changed(clf, x, current, labels)


@dataclass(frozen=True)
class CarliniWagner:
    """The smallest change that makes another class win (Carlini and Wagner 2017).

    Attributes:
        steps: of Adam, for each weight of the margin.
        rate: of Adam.
        searches: how many weights are tried, by bisection.
        weight: the first one.
        bounds: of the inputs, see `credibly.attacks.Attack`.
    """

    steps: int = 300
    rate: float = 0.01
    searches: int = 5
    weight: float = 1.0
    bounds: Box = (0.0, 1.0)
    decays: ClassVar[tuple[float, float]] = (0.9, 0.999)

    def __call__(self, clf: cr.Classifier, x: Tensor, labels: Tensor) -> Tensor:
        """See `DeepFool`."""
        weight = torch.full_like(x.flatten(1)[:, 0], self.weight)
        low, high = torch.zeros_like(weight), torch.full_like(weight, torch.inf)
        kept = _Shortest(x.clone(), torch.full_like(weight, torch.inf))
        for _ in range(self.searches):
            worked = self._descent(clf, x, labels, weight, kept)
            high, low = torch.where(worked, weight, high), torch.where(worked, low, weight)
            weight = torch.where(high.isfinite(), (low + high) / 2, 10 * weight)
        return _changed(clf, x, kept.inputs.clamp(*ends(self.bounds, x)), labels)

    def _descent(
        self, clf: cr.Classifier, x: Tensor, labels: Tensor, weight: Tensor, kept: _Shortest
    ) -> Tensor:
        """Return whether any point on the way is of another class (n,); keep the nearest ones."""
        low, high = ends(self.bounds, x)
        free = torch.atanh(2 * ((x - low) / (high - low)).clamp(_INSIDE, 1 - _INSIDE) - 1)
        mean, square = torch.zeros_like(x), torch.zeros_like(x)
        worked = torch.zeros_like(labels, dtype=torch.bool)
        a, b = self.decays
        for step in range(1, self.steps + 1):
            seen: list[Tensor] = []

            def cost(z: Tensor, seen: list[Tensor] = seen) -> Tensor:
                inputs = low + (high - low) * (torch.tanh(z) + 1) / 2
                gap = _margin(clf.logits(inputs), labels)
                seen += [inputs.detach(), gap.detach()]
                return (inputs - x).flatten(1).square().sum(1) + weight * gap.clamp(min=0)

            _, slope = gradient_of(clf, free, cost)
            worked |= kept.offer(x, seen[0], seen[1] < 0)
            mean, square = a * mean + (1 - a) * slope, b * square + (1 - b) * slope.square()
            way = (mean / (1 - a**step)) / ((square / (1 - b**step)).sqrt() + 1e-8)
            free = free - self.rate * way
        return worked


@dataclass
class _Shortest:
    """The nearest input of another class so far, for each image."""

    inputs: Tensor
    sizes: Tensor = field(repr=False)

    def offer(self, x: Tensor, inputs: Tensor, wrong: Tensor) -> Tensor:
        size = norm(inputs - x)
        better = wrong & (size < self.sizes)
        self.inputs = torch.where(per_sample(better, x), inputs, self.inputs)
        self.sizes = torch.where(better, size, self.sizes)
        return wrong


def _margin(outputs: Tensor, labels: Tensor) -> Tensor:
    own = labels[:, None]
    return outputs.gather(1, own).squeeze(1) - outputs.scatter(1, own, -torch.inf).amax(1)


def _changed(clf: cr.Classifier, x: Tensor, found: Tensor, labels: Tensor) -> Tensor:
    """Return the inputs of another class, and the image itself elsewhere."""
    with torch.no_grad():
        wrong = _margin(clf.logits(found), labels) < 0
    return torch.where(per_sample(wrong, x), found, x)
