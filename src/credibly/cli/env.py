"""`credibly env`: what a bug report needs."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from credibly.cli.console import print_text

PACKAGES = (
    "credibly", "torch", "numpy", "safetensors", "typer", "rich", "matplotlib", "jinja2",
    "pandas", "pyarrow", "pillow", "scikit-learn", "skops",
)  # fmt: skip


def env() -> None:
    """Print versions and hardware, to paste into an issue."""
    import torch

    devices = range(torch.cuda.device_count())
    lines = [
        f"python: {platform.python_version()} on {platform.system()} {platform.machine()}",
        *(f"{package}: {_version(package)}" for package in PACKAGES),
        f"threads: {torch.get_num_threads()} of {os.cpu_count()} cores",
        f"cuda: {torch.version.cuda or 'not in this build of torch'}",
        *(f"device {number}: {torch.cuda.get_device_name(number)}" for number in devices),
    ]
    print_text("\n".join(lines))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
