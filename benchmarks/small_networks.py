"""Whether the default score ranks errors better than softmax on small networks (it does not).

    python -m benchmarks.small_networks [--kappa 64]

Half of the handwritten digits of scikit-learn, 8 x 8, train networks of four kinds for two lengths;
the other half is scored. Prints AURC (x 1000, smaller is better) of the largest softmax output and
of the default score, and their difference with its 95 % interval. `--kappa` is passed on to
`auto_gamma`: the larger it is, the less inputs move.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import credibly as cr
from credibly.decide import scores
from credibly.metrics import aurc
from credibly.metrics.intervals import paired_difference

SEEDS, LENGTHS, TRAINED = (0, 1, 2), (20, 200), 900
"""Training seeds, epochs, and how many images train."""


def perceptron(width: int) -> Callable[[], nn.Module]:
    """Return a maker of networks with two hidden layers."""
    return lambda: nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )


def convolutions() -> nn.Module:
    """Build two convolutions and a linear layer."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip


KINDS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(64, 10),
    "perceptron, 32": perceptron(32),
    "perceptron, 256": perceptron(256),
    "convolutions": convolutions,
}


def trained(make: Callable[[], nn.Module], x: Tensor, y: Tensor, epochs: int) -> nn.Module:
    """Train by Adam, in batches of 32."""
    net = make()
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()
    return net.eval()


def line(net: nn.Module, x: Tensor, y: Tensor, kappa: float) -> str:
    """Compare the two scores on new images."""
    clf = cr.Classifier(net)
    profile = cr.credibility(clf, x, gamma=cr.auto_gamma(clf, x, kappa=kappa), progress=False)
    right = profile.credence.argmax(1) == y
    default, softmax = cr.scores.failure_score(profile)(profile), scores.max_softmax(profile)
    gap = paired_difference(aurc, default, softmax, right)
    kept = (profile.credibility.argmax(1) == profile.credence.argmax(1)).double().mean()
    low, value, high = (1000 * v for v in (gap.low, gap.value, gap.high))
    return (
        f"right on {right.double().mean():.1%}; softmax {1000 * aurc(softmax, right):5.2f}, "
        f"default {1000 * aurc(default, right):5.2f}, difference {value:+.2f} "
        f"({low:+.2f} to {high:+.2f}); class kept at x+ for {kept:.0%}"
    )


def main() -> None:
    """Print a line per network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kappa", type=float, default=1.0)
    kappa = parser.parse_args().kappa
    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(pixels / 16).float()[order], torch.tensor(labels)[order]
    for kind, make in KINDS.items():
        for epochs in LENGTHS:
            for seed in SEEDS:
                torch.manual_seed(seed)
                net = trained(make, x[:TRAINED], y[:TRAINED], epochs)
                text = line(net, x[TRAINED:], y[TRAINED:], kappa)
                print(f"{kind}, {epochs} epochs, seed {seed}: {text}", flush=True)


if __name__ == "__main__":
    main()
