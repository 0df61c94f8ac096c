"""The cost of a thousand classes: seconds per pass of K = 1000 and K = 10, and what `top` changes.

    python -m benchmarks.many_classes

One backward pass serves all classes, so a pass should cost only what the body and the last layer
cost. Because machines are noisy, the two solves alternate and neighbouring runs are compared. The
bare ratio is that of forward and backward alone, without this package. Then whole profiles of
K = 1000 with and without `top`, whose head is random: their passes and their time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

import credibly as cr
from credibly.data.sample import load_sample

FEW, MANY, BATCH, STEPS = 10, 1000, 64, 12
TOPS = (10, 50)


def body() -> tuple[nn.Module, Tensor]:
    """Return the embedded network without its last layer, and images."""
    sample = load_sample()
    layers = [name for name, part in sample.net.named_modules() if isinstance(part, nn.Linear)]
    parent, _, own = layers[-1].rpartition(".")
    setattr(sample.net.get_submodule(parent) if parent else sample.net, own, nn.Identity())
    return sample.net.eval().requires_grad_(False), sample.images[:BATCH]


def model(front: nn.Module, features: int, classes: int) -> nn.Module:
    """Return the body with a head of so many classes."""
    torch.manual_seed(0)
    return nn.Sequential(front, nn.Linear(features, classes)).eval().requires_grad_(False)


def solved(net: nn.Module, x: Tensor, solver: cr.solvers.Solver) -> Callable[[], float]:
    """Return a function that measures the seconds per pass of a solve."""
    clf = cr.Classifier(net)
    gamma = cr.auto_gamma(clf, x, sample=8)

    def once() -> float:
        begin = time.perf_counter()
        profile = cr.credibility(clf, x, gamma=gamma, solver=solver)
        return (time.perf_counter() - begin) / float(profile.passes.mean())

    return once


def bare(net: nn.Module, x: Tensor) -> Callable[[], float]:
    """Return a function that measures the seconds of a forward and a backward alone."""

    def once() -> float:
        begin = time.perf_counter()
        for _ in range(STEPS):
            given = x.clone().requires_grad_(True)
            torch.autograd.grad(torch.logsumexp(net(given), 1).sum(), given)
        return (time.perf_counter() - begin) / STEPS

    return once


def ratio(few: Callable[[], float], many: Callable[[], float], rounds: int) -> tuple[float, ...]:
    """Return medians of the ratio within a round, and of the seconds of both."""
    few(), many()
    pairs = sorted((b / a, a, b) for a, b in ((few(), many()) for _ in range(rounds)))
    return tuple(sorted(column)[rounds // 2] for column in zip(*pairs, strict=True))


def whole(
    clf: cr.Classifier, x: Tensor, top: int | None, effort: str
) -> tuple[Callable[[], float], float]:
    """Return a function that measures the seconds of whole profiles, and their mean passes."""
    gamma = cr.auto_gamma(clf, x, sample=8, top=top)
    solver = cr.solvers.FixedDescent() if effort == "decide" else None
    solve = partial(cr.credibility, clf, x, gamma=gamma, top=top, solver=solver)

    def once() -> float:
        begin = time.perf_counter()
        solve()
        return time.perf_counter() - begin

    return once, float(solve().passes.mean())


def compare_top(clf: cr.Classifier, x: Tensor, rounds: int) -> None:
    """Print passes and time of profiles about all classes and about the most probable ones."""
    for effort in ("solve", "decide"):
        every, passes = whole(clf, x, None, effort)
        for top in TOPS:
            few, fewer = whole(clf, x, top, effort)
            times, before, after = ratio(every, few, rounds)
            print(
                f"{effort:>8}: {1e3 * before / BATCH:.1f} ms per image and {passes:.0f} passes "
                f"without top, {1e3 * after / BATCH:.1f} ms and {fewer:.0f} passes with "
                f"top={top}: ratio {times:.2f}"
            )


def main() -> None:
    """Print one line per kind of pass, and per effort and `top`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    front, x = body()
    with torch.no_grad():
        features = front(x[:1]).shape[1]
    nets = [model(front, features, classes) for classes in (FEW, MANY)]
    print(f"{BATCH} images, {features} features before the head, median of {rounds} rounds")
    descent = cr.solvers.GradientDescent(steps=STEPS, patience=None, tolerance=0.0)
    for name, kind in (
        ("descent", partial(solved, solver=descent)),
        ("hybrid", partial(solved, solver=cr.solvers.Hybrid(effort=0.3))),
        ("bare", bare),
    ):
        times, few, many = ratio(kind(nets[0], x), kind(nets[1], x), rounds)
        print(
            f"{name:>8}: {1e3 * few:.1f} ms per pass at K = {FEW}, {1e3 * many:.1f} ms at "
            f"K = {MANY}: ratio {times:.2f}"
        )
    compare_top(cr.Classifier(nets[1]), x, max(1, rounds // 3))


if __name__ == "__main__":
    main()
