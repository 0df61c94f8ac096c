"""How near the automatic gamma, from a few directions per input, is to that of all gradients.

    python -m benchmarks.gamma [--network FILE --images FILE.npz] [--count 600]

For the embedded network, or the one named: the median of tr(A A^T) / K by two to eight directions
for each input over that by all K gradients, for all images; and how much the choice of 64 of them
moves the exact median (one standard deviation of its logarithm, 300 draws).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

import credibly as cr
from credibly.data.sample import load_sample
from credibly.model.derivatives import loss_jacobian
from credibly.problem import weights

DRAWS, SAMPLE = 300, 64


def gram_matrices(clf: cr.Classifier, x: Tensor) -> Tensor:
    """A A^T (n, K, K) of each image, in double precision."""
    parts = []
    for part in x.split(SAMPLE):
        slopes = loss_jacobian(cr.bind(clf, part), part)[1].double()
        parts.append(slopes @ slopes.mT)
    return torch.cat(parts)


def by_directions(gram: Tensor, each: int) -> Tensor:
    """The median of the energies by so many directions per image."""
    before = weights.LEAST_EACH
    weights.LEAST_EACH = each  # the number of images alone would allow fewer
    try:
        directions, shares = weights._directions(len(gram), gram.shape[1])  # noqa: SLF001
    finally:
        weights.LEAST_EACH = before
    squares = torch.einsum("nmk,nkl,nml->nm", directions, gram, directions)
    return (squares @ shares.double()).quantile(0.5)


def main() -> None:
    """Print one line per number of directions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", type=Path)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--count", type=int, default=600)
    given = parser.parse_args()
    if given.network is None:
        sample = load_sample()
        net, x, name = sample.net, sample.images[: given.count], "embedded"
    else:
        from experiments import networks
        from experiments.images import read_npz

        x, name = read_npz(given.images)[: given.count].pixels, given.network.stem
        net = networks.load(given.network).net
    gram = gram_matrices(cr.Classifier(net.eval()), x)
    energies = gram.diagonal(dim1=1, dim2=2).mean(1)
    exact, g = energies.quantile(0.5), torch.Generator().manual_seed(0)
    draws = [energies[torch.randperm(len(x), generator=g)[:SAMPLE]] for _ in range(DRAWS)]
    moved = float(torch.stack([d.quantile(0.5) for d in draws]).log().std())
    print(f"{name}: {len(x)} images, {gram.shape[1]} classes, exact median {float(exact):.4g}")
    print(f"the choice of {SAMPLE} images moves it by {moved:.1%}")
    for each in (2, 3, 4, 8):
        print(f"{each} directions: {float(by_directions(gram, each) / exact):.3f} of it")


if __name__ == "__main__":
    main()
