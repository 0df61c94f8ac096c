"""DenseNet-169 for small images: a 3x3 stem of stride 1, four dense blocks, growth 32."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

GROWTH = 32
LAYERS = (6, 12, 32, 32)


class DenseLayer(nn.Module):
    """Append GROWTH new channels to the input."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, 4 * GROWTH, 1, bias=False)
        self.norm2: nn.Module = nn.BatchNorm2d(4 * GROWTH)
        self.conv2 = nn.Conv2d(4 * GROWTH, GROWTH, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(torch.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(torch.relu(self.norm2(y)))], 1)


class Transition(nn.Module):
    """Halve the channels and the size."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.conv = nn.Conv2d(inputs, inputs // 2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.avg_pool2d(self.conv(torch.relu(self.norm(x))), 2)


class DenseNet169(nn.Module):
    """Dense blocks of 6, 12, 32 and 32 layers."""

    def __init__(
        self, *, channels: int, classes: int = 10, layers: tuple[int, ...] = LAYERS
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, 2 * GROWTH, 3, padding=1, bias=False)
        width, stages = 2 * GROWTH, list[nn.Module]()
        for number, count in enumerate(layers):
            if number:
                stages.append(Transition(width))
                width //= 2
            stages.extend(DenseLayer(width + n * GROWTH) for n in range(count))
            width += count * GROWTH
        self.stages = nn.Sequential(*stages)
        self.norm = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.stages(self.stem(x))))
        logits: Tensor = self.fc(y.mean(dim=(2, 3)))
        return logits


def fold_norms(net: DenseNet169) -> DenseNet169:
    """Fold the norms that follow a convolution into it."""
    for layer in net.modules():
        if isinstance(layer, DenseLayer):
            layer.conv1, layer.norm2 = fuse_conv_bn_eval(layer.conv1, layer.norm2), nn.Identity()
    return net
