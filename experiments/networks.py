"""Trained networks in files: weights as safetensors, facts in the metadata.

The metadata has `arch` ("resnet18, no max-pool", "resnet18, max-pool" or "densenet169"), `mean` and
`std` (comma-separated, one number per channel), and the facts that training wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from credibly.attacks.ball import Box
from credibly.errors import FileFormatError
from credibly.io.files import load_tensors, save_tensors
from experiments import densenet169, resnet18
from experiments.densenet169 import DenseNet169
from experiments.resnet18 import ResNet18


class Affine(nn.Module):
    """A network on (x - mean) / std, per channel."""

    def __init__(self, net: nn.Module, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("mean", mean.reshape(1, -1, 1, 1))
        self.register_buffer("std", std.reshape(1, -1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.net((x - self.mean) / self.std)


@dataclass(frozen=True)
class Trained:
    """A network on normalised inputs, with the statistics of the normalisation."""

    name: str
    bare: nn.Module
    mean: Tensor
    std: Tensor
    facts: dict[str, str]

    @property
    def net(self) -> nn.Module:
        """The network on pixels in [0, 1]."""
        return self.in_space("pixel")

    def in_space(self, space: str) -> nn.Module:
        """The network on 'pixel' or on 'normalised' inputs."""
        return self.bare if space == "normalised" else Affine(self.bare, self.mean, self.std).eval()

    def to_space(self, space: str, pixels: Tensor) -> Tensor:
        """Convert pixels in [0, 1] to the units of a space."""
        if space == "pixel":
            return pixels
        mean, std = (v.to(pixels).reshape(1, -1, 1, 1) for v in (self.mean, self.std))
        return (pixels - mean) / std

    def bounds(self, space: str) -> tuple[Tensor | float, Tensor | float]:
        """Return the bounds of a space: those of the pixels 0 and 1."""
        if space == "pixel":
            return 0.0, 1.0
        shape = (-1, 1, 1)
        return (-self.mean / self.std).reshape(shape), ((1 - self.mean) / self.std).reshape(shape)

    def box(self, space: str) -> Box:
        """Return the same bounds as plain numbers, for attacks."""
        low, high = (
            tuple(end.flatten().tolist()) if isinstance(end, Tensor) else end
            for end in self.bounds(space)
        )
        return low, high


def build(arch: str, *, channels: int, classes: int) -> nn.Module:
    """Build a network with random weights."""
    if arch.startswith("densenet169"):
        return DenseNet169(channels=channels, classes=classes)
    return ResNet18(channels=channels, classes=classes, max_pool="no max-pool" not in arch)


def load(path: Path, device: str | torch.device = "cpu") -> Trained:
    """Load a network, with folded norms where possible, and without gradients of the weights."""
    weights, facts = load_tensors(path)
    missing = [name for name in ("arch", "mean", "std") if name not in facts]
    if missing:
        message = (
            f"{path} does not name its {', '.join(missing)}: experiments.train did not make it"
        )
        raise FileFormatError(message)
    folded = folded_norms(_filled(path, facts["arch"], weights).eval()).requires_grad_(False)
    mean, std = (_numbers(path, facts, name) for name in ("mean", "std"))
    ready = folded.to(device).to(memory_format=torch.channels_last)
    return Trained(path.stem, ready, mean.to(device), std.to(device), facts)


def _filled(path: Path, arch: str, weights: dict[str, Tensor]) -> nn.Module:
    """Build the architecture with the weights of a file, or say why they do not fit."""
    weights = {k: v.float() if v.is_floating_point() else v for k, v in weights.items()}
    stem = next((weights[k] for k in ("conv1.weight", "stem.weight") if k in weights), None)
    if stem is None or "fc.bias" not in weights:
        raise _not_of(path, arch, "no weights of a first and a last layer")
    net = build(arch, channels=stem.shape[1], classes=len(weights["fc.bias"]))
    try:
        net.load_state_dict(weights)
    except RuntimeError as error:
        raise _not_of(path, arch, " ".join(str(error).split())[:200]) from error
    broken = [name for name, value in weights.items() if not value.isfinite().all()]
    if broken:
        raise _not_of(path, arch, f"numbers that are not finite in {broken[0]}")
    return net


def _not_of(path: Path, arch: str, why: str) -> FileFormatError:
    return FileFormatError(
        f"{path} does not hold the weights of a {arch} ({why}). Train or copy it again."
    )


def _numbers(path: Path, facts: dict[str, str], name: str) -> Tensor:
    """Read the metadata's numbers, one per channel."""
    try:
        return torch.tensor([float(v) for v in facts[name].split(",")])
    except ValueError as error:
        message = f"{path}: its {name} is not a list of numbers: {facts[name]!r}"
        raise FileFormatError(message) from error


def folded_norms(net: nn.Module) -> nn.Module:
    """Fold batch norms into convolutions; the function stays the same."""
    if isinstance(net, DenseNet169):
        return densenet169.fold_norms(net)
    assert isinstance(net, ResNet18)
    return resnet18.fold_norms(net)


def save(path: Path, net: nn.Module, facts: dict[str, str]) -> None:
    """Write weights in half precision, for `load`."""
    half = {
        name: (value.half() if value.is_floating_point() else value).contiguous().cpu()
        for name, value in net.state_dict().items()
    }
    save_tensors(half, path, metadata=facts)
