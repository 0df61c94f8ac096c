"""The file of a network: written with what made it, and added to later."""

from __future__ import annotations

import json
import platform
import re
from pathlib import Path
from typing import Any

import torch

from credibly.io.files import whole_file
from credibly.version import __version__

Row = dict[str, Any]


def rounded(value: object) -> object:
    """Numbers with five digits, at any depth."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list | tuple) else value


def made_by(command: str, device: str) -> dict[str, str]:
    """What made some numbers."""
    return {
        "command": command, "credibly": __version__,
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        "torch": torch.__version__, "python": platform.python_version(),
    }  # fmt: skip


def write(found: Row, out: Path, device: str, command: str = "python -m experiments.broad") -> Path:
    """One file per network, with the command and versions that made it."""
    path = out / file_name(found["name"])
    out.mkdir(parents=True, exist_ok=True)
    put(made_by(command, device) | found, path)
    return path


def put(row: Row, path: Path) -> None:
    """Write a row, whole or not at all."""
    with whole_file(path) as place:
        place.write_text(json.dumps(rounded(row)) + "\n", "utf-8")


def file_name(name: str) -> str:
    """The file of a network."""
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-") + ".json"


def merged(row: Row, later: Row) -> Row:
    """The row with what only the later one has, at any depth; what is there stays as it is."""
    found = dict(row)
    for name, value in later.items():
        here = found.setdefault(name, value)
        if isinstance(here, dict) and isinstance(value, dict):
            found[name] = merged(here, value)
    return found
