"""A function of the input and of fixed tensors: the building block of every twin."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Fixed(nn.Module):
    """A function of x and of fixed tensors, which it takes by name.

    The tensors are buffers, so they follow the module to other devices and precisions.
    """

    def __init__(self, function: Callable[..., Any], **tensors: Tensor) -> None:
        super().__init__()
        self.function = function
        for name, value in tensors.items():
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Any:
        return self.function(x, **self._buffers)


def affine(weight: Tensor, bias: Tensor) -> Fixed:
    """W x + b."""
    bias = bias.reshape(-1).expand(len(weight)).clone()
    return Fixed(functional.linear, weight=weight, bias=bias)


def power(exponent: float) -> Fixed:
    """The power of x, which also exists for a negative x if the exponent is whole."""
    whole = int(exponent) if float(exponent).is_integer() else exponent
    return Fixed(partial(torch.pow, exponent=whole))
