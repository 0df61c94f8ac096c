"""Networks and test images by name, loaded on first use, with their SHA-256."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import torch
from torch import Tensor, nn

from credibly.data.sample import load_sample
from credibly.errors import CrediblyError
from experiments import fashion_mnist, networks
from experiments.datasets import read_split
from experiments.images import Images
from experiments.networks import Trained
from experiments.paper.cache import digest

EMBEDDED = ("embedded", "embedded-halved")
(MEAN,), (STD,) = fashion_mnist.MEAN, fashion_mnist.STD
"""Of Fashion-MNIST, for the embedded network in normalised space."""


class MissingInputError(CrediblyError, FileNotFoundError):
    """A checkpoint or a data set is not in the folder that was given, or no folder was given."""


@dataclass
class World:
    """Where checkpoints and data sets are.

    Attributes:
        checkpoints: folder of NAME.safetensors, or None.
        folders: data set -> folder.
        device: where to compute.
    """

    checkpoints: Path | None = None
    folders: dict[str, Path | None] = field(default_factory=dict)
    device: str = "cpu"
    _images: dict[str, Images] = field(default_factory=dict, repr=False)
    _networks: dict[str, Trained] = field(default_factory=dict, repr=False)
    _sums: dict[str, str] = field(default_factory=dict, repr=False)

    def images(self, dataset: str) -> Images:
        """Return the test images of a data set, pixels in [0, 1], on the device."""
        if dataset not in self._images:
            read = self._read(dataset)
            self._sums[f"images {dataset}"] = digest({"pixels": read.pixels, "labels": read.labels})
            self._images[dataset] = read.to(self.device)
        return self._images[dataset]

    def images_sha256(self, dataset: str) -> str:
        """Return the SHA-256 of the test images of a data set and their labels."""
        self.images(dataset)
        return self._sums[f"images {dataset}"]

    def network(self, name: str) -> Trained:
        """Return a trained network on the device."""
        if name not in self._networks:
            found = (
                embedded(name, self.device)
                if name in EMBEDDED
                else networks.load(self._checkpoint(name), self.device)
            )
            self._networks[name] = found
        return self._networks[name]

    def network_sha256(self, name: str) -> str:
        """Return the SHA-256 of a network's file."""
        if name not in self._sums:
            if name in EMBEDDED:
                path = files("credibly.data") / "embedded" / "weights.safetensors"
                content = path.read_bytes() + name.encode()
            else:
                content = self._checkpoint(name).read_bytes()
            self._sums[name] = hashlib.sha256(content).hexdigest()
        return self._sums[name]

    def parameters(self, name: str) -> int:
        """Return how many weights a network has, those of folded norms not counted."""
        return sum(weight.numel() for weight in self.network(name).bare.parameters())

    def has(self, name: str) -> bool:
        """Return whether a network is there."""
        if name in EMBEDDED:
            return True
        return self.checkpoints is not None and (self.checkpoints / f"{name}.safetensors").is_file()

    def _checkpoint(self, name: str) -> Path:
        if self.checkpoints is None:
            message = (
                f"the network {name} is needed and no folder of checkpoints was given. "
                f"Pass --checkpoints FOLDER with {name}.safetensors, or --small."
            )
            raise MissingInputError(message)
        path = self.checkpoints / f"{name}.safetensors"
        if not path.is_file():
            message = (
                f"{name}.safetensors is not in {self.checkpoints}. Train it, or pass the folder "
                "that holds it as --checkpoints."
            )
            raise MissingInputError(message)
        return path

    def _read(self, dataset: str) -> Images:
        if dataset == "embedded":
            sample = load_sample()
            return Images(sample.images, sample.labels)
        folder = self.folders.get(dataset)
        if folder is None:
            message = f"the data set {dataset} is needed: pass --{dataset} FOLDER, or --small."
            raise MissingInputError(message)
        if not folder.is_dir():
            message = f"{folder} is not a folder: pass that of {dataset} as --{dataset}."
            raise MissingInputError(message)
        return read_split(dataset, folder, "test")


class _OnNormalised(nn.Module):
    """Turn a network on pixels into one on normalised inputs, with scaled logits."""

    def __init__(self, net: nn.Module, scale: float) -> None:
        super().__init__()
        self.net, self.scale = net, scale

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.scale * self.net(x * STD + MEAN)
        return logits


def embedded(name: str, device: str) -> Trained:
    """Return the embedded network; 'embedded-halved', a second one, has half its logits."""
    scale = 0.5 if name == "embedded-halved" else 1.0
    net = _OnNormalised(load_sample().net, scale).eval().requires_grad_(False).to(device)
    mean, std = torch.tensor([MEAN], device=device), torch.tensor([STD], device=device)
    return Trained(name, net, mean, std, {"arch": "small resnet"})
