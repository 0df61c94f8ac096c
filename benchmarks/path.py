"""The cost of a path over gamma, compared with separate solves and a single one.

python -m benchmarks.path
"""

from __future__ import annotations

import argparse

import torch

import credibly as cr
from credibly.data.sample import load_sample


def main() -> None:
    """Print passes, and how far the path's objectives are from those of separate solves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=100)
    count = parser.parse_args().images
    sample = load_sample()
    clf, x = cr.Classifier(sample.net), sample.images[:count]
    gammas = torch.logspace(4, 1.3, 20).tolist()
    path = cr.credibility_path(clf, x, gammas)
    separate = [cr.credibility(clf, x, gamma=gamma) for gamma in path.gammas]
    one = float(cr.credibility(clf, x, gamma=200.0).passes.median())
    alone = float(torch.stack([p.passes for p in separate]).sum(0).median())
    along = float(path.passes.median())
    print(f"one solve: {one:.0f} passes; {len(gammas)} separate solves: {alone:.0f}")
    print(f"path: {along:.0f} passes, {along / one:.2f} times one solve")
    print("gamma: objective along the path / objective of the separate solve (median)")
    for gamma, left, right in zip(path.gammas, path.profiles, separate, strict=True):
        ratio = (left.certificate.objective / right.certificate.objective).median()
        same = (left.credibility.argmax(1) == right.credibility.argmax(1)).double().mean()
        print(f"{gamma:10.1f}: {float(ratio):.3f}, same class ahead {float(same):.2f}")
    kept = (path.switching_gamma() == 0).double().mean()
    print(f"class never changes along the path: {float(kept):.2f}")


if __name__ == "__main__":
    main()
