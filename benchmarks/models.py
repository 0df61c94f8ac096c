"""Models and images for the benchmarks: the embedded ones, or files given as arguments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from credibly.data.sample import load_sample
from experiments import fashion_mnist, networks
from experiments.idx import read_idx
from experiments.networks import Affine


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
        mean, std = torch.tensor(fashion_mnist.MEAN), torch.tensor(fashion_mnist.STD)
        net, images, name = sample.net, sample.images[:count], "embedded"
    else:
        if data is None:
            message = "--data is needed with --model: an .npz with `images`, or an IDX file"
            raise SystemExit(message)
        trained = networks.load(model)
        net, mean, std = trained.net, trained.mean, trained.std
        images, name = _images(data)[:count], model.stem
    net = net.to(device).eval().requires_grad_(False)
    if device == "cpu":
        net = net.to(memory_format=torch.channels_last)
    return Subject(name, net, images.to(device), mean.to(device), std.to(device))


def _images(path: Path) -> Tensor:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            raw = arrays["images"]
    else:
        raw = read_idx(path)
    pixels = torch.from_numpy(raw.astype(np.float32) / 255)
    return pixels.unsqueeze(1) if pixels.dim() == 3 else pixels.permute(0, 3, 1, 2).contiguous()
