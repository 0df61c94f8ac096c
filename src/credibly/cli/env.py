"""`credibly env`: what an issue report needs."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from rich.console import Console

PACKAGES = (
    "credibly", "torch", "numpy", "safetensors", "typer", "rich", "matplotlib", "jinja2",
    "pandas", "pyarrow", "pillow", "scikit-learn", "skops",
)  # fmt: skip


def env() -> None:
    """Print versions and hardware, to paste into an issue."""
    import torch

    console = Console(highlight=False)
    console.print(
        f"python: {platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    for package in PACKAGES:
        console.print(f"{package}: {_version(package)}")
    console.print(f"threads: {torch.get_num_threads()} of {os.cpu_count()} cores")
    console.print(f"cuda: {torch.version.cuda or 'not in this build of torch'}")
    for number in range(torch.cuda.device_count()):
        console.print(f"device {number}: {torch.cuda.get_device_name(number)}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
