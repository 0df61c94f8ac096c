"""The embedded network: a residual network small enough to ship and to solve on two CPU cores."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Norm = Callable[[int], nn.Module]


def _no_norm(_channels: int) -> nn.Module:
    return nn.Identity()


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut, as in He et al. (2016)."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1)
        self.norm1 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.norm2 = norm(outputs)
        reshapes = stride != 1 or inputs != outputs
        self.shortcut: nn.Module = (
            nn.Conv2d(inputs, outputs, 1, stride=stride) if reshapes else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return torch.relu(y + self.shortcut(x))


class SmallResNet(nn.Module):
    """Stem and three residual blocks on 28 x 28 grey images.

    Training passes ``norm=nn.BatchNorm2d``; the shipped weights have the norms folded into the
    convolutions, so that a pass through the network costs its convolutions and nothing else.
    """

    def __init__(
        self, *, width: int = 16, classes: int = 10, channels: int = 1, norm: Norm = _no_norm
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, stride=2, padding=1)
        self.stem_norm = norm(width)
        self.blocks = nn.Sequential(
            Block(width, width, stride=1, norm=norm),
            Block(width, 2 * width, stride=2, norm=norm),
            Block(2 * width, 4 * width, stride=2, norm=norm),
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.stem_norm(self.stem(x)))
        y = self.blocks(y).mean(dim=(2, 3))
        logits: Tensor = self.head(y)
        return logits
