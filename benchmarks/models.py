"""Models and images of the benchmarks: the embedded ones, or files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from credibly.data.sample import load_sample
from experiments import fashion_mnist, networks
from experiments.idx import read_idx
from experiments.images import as_pixels, read_images
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
        """Return the network and the images in pixels or in normalised units."""
        if space == "pixel":
            return self.net, self.images
        back = Affine(self.net, -self.mean / self.std, 1 / self.std)
        shape = (1, -1, 1, 1)
        images = (self.images - self.mean.reshape(shape)) / self.std.reshape(shape)
        return back.to(images.device).eval(), images


def load(model: Path | None, data: Path | None, count: int, device: str) -> Subject:
    """Load the embedded network, or a network file with your own images."""
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
    return read_images(path) if path.suffix == ".npz" else as_pixels(read_idx(path))
