"""Images with their classes: from data sets, .npz files and held-out slices of training sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from credibly._validation import require
from credibly.errors import FileFormatError


@dataclass(frozen=True)
class Images:
    """Pixels (n, channels, height, width), bytes or numbers in [0, 1], and classes (n,)."""

    pixels: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: slice | Tensor) -> Images:
        return Images(self.pixels[rows], self.labels[rows])

    def to(self, device: str) -> Images:
        """Move both to a device."""
        return Images(self.pixels.to(device), self.labels.to(device))

    def as_bytes(self) -> Images:
        """Turn pixels in [0, 1] into the bytes they were read from."""
        return Images((self.pixels * 255).round().byte(), self.labels)

    def without(self, classes: tuple[int, ...]) -> Images:
        """Select the other classes and renumber them in order, as the logits of a network are."""
        if not classes:
            return self
        kept = self[~self._of(classes)]
        below = sum((kept.labels > left).long() for left in classes)
        return Images(kept.pixels, kept.labels - below)

    def only(self, classes: tuple[int, ...]) -> Images:
        """Select some classes."""
        return self[self._of(classes)]

    def _of(self, classes: tuple[int, ...]) -> Tensor:
        return torch.isin(self.labels, torch.tensor(classes, dtype=self.labels.dtype))


def left_out(facts: Mapping[str, str]) -> tuple[int, ...]:
    """Return the classes that a network was not trained on, from the metadata of its file."""
    words = facts.get("left_out", "")
    return tuple(int(word) for word in words.split(",") if word.strip())


def held_out_slice(train: Images, facts: Mapping[str, str]) -> Images:
    """Return the end of a training set, as many images as the network was trained without."""
    count = int(facts.get("held_out", "0"))
    require(
        count > 0,
        "--held-out",
        "images that the network was not trained on",
        "none, and the network's file names no held-out slice of its training set",
        "Pass an .npz with images and labels.",
    )
    return train[-count:]


def read_images(path: Path) -> Tensor:
    """Read the array `images` of an .npz file as pixels in [0, 1]."""
    with np.load(path, allow_pickle=False) as file:
        _require_arrays(path, file.files, "images")
        return as_pixels(file["images"])


def read_npz(path: Path) -> Images:
    """Read `images` and `labels` of an .npz file, pixels in [0, 1]."""
    with np.load(path, allow_pickle=False) as file:
        _require_arrays(path, file.files, "images", "labels")
        labels = torch.from_numpy(file["labels"].astype(np.int64))
        return Images(as_pixels(file["images"]), labels)


def _require_arrays(path: Path, found: list[str], *names: str) -> None:
    if not set(names) <= set(found):
        raise FileFormatError(f"{path}: expected the arrays {list(names)}, got {sorted(found)}.")


def as_pixels(raw: np.ndarray) -> Tensor:
    """Turn bytes (n, height, width) or (n, height, width, channels) into pixels in [0, 1]."""
    require(
        raw.dtype == np.uint8 and raw.ndim in (3, 4),
        "images",
        "uint8 of shape (n, height, width) or (n, height, width, channels)",
        f"{raw.dtype} of shape {raw.shape}",
        "Store the images as they were published.",
    )
    found = torch.from_numpy(np.array(raw)).float() / 255
    return found.unsqueeze(1) if raw.ndim == 3 else found.permute(0, 3, 1, 2).contiguous()
