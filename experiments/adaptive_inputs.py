"""How perturbed inputs are made: candidates (c, n, ...) of each attack, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import credibly as cr
from credibly.model.derivatives import BACKWARD, FORWARD
from experiments.adaptive_nearest import CarliniWagner, DeepFool

POINTS = 8
"""Points on the way from an image to what an attack found, the end counted."""


class Counted(nn.Module):
    """A network that counts the images it sees, forwards and backwards, and its calls."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.passes, self.calls = 0.0, 0
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.net(x)
        self.calls += 1
        self.passes += FORWARD * len(x)
        if outputs.requires_grad:
            outputs.register_hook(self._backward)  # type: ignore[no-untyped-call]
        return outputs

    def _backward(self, slope: Tensor) -> None:
        # a backward through a backward is counted as one: such attacks cost more than is counted
        self.passes += BACKWARD * len(slope)


@dataclass(frozen=True)
class Restarts:
    """Every candidate of an attack."""

    attack: cr.attacks.Attack
    clf: cr.Classifier
    x: Tensor
    labels: Tensor

    def __call__(self) -> Tensor:
        return self.attack.all_restarts(self.clf, self.x, self.labels)


@dataclass(frozen=True)
class Targets(Restarts):
    """APGD, all targets in one batch rather than one after the other: the same, fewer calls."""

    def __call__(self) -> Tensor:
        attack = self.attack
        assert isinstance(attack, cr.attacks.TransferAPGD)
        if attack.kinds == ("ce",):
            return super().__call__()
        with torch.no_grad():
            losses = (attack.surrogate or self.clf).losses(self.x)
        order = losses.argsort(dim=1, stable=True)
        others = order[order != self.labels[:, None]].reshape(len(order), -1)[:, : attack.targets]
        count = others.shape[1]
        found = attack.all_restarts(
            self.clf,
            self.x.repeat(count, *[1] * (self.x.dim() - 1)),
            self.labels.repeat(count),
            target=others.T.flatten(),
        )
        return found.reshape(count, *self.x.shape)


@dataclass(frozen=True)
class ScaledBack(Restarts):
    """Points between the image and what an attack found: a search along one line.

    Attacks that know nothing of a score often go too far. Somewhere on the way back the class is
    still wrong, and the score may be an ordinary one.
    """

    def __call__(self) -> Tensor:
        (far,) = super().__call__()
        low, high = torch.minimum(self.x, far), torch.maximum(self.x, far)  # rounding may not leave
        shares = [number / POINTS for number in range(1, POINTS)]
        points = [self.x + share * (far - self.x) for share in shares]
        return torch.stack([point.clamp(low, high) for point in points])


@dataclass(frozen=True)
class Nearest:
    """A minimum-norm attack on the bare model."""

    attack: DeepFool | CarliniWagner
    clf: cr.Classifier
    x: Tensor
    labels: Tensor

    def __call__(self) -> Tensor:
        return self.attack(self.clf, self.x, self.labels)[None]
