"""Write the images that the broad comparison needs as a few small files.

    python -m experiments.broad.prepare --cifar10 FOLDER --fashion-mnist FOLDER --mnist FOLDER
        --out data [--test 10000] [--train 20000] [--cifar10-train 20000]

Each file is an .npz with `images` (bytes) and `labels`. A data set without a folder is left out.
The folders are those that the loaders of `experiments` read. The training images of MNIST are in
`train-images-idx3-ubyte` and `train-labels-idx1-ubyte`, gzipped or not, beside the test images.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from credibly.errors import FileFormatError
from credibly.io.files import whole_file
from experiments import cifar10, fashion_mnist, mnist
from experiments.idx import find_idx, read_idx
from experiments.images import Images, as_pixels

MNIST_TRAIN = (60000, 28, 28)
"""The shape of all training images of MNIST."""

Load = Callable[[Path], Images]


def mnist_train(folder: Path) -> Images:
    """Read the training images of MNIST; only their number is checked."""
    images, labels = (
        read_idx(find_idx(name, [folder, folder / "data"], remedy="MNIST has four IDX files."))
        for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
    )
    if images.shape != MNIST_TRAIN or labels.shape != MNIST_TRAIN[:1]:
        message = f"{folder}: not the training set of MNIST, but {images.shape}, {labels.shape}."
        raise FileFormatError(message)
    return Images(as_pixels(images), torch.from_numpy(labels.astype(np.int64)))


def write(images: Images, path: Path) -> None:
    """Write bytes (n, height, width) or (n, height, width, 3), and labels."""
    pixels = images.as_bytes().pixels.permute(0, 2, 3, 1)
    grey = pixels.shape[3] == 1
    raw = pixels.squeeze(3) if grey else pixels
    with whole_file(path) as place, place.open("wb") as file:
        np.savez_compressed(
            file, images=raw.contiguous().numpy(), labels=images.labels.byte().numpy()
        )
    print(f"{path}: {len(images)} images, {path.stat().st_size / 1e6:.1f} MB", flush=True)


def files(given: argparse.Namespace) -> list[tuple[str, Path | None, Load, int]]:
    """Return what to write: the file, the folder it is read from, how, and how many images."""
    return [
        ("cifar10-test", given.cifar10, lambda f: cifar10.load(f, "test"), given.test),
        ("cifar10-train", given.cifar10, lambda f: cifar10.load(f, "train"), given.cifar10_train),
        ("fashion-mnist-test", given.fashion_mnist, lambda f: fashion_mnist.load(f, "test"),
         given.test),
        ("fashion-mnist-train", given.fashion_mnist, lambda f: fashion_mnist.load(f, "train"),
         given.train),
        ("mnist", given.mnist, mnist.load, given.test),
        ("mnist-train", given.mnist, mnist_train, given.train),
    ]  # fmt: skip


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    for name in ("--cifar10", "--fashion-mnist", "--mnist"):
        add(name, type=Path, metavar="FOLDER")
    add("--out", type=Path, default=Path("data"), help="default %(default)s")
    add("--test", type=int, default=10000, help="test images of each; default %(default)s")
    add("--train", type=int, default=20000, help="of MNIST and Fashion-MNIST; default %(default)s")
    add("--cifar10-train", type=int, default=20000, help="of CIFAR-10; default %(default)s")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the files of the data sets whose folders are given."""
    given = parsed(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    for name, folder, load, count in files(given):
        if folder is not None:
            write(load(folder)[:count], given.out / f"{name}.npz")


if __name__ == "__main__":
    main()
