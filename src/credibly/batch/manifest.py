"""What a run was started with, so that it goes on only with exactly the same."""

from __future__ import annotations

import json
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from credibly.errors import OutputError
from credibly.version import __version__

FORMAT = "credibly.score"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Manifest:
    """All that decides the rows, and the weights that were resolved once.

    Attributes:
        settings: what was asked for, by name; compared when a run goes on.
        weights: the K weights in use, also where gamma was 'auto'.
        gamma: the one number, or None where the weights differ.
    """

    settings: dict[str, Any]
    weights: tuple[float, ...]
    gamma: float | None

    def to_json(self) -> str:
        """As it stands in the manifest and in the metadata of the result."""
        return json.dumps(
            {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}, indent=1
        )

    @staticmethod
    def read(path: Path) -> Manifest | None:
        """The manifest of an earlier run; None where there is none that can be read."""
        try:
            values = json.loads(path.read_text("utf-8"))
            if values["format_version"] != FORMAT_VERSION or values["format"] != FORMAT:
                return None
            gamma = values["gamma"]
            weights = tuple(float(w) for w in values["weights"])
            return Manifest(dict(values["settings"]), weights, gamma)
        except (FileNotFoundError, KeyError, TypeError, ValueError):
            return None


def versions() -> dict[str, str]:
    """Versions that may change a rounding, and with it a row."""
    return {
        "credibly": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """Settings as JSON gives them back, so that stored and new ones compare equal."""
    return dict(json.loads(json.dumps(values)))


def require_same(stored: dict[str, Any], new: dict[str, Any], parts: Path) -> None:
    """Refuse to go on with rows that were made otherwise; every difference is named."""
    differ = [name for name in sorted({*stored, *new}) if stored.get(name) != new.get(name)]
    of_model = {name for name in differ if name.startswith("model ")}
    # where its parts are known they say more than the digest of all; equal digests need none
    hidden = {"model"} if of_model and "model" in differ else of_model
    differences = [
        f"{name} was {_short(stored.get(name))} and is now {_short(new.get(name))}"
        for name in differ
        if name not in hidden
    ]
    if differences:
        raise OutputError(
            f"{parts} holds rows of a run that was started otherwise: {'; '.join(differences)}",
            remedy="Start it as before to go on, or drop its rows with resume=False (--restart).",
        )


def _short(value: object) -> str:
    text = "not set" if value is None else str(value)
    if re.fullmatch("[0-9a-f]{64}", text):
        return text[:12]  # of a digest, so much tells it from another
    return text if len(text) <= 80 else f"{text[:60]}...{text[-12:]}"
