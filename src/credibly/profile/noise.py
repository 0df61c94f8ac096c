"""Random directions, with one stream of numbers per sample."""

from __future__ import annotations

import torch
from torch import Tensor

from credibly.types import CPU


def generators_from(seed: int, count: int) -> list[torch.Generator]:
    """One generator per sample, so that the batch does not change the directions."""
    return [torch.Generator(CPU).manual_seed(seed + n) for n in range(count)]


def noise_of(generators: list[torch.Generator], like: Tensor) -> Tensor:
    """Standard normal numbers shaped like `like`; each sample uses its own generator."""
    rows = [
        torch.randn(like.shape[1:], generator=g, dtype=like.dtype, device=CPU) for g in generators
    ]
    return torch.stack(rows).to(like.device)
