"""Fashion-MNIST from its published IDX files, checked byte for byte."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from credibly.errors import FileFormatError
from experiments.idx import idx_bytes, parse_idx

SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}

MEAN, STD = (0.2860,), (0.3530,)


@dataclass(frozen=True)
class Split:
    """Images as published (uint8, N x 28 x 28) and their labels (uint8, N)."""

    raw_images: np.ndarray
    raw_labels: np.ndarray

    @property
    def images(self) -> Tensor:
        """Pixels in [0, 1], float32, N x 1 x 28 x 28."""
        return torch.from_numpy(self.raw_images.copy()).unsqueeze(1).float() / 255

    @property
    def labels(self) -> Tensor:
        """Class indices, int64."""
        return torch.from_numpy(self.raw_labels.copy()).long()


def load(folder: str | Path, *, train: bool) -> Split:
    """Read one split from `folder`, which holds the four IDX files, gzipped or not."""
    prefix = "train" if train else "t10k"
    return Split(
        _checked(Path(folder), f"{prefix}-images-idx3-ubyte"),
        _checked(Path(folder), f"{prefix}-labels-idx1-ubyte"),
    )


def _checked(folder: Path, name: str) -> np.ndarray:
    candidates = [path for path in (folder / name, folder / f"{name}.gz") if path.exists()]
    if not candidates:
        message = (
            f"{folder} holds neither {name} nor {name}.gz. Fashion-MNIST is published as four IDX "
            "files; Debian's package dataset-fashion-mnist carries them."
        )
        raise FileNotFoundError(message)
    content = idx_bytes(candidates[0])
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256[name]:
        message = f"{candidates[0]}: SHA-256 is {digest}, not the published {SHA256[name]}."
        raise FileFormatError(message)
    return parse_idx(content, name=str(candidates[0]))
