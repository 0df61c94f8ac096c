"""Corrupted images: ten kinds of damage, five severities each, the same for the same seed.

Images are (n, channels, height, width) in [0, 1]. The kinds and the rising severities are in the
manner of Hendrycks and Dietterich (2019); the numbers are our own.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

import torch
from torch import Tensor
from torch.nn import functional

from credibly.errors import InvalidArgumentError
from credibly.types import whole_number

Damage = Callable[[Tensor, float, torch.Generator], Tensor]


@dataclass(frozen=True)
class Corruption:
    """One kind of damage at one severity.

    Attributes:
        kind: one of `KINDS`.
        severity: 1 (mild) to 5 (strong).
        seed: of its noise; every image has a stream of its own, from the seed and its pixels, so
            batch-mates, order and chunks change nothing.
    """

    kind: str
    severity: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in KINDS:
            raise InvalidArgumentError(
                "kind",
                expected=f"one of {', '.join(KINDS)}",
                got=repr(self.kind),
                remedy=_nearest(self.kind),
            )
        if whole_number(self.severity) not in range(1, 6):
            raise InvalidArgumentError(
                "severity", expected="1 to 5", got=repr(self.severity), remedy="1 is mild."
            )
        if whole_number(self.seed) is None:
            raise InvalidArgumentError(
                "seed", expected="a whole number", got=repr(self.seed), remedy="0 is usual."
            )

    def __call__(self, images: Tensor) -> Tensor:
        """The damaged images, clipped to [0, 1]."""
        floating = isinstance(images, Tensor) and images.is_floating_point() and images.dim() == 4
        if not floating or not bool(((images >= 0) & (images <= 1)).all()):
            raise InvalidArgumentError(
                "images",
                expected="images (n, channels, height, width) in [0, 1]",
                got=_described(images),
                remedy="Corrupt pixels before they are normalised.",
            )
        damage, levels = KINDS[self.kind]
        level = levels[self.severity - 1]
        exact = images.detach().cpu().to(torch.promote_types(images.dtype, torch.float32))
        damaged = [damage(image[None], level, self._stream(image)) for image in exact]
        return torch.cat(damaged).clamp(0, 1).to(images) if damaged else images.clone()

    def _stream(self, image: Tensor) -> torch.Generator:
        """The same image has the same noise at every severity, wherever it stands."""
        content = f"{int(self.seed)}:".encode() + image.float().contiguous().numpy().tobytes()
        number = int.from_bytes(hashlib.sha256(content).digest()[:7], "little")
        return torch.Generator().manual_seed(number)


def _nearest(kind: object) -> str:
    """Kinds that were probably meant: those with the word in them, else those spelt alike."""
    word = str(kind).replace("_", " ").replace("-", " ").strip().lower()
    near = [name for name in KINDS if word and word in name]
    near = near or get_close_matches(word, KINDS, n=3)
    return f"Did you mean {' or '.join(map(repr, near))}?" if near else "Choose one of these."


def _described(images: object) -> str:
    if not isinstance(images, Tensor):
        return type(images).__name__
    ends = f", from {images.min():.4g} to {images.max():.4g}" if images.numel() else ""
    return f"{images.dtype} of shape {tuple(images.shape)}{ends}"


def _noise_like(x: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(x.shape, generator=generator, dtype=x.dtype)


def _gaussian_noise(x: Tensor, level: float, generator: torch.Generator) -> Tensor:
    return x + level * _noise_like(x, generator)


def _speckle_noise(x: Tensor, level: float, generator: torch.Generator) -> Tensor:
    return x + x * level * _noise_like(x, generator)


def _shot_noise(x: Tensor, level: float, generator: torch.Generator) -> Tensor:
    return torch.poisson(x * level, generator=generator) / level


def _impulse_noise(x: Tensor, level: float, generator: torch.Generator) -> Tensor:
    chance = torch.rand(x.shape, generator=generator, dtype=x.dtype)
    return torch.where(chance < level / 2, 0.0, torch.where(chance > 1 - level / 2, 1.0, x))


def _gaussian_blur(x: Tensor, level: float, _: torch.Generator) -> Tensor:
    reach = max(1, math.ceil(3 * level))
    line = torch.exp(-0.5 * (torch.arange(-reach, reach + 1, dtype=x.dtype) / level).square())
    return _filter(x, torch.outer(line, line) / line.sum().square())


def _motion_blur(x: Tensor, level: float, generator: torch.Generator) -> Tensor:
    size = int(level)
    kernel = torch.zeros(size, size, dtype=x.dtype)
    angle = float(torch.rand(1, generator=generator)) * math.pi
    for t in torch.linspace(-(size - 1) / 2, (size - 1) / 2, 4 * size).tolist():
        row, column = t * math.sin(angle) + (size - 1) / 2, t * math.cos(angle) + (size - 1) / 2
        kernel[round(row), round(column)] += 1
    return _filter(x, kernel / kernel.sum())


def _filter(x: Tensor, kernel: Tensor) -> Tensor:
    channels, reach = x.shape[1], kernel.shape[0] // 2
    mode = "reflect" if reach < min(x.shape[2:]) else "replicate"  # small images have no more
    padded = functional.pad(x, (reach,) * 4, mode=mode)
    return functional.conv2d(padded, kernel.expand(channels, 1, *kernel.shape), groups=channels)


def _contrast(x: Tensor, level: float, _: torch.Generator) -> Tensor:
    mean = x.mean((2, 3), keepdim=True)
    return mean + level * (x - mean)


def _brightness(x: Tensor, level: float, _: torch.Generator) -> Tensor:
    return x + level


def _pixelate(x: Tensor, level: float, _: torch.Generator) -> Tensor:
    small = [max(1, round(level * side)) for side in x.shape[2:]]
    down, across = (_means(*sides, x.dtype) for sides in zip(x.shape[2:], small, strict=True))
    return functional.interpolate(down @ x @ across.T, size=x.shape[2:], mode="nearest-exact")


def _means(many: int, few: int, dtype: torch.dtype) -> Tensor:
    """Means of `many` pixels over `few` equal cells (few, many), by how much of each lies inside.

    Windows of PyTorch's own 'area' overlap: mild severities would damage more than strong ones.
    """
    cells = torch.arange(few + 1, dtype=dtype) * (many / few)
    pixels = torch.arange(many + 1, dtype=dtype)
    ends = torch.minimum(cells[1:, None], pixels[1:])
    inside = (ends - torch.maximum(cells[:-1, None], pixels[:-1])).clamp(min=0)
    return inside / inside.sum(1, keepdim=True)


def _rotation(x: Tensor, level: float, generator: torch.Generator) -> Tensor:
    sign = 1.0 if float(torch.rand(1, generator=generator)) < 0.5 else -1.0
    c, s = math.cos(sign * math.radians(level)), math.sin(sign * math.radians(level))
    matrix = torch.tensor([[[c, -s, 0.0], [s, c, 0.0]]], dtype=x.dtype)
    grid = functional.affine_grid(matrix, list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, padding_mode="border", align_corners=False)


KINDS: dict[str, tuple[Damage, tuple[float, ...]]] = {
    "gaussian noise": (_gaussian_noise, (0.02, 0.04, 0.06, 0.08, 0.12)),
    "shot noise": (_shot_noise, (500.0, 250.0, 100.0, 60.0, 30.0)),
    "impulse noise": (_impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.08)),
    "speckle noise": (_speckle_noise, (0.05, 0.1, 0.15, 0.2, 0.3)),
    "gaussian blur": (_gaussian_blur, (0.4, 0.6, 0.8, 1.0, 1.4)),
    "motion blur": (_motion_blur, (3.0, 5.0, 7.0, 9.0, 11.0)),
    "contrast": (_contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "brightness": (_brightness, (0.05, 0.1, 0.2, 0.3, 0.4)),
    "pixelation": (_pixelate, (0.9, 0.75, 0.6, 0.5, 0.4)),
    "rotation": (_rotation, (5.0, 10.0, 15.0, 25.0, 40.0)),
}
"""Name -> damage and its level for each severity."""
