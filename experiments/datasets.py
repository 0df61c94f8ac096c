"""The two data sets of the experiments, by name."""

from __future__ import annotations

from pathlib import Path

from experiments import cifar10, fashion_mnist
from experiments.images import Images

MOMENTS = {
    "cifar10": (cifar10.MEAN, cifar10.STD),
    "fashion-mnist": (fashion_mnist.MEAN, fashion_mnist.STD),
}
"""Mean and standard deviation of the training pixels, one number per channel."""


def read_split(dataset: str, folder: Path, part: str) -> Images:
    """Read the part 'train' or 'test' of a data set, pixels in [0, 1]."""
    load = {"cifar10": cifar10.load, "fashion-mnist": fashion_mnist.load}[dataset]
    return load(folder, part)
