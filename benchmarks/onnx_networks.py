"""A small transformer to export, and what stands in for torchvision where it is missing."""

from __future__ import annotations

import types

import torch
from torch import Tensor, nn


def torchvision_stand_in() -> dict[str, types.ModuleType]:
    """Modules for `sys.modules`: onnx2torch imports two operators on boxes, which nobody calls."""
    package, ops = types.ModuleType("torchvision"), types.ModuleType("torchvision.ops")
    package.ops, ops.roi_align = ops, None  # type: ignore[attr-defined]
    return {"torchvision": package, "torchvision.ops": ops}


class Transformer(nn.Module):
    """A small vision transformer: patches, a class token, two blocks of attention."""

    def __init__(self, *, side: int = 8, patch: int = 4, width: int = 16, classes: int = 5) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width))
        block = nn.TransformerEncoderLayer(width, 2, 32, batch_first=True, activation="gelu")
        self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(y.shape[0], -1, -1), y], 1) + self.places
        logits: Tensor = self.head(self.norm(self.blocks(y))[:, 0])
        return logits
