"""The sample that ships with the package: a small network and 1000 Fashion-MNIST test images."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from credibly.data.small_resnet import SmallResNet
from credibly.io.files import load_tensors, whole_file
from credibly.model.classifier import Classifier

CLASSES = (
    "T-shirt", "trouser", "pullover", "dress", "coat",
    "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """A trained network, images it was not trained on, and their true classes.

    Attributes:
        net: in evaluation mode; takes pixels in [0, 1], (n, 1, 28, 28), and returns ten logits.
        images: the first 1000 test images of Fashion-MNIST.
        labels: their classes (1000,).
        classes: the names of the ten classes.
        test_accuracy: of the network on all 10,000 test images, as measured after training.
    """

    net: SmallResNet
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    test_accuracy: float


def load_sample() -> Sample:
    """Load the embedded network and images; nothing is downloaded."""
    folder = files("credibly.data") / "embedded"
    with as_file(folder / "weights.safetensors") as path:
        weights, facts = load_tensors(path)
    with torch.random.fork_rng(devices=[]):  # the random values are overwritten at once
        net = SmallResNet(width=int(json.loads(facts["architecture"])["width"]))
    net.load_state_dict(weights)
    with as_file(folder / "images.npz") as path, np.load(path, allow_pickle=False) as arrays:
        images = torch.from_numpy(arrays["images"]).unsqueeze(1).float() / 255
        labels = torch.from_numpy(arrays["labels"].astype(np.int64))
    # Convolutions over few channels run about twice as fast in this layout on CPUs.
    for convolution in (m for m in net.modules() if isinstance(m, torch.nn.Conv2d)):
        weight = convolution.weight.detach().contiguous(memory_format=torch.channels_last)
        convolution.weight = torch.nn.Parameter(weight)
    net.eval().requires_grad_(False)
    return Sample(net, images, labels, CLASSES, float(facts["test_accuracy"]))


def classifier() -> Classifier:
    """Return the embedded network, ready to use; by name `credibly.data.sample:classifier`."""
    return Classifier(load_sample().net, classes=CLASSES)


def write_images(path: str | Path, *, images: int = 1000) -> None:
    """Write the first of the embedded images and their labels as an `.npz` file."""
    sample = load_sample()
    with whole_file(path) as place, place.open("wb") as file:
        np.savez_compressed(
            file, images=sample.images[:images].numpy(), labels=sample.labels[:images].numpy()
        )
