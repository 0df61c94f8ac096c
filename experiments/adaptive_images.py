"""The images of the adaptive table: those that are attacked, and those that set thresholds."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from credibly.data.sample import load_sample
from credibly.errors import InvalidArgumentError
from experiments import cifar10
from experiments.adaptive_attacks import ranks
from experiments.images import Images, held_out_slice, left_out, read_npz


def load_images(given: argparse.Namespace, facts: Mapping[str, str]) -> tuple[Images, Images]:
    """Return the images that are attacked, and the held-out ones that set thresholds.

    Only those of classes that the network knows, with labels in the order of its logits.
    """
    if given.model is None:
        sample = load_sample()
        first = last = Images(sample.images, sample.labels)  # the last images set thresholds
    else:
        first = read_npz(given.test) if given.test else _cifar10(given.data, "test")
        last = _held_out(given, facts, first)
    unknown = left_out(facts)
    attacked, held_out = first.without(unknown), last.without(unknown)
    return attacked[: given.images], held_out[-given.held_out_images :]


def _held_out(given: argparse.Namespace, facts: Mapping[str, str], test: Images) -> Images:
    """Read a file, or the held-out end of the training set; nothing where nothing is needed."""
    if given.held_out is not None:
        return read_npz(given.held_out)
    needed = given.gamma is None or ranks(given.systems)
    if not needed and (given.data is None or int(facts.get("held_out", "0")) < 1):
        return test[:0]
    return held_out_slice(_cifar10(given.data, "train"), facts)


def _cifar10(folder: Path | None, part: str) -> Images:
    if folder is None:
        raise InvalidArgumentError(
            "data",
            expected="the folder of CIFAR-10, or both --test and --held-out",
            got="None",
            remedy="Pass --data FOLDER.",
        )
    return cifar10.load(folder, part)
