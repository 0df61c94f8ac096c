"""Sizes of conformal sets on the embedded images, from softmax and from the profile.

`python -m benchmarks.conformal` solves the images once. Then it draws many random halves: one sets
the threshold, the other tests it. Every row of the table has the same halves.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from torch import Tensor

import credibly as cr
from credibly.data.sample import load_sample
from credibly.decide.conformal import Method, Source

METHODS: tuple[Method, ...] = ("lac", "aps")
SOURCES: tuple[Source, ...] = ("softmax", "profile")
CONFIDENCES = (0.9, 0.95, 0.99)
GAMMA = 200.0


def measure(sets: Tensor, truth: Tensor) -> tuple[float, float, float, float]:
    """Return coverage, mean size, share of sets of one class, share of empty sets."""
    sizes = sets.sum(1)
    inside = sets[torch.arange(len(truth)), truth]
    found = (inside, sizes, sizes == 1, sizes == 0)
    coverage, size, single, empty = (float(values.double().mean()) for values in found)
    return coverage, size, single, empty


def main(images: int, draws: int) -> None:
    """Print the table."""
    sample = load_sample()
    clf = cr.Classifier(sample.net, classes=sample.classes)
    profile = cr.credibility(clf, sample.images[:images], gamma=GAMMA)
    truth = sample.labels[:images].long()
    generator = torch.Generator().manual_seed(0)
    halves = [torch.randperm(images, generator=generator).chunk(2) for _ in range(draws)]
    print(f"{images} images, gamma {GAMMA:g}, means over {draws} draws of halves")
    print("method confidence from     coverage  classes  single  empty")
    for method in METHODS:
        for confidence in CONFIDENCES:
            for source in SOURCES:
                rows = []
                for known, new in halves:
                    rule = cr.ConformalSets.fit(
                        clf, profile[known], truth[known], confidence=confidence,
                        probabilities=source, method=method,
                    )  # fmt: skip
                    rows.append(measure(rule.sets(profile[new]), truth[new]))
                means = [statistics.fmean(column) for column in zip(*rows, strict=True)]
                print(
                    f"{method:6} {confidence:10.2f} {source:8} {means[0]:8.3f} {means[1]:8.2f} "
                    f"{means[2]:7.3f} {means[3]:6.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=100)
    given = parser.parse_args()
    main(given.images, given.draws)
