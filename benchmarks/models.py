"""Models and images for the benchmarks: the embedded ones, or files given as arguments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor, nn

from benchmarks.resnet18 import ResNet18
from credibly.data.idx import read_idx
from credibly.data.sample import load_sample

FASHION_MEAN, FASHION_STD = 0.2860, 0.3530


class Affine(nn.Module):
    """(x - mean) / std, channel by channel, before a network."""

    def __init__(self, net: nn.Module, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("mean", mean.reshape(1, -1, 1, 1))
        self.register_buffer("std", std.reshape(1, -1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.net((x - self.mean) / self.std)


@dataclass(frozen=True)
class Subject:
    """A network on pixels in [0, 1], images, and the statistics of the normalised space."""

    name: str
    net: nn.Module
    images: Tensor
    mean: Tensor
    std: Tensor

    def in_space(self, space: str) -> tuple[nn.Module, Tensor]:
        """The same network and images in pixels or in normalised units."""
        if space == "pixel":
            return self.net, self.images
        back = Affine(self.net, -self.mean / self.std, 1 / self.std)
        shape = (1, -1, 1, 1)
        images = (self.images - self.mean.reshape(shape)) / self.std.reshape(shape)
        return back.to(images.device).eval(), images


def load(model: Path | None, data: Path | None, count: int, device: str) -> Subject:
    """The embedded network, or a ResNet-18 file with images of your own."""
    if model is None:
        sample = load_sample()
        mean, std = torch.tensor([FASHION_MEAN]), torch.tensor([FASHION_STD])
        net, images, name = sample.net, sample.images[:count], "embedded"
    else:
        if data is None:
            message = "--data is needed with --model: an .npz with `images`, or an IDX file"
            raise SystemExit(message)
        net, mean, std = _resnet18(model)
        images, name = _images(data)[:count], model.stem
    net = net.to(device).eval().requires_grad_(False)
    if device == "cpu":
        net = net.to(memory_format=torch.channels_last)
    return Subject(name, net, images.to(device), mean.to(device), std.to(device))


def resnet18_from(path: Path) -> nn.Module:
    """A ResNet-18 on pixels in [0, 1] from a file with torchvision's names."""
    return _resnet18(path)[0]


def _resnet18(path: Path) -> tuple[nn.Module, Tensor, Tensor]:
    with safe_open(path, "pt") as file:
        facts = file.metadata()
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    weights = {k: v.float() if v.is_floating_point() else v for k, v in weights.items()}
    net = ResNet18(
        channels=weights["conv1.weight"].shape[1], max_pool="no max-pool" not in facts["arch"]
    )
    net.load_state_dict(weights)
    mean, std = (torch.tensor([float(v) for v in facts[k].split(",")]) for k in ("mean", "std"))
    return Affine(net, mean, std), mean, std


def _images(path: Path) -> Tensor:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            raw = arrays["images"]
    else:
        raw = read_idx(path)
    pixels = torch.from_numpy(raw.astype(np.float32) / 255)
    return pixels.unsqueeze(1) if pixels.dim() == 3 else pixels.permute(0, 3, 1, 2).contiguous()
