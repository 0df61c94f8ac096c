"""Make perturbed inputs: candidates (c, n, ...) of each attack, with a count of passes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import credibly as cr
from credibly.model.derivatives import BACKWARD, FORWARD
from experiments.adaptive_nearest import CarliniWagner, DeepFool

POINTS = 8
"""Points between an image and what an attack found, the end included."""


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
        # a backward through a backward counts as one, so such attacks cost more than is counted
        self.passes += BACKWARD * len(slope)


@dataclass(frozen=True)
class Restarts:
    """Make every candidate of an attack."""

    attack: cr.attacks.Attack
    clf: cr.Classifier
    x: Tensor
    labels: Tensor

    def __call__(self) -> Tensor:
        return self.attack.all_restarts(self.clf, self.x, self.labels)


@dataclass(frozen=True)
class Targets(Restarts):
    """Run APGD on all targets in one batch: the same result with fewer calls."""

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
    """Take points between the image and what an attack found.

    Attacks that ignore the score often go too far. On the way back there may be a point where the
    class is still wrong and the score is ordinary.
    """

    def __call__(self) -> Tensor:
        (far,) = super().__call__()
        low, high = torch.minimum(self.x, far), torch.maximum(self.x, far)  # against rounding
        shares = [number / POINTS for number in range(1, POINTS)]
        points = [self.x + share * (far - self.x) for share in shares]
        return torch.stack([point.clamp(low, high) for point in points])


@dataclass(frozen=True)
class Nearest:
    """Run a minimum-norm attack on the bare model."""

    attack: DeepFool | CarliniWagner
    clf: cr.Classifier
    x: Tensor
    labels: Tensor

    def __call__(self) -> Tensor:
        return self.attack(self.clf, self.x, self.labels)[None]
