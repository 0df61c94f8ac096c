"""ResNet-18 for small images, with the parameter names that public checkpoints use."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


class BasicBlock(nn.Module):
    """Two normalised 3x3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1: nn.Module = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2: nn.Module = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class ResNet18(nn.Module):
    """Four stages of two blocks, with a 3x3 stem of stride 1, as usual for small images."""

    def __init__(self, *, channels: int, classes: int = 10, max_pool: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
        self.bn1: nn.Module = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, 2, 1) if max_pool else nn.Identity()
        self.layer1 = _stage(64, 64, 1)
        self.layer2 = _stage(64, 128, 2)
        self.layer3 = _stage(128, 256, 2)
        self.layer4 = _stage(256, 512, 2)
        self.fc = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = self.pool(torch.relu(self.bn1(self.conv1(x))))
        y = self.layer4(self.layer3(self.layer2(self.layer1(y))))
        logits: Tensor = self.fc(y.mean(dim=(2, 3)))
        return logits


def _stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, 1))


def fold_norms(net: ResNet18) -> ResNet18:
    """Fold every batch norm into its convolution: a third fewer kernels."""
    net.conv1, net.bn1 = fuse_conv_bn_eval(net.conv1, net.bn1), nn.Identity()
    for block in net.modules():
        if not isinstance(block, BasicBlock):
            continue
        block.conv1, block.bn1 = fuse_conv_bn_eval(block.conv1, block.bn1), nn.Identity()
        block.conv2, block.bn2 = fuse_conv_bn_eval(block.conv2, block.bn2), nn.Identity()
        if isinstance(block.downsample, nn.Sequential):
            block.downsample = fuse_conv_bn_eval(block.downsample[0], block.downsample[1])
    return net
