"""Versions and device, recorded with every result."""

from __future__ import annotations

import platform

import torch

import credibly as cr
from credibly.errors import InvalidArgumentError


def stamp(device: str) -> dict[str, str]:
    """Return versions and device; refuse a device that is not there."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts that it has it
        raise InvalidArgumentError(
            "--device",
            expected="a device that torch finds here, such as 'cpu' or 'cuda'",
            got=repr(device),
            remedy=f"torch says: {str(error).splitlines()[0]}",
        ) from error
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "credibly": cr.__version__,
        "device": name,
    }
