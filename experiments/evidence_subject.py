"""What the evidence is about: a network, its test images, a held-out slice, and outliers.

Everything that is chosen is chosen on the held-out slice of the training set, which the network was
not trained on; the test images only measure.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from credibly.data.sample import load_sample
from credibly.errors import InvalidArgumentError
from experiments import cifar10, fashion_mnist, mnist, networks

CLASSES = 10
EMBEDDED_TEST = 800  # of the 1000 embedded images; the others stand in for a held-out slice


@dataclass(frozen=True)
class Labelled:
    """Images (n, channels, height, width) in [0, 1] and their classes (n,)."""

    images: Tensor
    labels: Tensor

    def on(self, device: str) -> Labelled:
        """The same on a device."""
        return Labelled(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True)
class Subject:
    """A network on pixels, and the images it is asked about.

    Attributes:
        net: gives logits.
        test: what is measured on.
        held_out: what is chosen on.
        foreign: name -> images of other data sets, in the form of the network's own.
        near: test images of classes that the network was not trained on, if there are any.
        facts: of the file, if there is one.
    """

    net: nn.Module
    test: Labelled
    held_out: Labelled
    foreign: Mapping[str, Tensor]
    near: Tensor | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


def load(arguments: argparse.Namespace) -> Subject:
    """The embedded network and images, or files."""
    net: nn.Module
    facts: dict[str, str] = {}
    near = None
    if arguments.model is None:
        sample = load_sample()
        images, labels = sample.images, sample.labels
        test = Labelled(images[:EMBEDDED_TEST], labels[:EMBEDDED_TEST])
        held_out = Labelled(images[EMBEDDED_TEST:], labels[EMBEDDED_TEST:])
        net = sample.net
    else:
        trained = networks.load(arguments.model)
        net, facts = trained.net, trained.facts
        own, near = without(split_of(arguments.dataset, arguments.data, "test"), left_out(facts))
        test, held_out = own, held_out_slice(arguments, facts)
    if arguments.held_out is not None:
        held_out, _ = without(labelled_file(arguments.held_out), left_out(facts))
    device = arguments.device
    return Subject(
        net.to(device).eval().requires_grad_(False),
        test.on(device),
        held_out.on(device),
        {name: value.to(device) for name, value in foreign(arguments, test.images).items()},
        None if near is None else near.to(device),
        facts,
    )


def split_of(dataset: str, folder: Path, part: str) -> Labelled:
    """One part of a data set, 'train' or 'test'."""
    if dataset == "cifar10":
        found = cifar10.load(folder, part)
        return Labelled(found.images, found.labels)
    split = fashion_mnist.load(folder, train=part == "train")
    return Labelled(split.images, split.labels)


def held_out_slice(arguments: argparse.Namespace, facts: Mapping[str, str]) -> Labelled:
    """The last images of the training set, as many as the network was trained without."""
    if arguments.held_out is not None:
        return Labelled(torch.empty(0), torch.empty(0))  # comes from its file
    count = int(facts.get("held_out", "0"))
    if count < 1:
        raise InvalidArgumentError(
            "--held-out",
            expected="images that the network was not trained on",
            got="none, and the network's file names no held-out slice of its training set",
            remedy="Pass an .npz with images and labels.",
        )
    train = split_of(arguments.dataset, arguments.data, "train")
    own, _ = without(Labelled(train.images[-count:], train.labels[-count:]), left_out(facts))
    return own


def left_out(facts: Mapping[str, str]) -> tuple[int, ...]:
    """Classes that the network does not know, from the metadata of its file."""
    words = facts.get("left_out", "")
    return tuple(int(word) for word in words.split(",") if word.strip())


def without(data: Labelled, classes: tuple[int, ...]) -> tuple[Labelled, Tensor | None]:
    """Images of the other classes, numbered in the order of the logits; and those of `classes`."""
    if not classes:
        return data, None
    known = [number for number in range(CLASSES) if number not in classes]
    place = torch.full((CLASSES,), -1)
    place[known] = torch.arange(len(known))
    labels = place[data.labels]
    inside = labels >= 0
    return Labelled(data.images[inside], labels[inside]), data.images[~inside]


def labelled_file(path: Path) -> Labelled:
    """`images` (uint8, n x height x width, with channels last if there are any) and `labels`."""
    with np.load(path, allow_pickle=False) as file:
        labels = torch.from_numpy(file["labels"].astype(np.int64))
        return Labelled(pixels(file["images"]), labels)


def pixels(raw: np.ndarray) -> Tensor:
    """Images in [0, 1], channels first."""
    if raw.dtype != np.uint8 or raw.ndim not in (3, 4):
        raise InvalidArgumentError(
            "images",
            expected="uint8 of shape (n, height, width) or (n, height, width, channels)",
            got=f"{raw.dtype} of shape {raw.shape}",
            remedy="Store the images as they were published.",
        )
    found = torch.from_numpy(np.array(raw)).float() / 255
    return found.unsqueeze(1) if raw.ndim == 3 else found.permute(0, 3, 1, 2).contiguous()


def foreign(arguments: argparse.Namespace, like: Tensor) -> dict[str, Tensor]:
    """Test images of other data sets, as far as they were given."""
    found = {}
    if arguments.mnist is not None:
        found["MNIST"] = mnist.load(arguments.mnist).images
    if arguments.other is not None:
        other = "fashion-mnist" if arguments.dataset == "cifar10" else "cifar10"
        name = "Fashion-MNIST" if arguments.dataset == "cifar10" else "CIFAR-10"
        if arguments.other.suffix == ".npz":
            with np.load(arguments.other, allow_pickle=False) as file:
                found[name] = pixels(file["images"])
        else:
            found[name] = split_of(other, arguments.other, "test").images
    return {name: fitted(images, like) for name, images in found.items()}


def fitted(images: Tensor, like: Tensor) -> Tensor:
    """Images of another set in the size and the channels of this one."""
    sized = images
    if images.shape[2:] != like.shape[2:]:
        sized = functional.interpolate(images, size=like.shape[2:], mode="bilinear", antialias=True)
    if sized.shape[1] > like.shape[1]:
        sized = sized.mean(1, keepdim=True)
    return sized.clamp(0, 1).expand(-1, like.shape[1], -1, -1).to(like).contiguous()
