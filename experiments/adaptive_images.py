"""The images of the adaptive table: those that are attacked, and those that set thresholds."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from credibly.data.sample import load_sample
from credibly.errors import FileFormatError, InvalidArgumentError
from experiments import cifar10
from experiments.adaptive_attacks import ranks
from experiments.evidence_subject import left_out
from experiments.recipes import Images

Pair = tuple[Tensor, Tensor]


def images(given: argparse.Namespace, facts: Mapping[str, str]) -> tuple[Pair, Pair]:
    """The images that are attacked, and those that set thresholds, as pixels.

    Only those of classes that the network knows, with labels in the order of its logits.
    """
    count, held_count = given.images, given.held_out_images
    if given.model is None:
        sample = load_sample()
        known = sample.images, sample.labels  # all are test images: the last ones set thresholds
        first, last = known, known
    else:
        first = arrays(given.test) if given.test else _cifar10(given.data, "test")
        last = _held_out(given, facts, first)
    first, last = _known(first, facts), _known(last, facts)
    test = first[0][:count], first[1][:count]
    return test, (last[0][-held_count:], last[1][-held_count:])


def _known(pair: Pair, facts: Mapping[str, str]) -> Pair:
    """The images of classes that the network was trained on, numbered as its logits."""
    found = Images(*pair).without(left_out(facts))
    return found.pixels, found.labels


def _held_out(given: argparse.Namespace, facts: Mapping[str, str], like: Pair) -> Pair:
    """A file, or as much of the end of the training set as the network was trained without."""
    if given.held_out is not None:
        return arrays(given.held_out)
    count = int(facts.get("held_out", "0"))
    unneeded = given.gamma is not None and not ranks(given.systems)
    if unneeded and (given.data is None or count < 1):
        return like[0][:0], like[1][:0]
    if given.data is not None and count < 1:
        raise InvalidArgumentError(
            "--held-out",
            expected="images that the network was not trained on",
            got="none, and the network's file names no held-out slice of its training set",
            remedy="Pass an .npz with images and labels.",
        )
    images, labels = _cifar10(given.data, "train")
    return images[-count:], labels[-count:]


def _cifar10(folder: Path | None, part: str) -> Pair:
    if folder is None:
        raise InvalidArgumentError(
            "data",
            expected="the folder of CIFAR-10, or both --test and --held-out",
            got="None",
            remedy="Pass --data FOLDER.",
        )
    split = cifar10.load(folder, part)
    return split.images, split.labels


def arrays(path: Path) -> Pair:
    """Images in [0, 1] and labels from an .npz of bytes: (n, h, w) or (n, h, w, channels)."""
    with np.load(path, allow_pickle=False) as file:
        if not {"images", "labels"} <= set(file.files) or file["images"].dtype != np.uint8:
            message = f"{path}: needs `images` of uint8 and `labels`, has {sorted(file.files)}"
            raise FileFormatError(message)
        raw, labels = file["images"], file["labels"].astype(np.int64)
    pixels = torch.from_numpy(raw).float() / 255
    channels_first = pixels.unsqueeze(1) if pixels.dim() == 3 else pixels.permute(0, 3, 1, 2)
    return channels_first.contiguous(), torch.from_numpy(labels)
