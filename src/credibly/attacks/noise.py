"""Random numbers that belong to a sample: the same in any batch, chunk and device.

Each number is a hash (SplitMix64) of the seed, the sample's own values, a stream and the feature.
`profile/certificate.py` instead seeds one generator per row of a profile: fine for a few directions
on the CPU, but attacks draw at every step on the device, and a sample's row changes with the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def _signed(value: int) -> int:
    """An unsigned number of 64 bits as torch holds it."""
    return value - (1 << 64) if value >= 1 << 63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)


def _shifted(z: Tensor, bits: int) -> Tensor:
    """Shift right and fill with zeros: torch fills with the sign."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shifted(z, 30)) * _FIRST
    z = (z ^ _shifted(z, 27)) * _SECOND
    return z ^ _shifted(z, 31)


def sample_keys(x: Tensor, seed: int) -> Tensor:
    """One key per sample (n,) from its values and the seed."""
    values = x.detach().flatten(1).double() + 0.0  # adding zero makes -0 and 0 the same
    bits = values.contiguous().view(torch.int64)
    places = torch.arange(bits.shape[1], device=x.device) * _GOLDEN
    return _mix(_mix(bits + places).sum(1) + _signed(seed % (1 << 64)))


def with_stream(keys: Tensor, stream: Tensor | int) -> Tensor:
    """Other keys for another use of the same samples: a restart, a step."""
    return _mix(keys + (torch.as_tensor(stream, device=keys.device) + 1) * _GOLDEN)


def uniform(keys: Tensor, shape: Sequence[int]) -> Tensor:
    """Numbers in [0, 1) of shape (n, *shape), in float64."""
    count = math.prod(shape)
    places = (torch.arange(count, device=keys.device) + 1) * _GOLDEN
    z = _mix(keys[:, None] + places)
    return (_shifted(z, 11).double() * 2.0**-53).reshape(len(keys), *shape)


def normal(keys: Tensor, shape: Sequence[int]) -> Tensor:
    """Standard normal numbers (n, *shape), in float64 (Box and Muller)."""
    both = uniform(keys, (2, *shape))
    radius = (-2 * torch.log1p(-both[:, 0])).sqrt()
    return radius * torch.cos(2 * math.pi * both[:, 1])
