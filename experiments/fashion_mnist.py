"""Read Fashion-MNIST from its published IDX files, and check every byte."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch

from credibly.errors import FileFormatError
from experiments.idx import find_idx, idx_bytes, parse_idx
from experiments.images import Images, as_pixels

SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}

MEAN, STD = (0.2860,), (0.3530,)


def load(folder: str | Path, part: str) -> Images:
    """Read the part 'train' or 'test' from a folder of the four files, gzipped or not."""
    prefix = {"train": "train", "test": "t10k"}[part]
    pixels = as_pixels(_checked(Path(folder), f"{prefix}-images-idx3-ubyte"))
    labels = _checked(Path(folder), f"{prefix}-labels-idx1-ubyte")
    return Images(pixels, torch.from_numpy(labels.astype(np.int64)))


def _checked(folder: Path, name: str) -> np.ndarray:
    path = find_idx(
        name,
        [folder],
        remedy="Fashion-MNIST is published as four IDX files; Debian's package "
        "dataset-fashion-mnist has them.",
    )
    content = idx_bytes(path)
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256[name]:
        message = f"{path}: SHA-256 is {digest}, not the published {SHA256[name]}."
        raise FileFormatError(message)
    return parse_idx(content, name=str(path))
