"""What verdicts are worth: how often the network is right, by verdict, on the embedded images.

    python -m benchmarks.verdicts

Half of the images, drawn at random, teach the judge; it judges the other half; twenty times.
"""

from __future__ import annotations

from collections import Counter

import torch

import credibly as cr
from credibly.data.sample import load_sample

GAMMA, HALVES = 200.0, 20


def counted(clf: cr.Classifier, profile: cr.Profile, right: torch.Tensor) -> Counter[object]:
    """How often each verdict was given, and how often the network was right then."""
    found: Counter[object] = Counter()
    generator = torch.Generator().manual_seed(0)
    for _ in range(HALVES):
        known, new = torch.randperm(len(profile), generator=generator).chunk(2)
        verdicts = cr.Judge.learn(clf, profile[known]).judge(profile[new])
        for verdict, hit in zip(verdicts, right[new].tolist(), strict=True):
            found[verdict] += 1
            found[verdict, "right"] += hit
    return found


def main() -> None:
    """Print a line a verdict."""
    sample = load_sample()
    clf = cr.Classifier(sample.net, classes=sample.classes)
    profile = cr.credibility(clf, sample.images, gamma=GAMMA, progress=False)
    right = profile.fit.argmax(1) == sample.labels
    found = counted(clf, profile, right)
    total = HALVES * len(profile.credibility[1::2])
    for verdict in cr.Verdict:
        if found[verdict]:
            share, hits = found[verdict] / total, found[verdict, "right"] / found[verdict]
            print(f"{verdict.value}: {share:.1%} of the images, right on {hits:.1%} of them")


if __name__ == "__main__":
    main()
