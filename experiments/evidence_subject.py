"""What the evidence is about: a network, its test images, a held-out slice, and outliers.

All choices are made on the held-out slice of the training set, which the network was not trained
on. The test images are only measured on.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.nn import functional

from credibly.data.sample import load_sample
from experiments import mnist, networks
from experiments.datasets import read_split
from experiments.images import Images, held_out_slice, left_out, read_images, read_npz

EMBEDDED_TEST = 800
"""Of the 1000 embedded images; the others serve as the held-out slice."""


@dataclass(frozen=True)
class Subject:
    """A network on pixels, and its images.

    Attributes:
        net: gives logits.
        test: measured on.
        held_out: for choices.
        foreign: name -> images of other data sets, in the shape of the network's own.
        near: test images of classes that the network was not trained on, if any.
        facts: metadata of the network's file, if any.
    """

    net: nn.Module
    test: Images
    held_out: Images
    foreign: Mapping[str, Tensor]
    near: Tensor | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


def load(given: argparse.Namespace) -> Subject:
    """Load the embedded network and images, or those of files."""
    net: nn.Module
    facts: dict[str, str] = {}
    if given.model is None:
        sample = load_sample()
        net, images = sample.net, Images(sample.images, sample.labels)
        test, held_out = images[:EMBEDDED_TEST], images[EMBEDDED_TEST:]
    else:
        trained = networks.load(given.model)
        net, facts = trained.net, trained.facts
        test = read_split(given.dataset, given.data, "test")
        if given.held_out is None:
            held_out = held_out_slice(read_split(given.dataset, given.data, "train"), facts)
    if given.held_out is not None:
        held_out = read_npz(given.held_out)
    unknown, device = left_out(facts), given.device
    others = foreign(given, test.pixels)
    return Subject(
        net.to(device).eval().requires_grad_(False),
        test.without(unknown).to(device),
        held_out.without(unknown).to(device),
        {name: pixels.to(device) for name, pixels in others.items()},
        test.only(unknown).pixels.to(device) if unknown else None,
        facts,
    )


def foreign(given: argparse.Namespace, like: Tensor) -> dict[str, Tensor]:
    """Read the test images of other data sets that were given."""
    found = {}
    if given.mnist is not None:
        found["MNIST"] = mnist.load(given.mnist).pixels
    if given.other is not None:
        cifar = given.dataset == "cifar10"
        dataset, name = ("fashion-mnist", "Fashion-MNIST") if cifar else ("cifar10", "CIFAR-10")
        found[name] = (
            read_images(given.other)
            if given.other.suffix == ".npz"
            else read_split(dataset, given.other, "test").pixels
        )
    return {name: resize(images, like) for name, images in found.items()}


def resize(images: Tensor, like: Tensor) -> Tensor:
    """Give images of another data set the size and the channels of `like`."""
    sized = images
    if images.shape[2:] != like.shape[2:]:
        sized = functional.interpolate(images, size=like.shape[2:], mode="bilinear", antialias=True)
    if sized.shape[1] > like.shape[1]:
        sized = sized.mean(1, keepdim=True)
    return sized.clamp(0, 1).expand(-1, like.shape[1], -1, -1).to(like).contiguous()
