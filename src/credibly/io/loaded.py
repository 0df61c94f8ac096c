"""What is asked of a model to load, and what is returned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from credibly.errors import FileFormatError, InvalidArgumentError
from credibly.io.fingerprints import digest_of_parts
from credibly.model.classifier import Classifier, Outputs
from credibly.model.losses import Loss

Trust = bool | Sequence[str]
Parts = tuple[tuple[str, str], ...]

_PICKLE = (
    "this format is a pickle, which runs code when it is opened, and is not read. Save the weights "
    "with safetensors.torch.save_file(net.state_dict(), 'weights.safetensors') and pass "
    "package.module:factory with --weights weights.safetensors"
)
_REFUSED = {
    ".safetensors": "weights alone do not say what to compute. Name the network as "
    "package.module:factory and pass this file as its weights (--weights)",
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".bin"), _PICKLE),
}


@dataclass(frozen=True)
class Wanted:
    """The arguments of `load_classifier`."""

    weights: Path | None = None
    outputs: Outputs | None = None
    loss: str | Loss | None = None
    classes: Sequence[str] | None = None
    preprocess: Callable[[Tensor], Tensor] | str | None = None
    trusted: Trust = False
    dtype: torch.dtype | None = None
    device: str | torch.device | None = None
    graph_output: str | None = None

    def with_defaults(self, **values: Any) -> Wanted:
        """The same, with values for what was not asked for."""
        return replace(self, **{k: v for k, v in values.items() if getattr(self, k) is None})

    def refuse(self, *names: str, expected: str, remedy: str) -> None:
        """Refuse arguments that the model fixes itself."""
        for name in names:
            value: Any = getattr(self, name)
            if value is not None:
                raise InvalidArgumentError(name, expected=expected, got=f"{value!r}", remedy=remedy)


@dataclass(frozen=True)
class LoadedClassifier:
    """A classifier, and where it came from.

    Attributes:
        classifier: ready to use.
        kind: 'python', 'torch.export', 'onnx', 'skops' or 'pickle'.
        description: what was loaded, in one line.
        parts: names and digests of what the model was made of: weights, code, a name, a file.
        notes: what was done to it, such as a switch to evaluation mode.
        origin: what was asked for, from which another process can load it again.

    Example: see `load_classifier`.
    """

    classifier: Classifier
    kind: str
    description: str
    parts: Parts
    notes: tuple[str, ...] = ()
    origin: tuple[str, Wanted] | None = None

    @property
    def fingerprint(self) -> str:
        """SHA-256 over all parts, in hex."""
        return digest_of_parts(self.parts)

    def parts_by_name(self) -> dict[str, str]:
        """Return the parts as settings of a run: 'model weights', 'model code', ..."""
        return {f"model {name}": value for name, value in self.parts}


def refuse_format(path: Path, *, allowed: str | None = None) -> None:
    """Refuse a file that is not a model file, with what to do instead."""
    suffix = path.suffix.lower()
    if suffix in _REFUSED and suffix != allowed:
        raise FileFormatError(f"{path}: {_REFUSED[suffix]}.")
