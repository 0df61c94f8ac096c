"""The embedded network eight times as wide, for timing a service of a heavier model."""

from __future__ import annotations

import torch

from credibly.data.sample import CLASSES
from credibly.data.small_resnet import SmallResNet
from credibly.model.classifier import Classifier

WIDTH = 128


def wide() -> Classifier:
    """Random weights: only the time of a forward counts."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = SmallResNet(width=WIDTH)
    net.eval().requires_grad_(False)
    return Classifier(net.to(memory_format=torch.channels_last), classes=CLASSES)
