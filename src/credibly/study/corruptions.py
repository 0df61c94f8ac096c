"""Corrupted images: ten kinds of damage at five severities, reproducible by their seed.

Images are (n, channels, height, width) in [0, 1]. The kinds and the rising severities follow
Hendrycks and Dietterich (2019); the levels are our own.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from credibly._validation import choice, require, whole_number
from credibly._validation import seed as check_seed
from credibly.types import CPU

Damage = Callable[[Tensor, float, torch.Generator], Tensor]


@dataclass(frozen=True)
class Corruption:
    """One kind of damage at one severity.

    Attributes:
        kind: one of `KINDS`, such as 'gaussian noise', 'motion blur' or 'rotation'.
        severity: 1 (mild) to 5 (strong).
        seed: of its noise. Every image has its own random numbers, from the seed and its pixels,
            so the result does not depend on the batch.

    Example:
        >>> import torch, credibly as cr
        >>> cr.study.Corruption("brightness", 2)(torch.full((1, 1, 1, 2), 0.5)).flatten().tolist()
        [0.6000000238418579, 0.6000000238418579]
    """

    kind: str
    severity: int
    seed: int = 0

    def __post_init__(self) -> None:
        choice("kind", self.kind, KINDS, "Choose one of these.")
        known = whole_number(self.severity) in range(1, 6)
        require(known, "severity", "1 to 5", repr(self.severity), "1 is mild.")
        check_seed(self.seed)

    def __call__(self, images: Tensor) -> Tensor:
        """The damaged images, clipped to [0, 1]."""
        batch = isinstance(images, Tensor) and images.is_floating_point() and images.dim() == 4
        kind = f"{images.dtype} of shape {tuple(images.shape)}" if batch else type(images).__name__
        require(
            batch and bool(((images >= 0) & (images <= 1)).all()),
            "images",
            "a floating tensor (n, channels, height, width) in [0, 1]",
            f"{kind}, not all in [0, 1]" if batch else kind,
            "Corrupt pixels before they are normalised.",
        )
        damage, levels = KINDS[self.kind]
        level = levels[self.severity - 1]
        exact = images.detach().cpu().to(torch.promote_types(images.dtype, torch.float32))
        damaged = [damage(image[None], level, self._generator(image)) for image in exact]
        return torch.cat(damaged).clamp(0, 1).to(images) if damaged else images.clone()

    def _generator(self, image: Tensor) -> torch.Generator:
        """The same image has the same noise at every severity and place in the batch."""
        content = f"{int(self.seed)}:".encode() + image.float().contiguous().numpy().tobytes()
        number = int.from_bytes(hashlib.sha256(content).digest()[:7], "little")
        return torch.Generator().manual_seed(number)


def _normal(x: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(x.shape, generator=generator, dtype=x.dtype, device=CPU)


def _impulse_noise(x: Tensor, level: float, generator: torch.Generator) -> Tensor:
    chance = torch.rand(x.shape, generator=generator, dtype=x.dtype, device=CPU)
    return torch.where(chance < level / 2, 0.0, torch.where(chance > 1 - level / 2, 1.0, x))


def _gaussian_blur(x: Tensor, level: float, _: torch.Generator) -> Tensor:
    reach = max(1, math.ceil(3 * level))
    line = torch.exp(
        -0.5 * (torch.arange(-reach, reach + 1, dtype=x.dtype, device=CPU) / level).square()
    )
    return _filter(x, torch.outer(line, line) / line.sum().square())


def _motion_blur(x: Tensor, level: float, generator: torch.Generator) -> Tensor:
    size = int(level)
    kernel = torch.zeros(size, size, dtype=x.dtype, device=CPU)
    angle = float(torch.rand(1, generator=generator, device=CPU)) * math.pi
    for t in torch.linspace(-(size - 1) / 2, (size - 1) / 2, 4 * size, device=CPU).tolist():
        row, column = t * math.sin(angle) + (size - 1) / 2, t * math.cos(angle) + (size - 1) / 2
        kernel[round(row), round(column)] += 1
    return _filter(x, kernel / kernel.sum())


def _filter(x: Tensor, kernel: Tensor) -> Tensor:
    channels, reach = x.shape[1], kernel.shape[0] // 2
    # small images do not have enough pixels to mirror
    mode = "reflect" if reach < min(x.shape[2:]) else "replicate"
    padded = functional.pad(x, (reach,) * 4, mode=mode)
    return functional.conv2d(padded, kernel.expand(channels, 1, *kernel.shape), groups=channels)


def _contrast(x: Tensor, level: float, _: torch.Generator) -> Tensor:
    mean = x.mean((2, 3), keepdim=True)
    return mean + level * (x - mean)


def _pixelate(x: Tensor, level: float, _: torch.Generator) -> Tensor:
    small = [max(1, round(level * side)) for side in x.shape[2:]]
    down, across = (_means(*sides, x.dtype) for sides in zip(x.shape[2:], small, strict=True))
    return functional.interpolate(down @ x @ across.T, size=x.shape[2:], mode="nearest-exact")


def _means(many: int, few: int, dtype: torch.dtype) -> Tensor:
    """Means of `many` pixels over `few` equal cells (few, many), by how much of each lies inside.

    The windows of PyTorch's 'area' overlap: mild severities would damage more than strong ones.
    """
    cells = torch.arange(few + 1, dtype=dtype, device=CPU) * (many / few)
    pixels = torch.arange(many + 1, dtype=dtype, device=CPU)
    ends = torch.minimum(cells[1:, None], pixels[1:])
    inside = (ends - torch.maximum(cells[:-1, None], pixels[:-1])).clamp(min=0)
    return inside / inside.sum(1, keepdim=True)


def _rotation(x: Tensor, level: float, generator: torch.Generator) -> Tensor:
    sign = 1.0 if float(torch.rand(1, generator=generator, device=CPU)) < 0.5 else -1.0
    c, s = math.cos(sign * math.radians(level)), math.sin(sign * math.radians(level))
    matrix = torch.tensor([[[c, -s, 0.0], [s, c, 0.0]]], dtype=x.dtype, device=CPU)
    grid = functional.affine_grid(matrix, list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, padding_mode="border", align_corners=False)


KINDS: dict[str, tuple[Damage, tuple[float, ...]]] = {
    "gaussian noise": (lambda x, s, g: x + s * _normal(x, g), (0.02, 0.04, 0.06, 0.08, 0.12)),
    "shot noise": (lambda x, s, g: torch.poisson(x * s, g) / s, (500.0, 250.0, 100.0, 60.0, 30.0)),
    "impulse noise": (_impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.08)),
    "speckle noise": (lambda x, s, g: x + x * s * _normal(x, g), (0.05, 0.1, 0.15, 0.2, 0.3)),
    "gaussian blur": (_gaussian_blur, (0.4, 0.6, 0.8, 1.0, 1.4)),
    "motion blur": (_motion_blur, (3.0, 5.0, 7.0, 9.0, 11.0)),
    "contrast": (_contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "brightness": (lambda x, s, _: x + s, (0.05, 0.1, 0.2, 0.3, 0.4)),
    "pixelation": (_pixelate, (0.9, 0.75, 0.6, 0.5, 0.4)),
    "rotation": (_rotation, (5.0, 10.0, 15.0, 25.0, 40.0)),
}
"""Name -> damage, and its level for each severity."""
