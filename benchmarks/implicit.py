"""The cost of a gradient through a profile, in passes measured in the same run.

python -m benchmarks.implicit
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

import credibly as cr
from credibly.data.sample import load_sample
from credibly.model.bind import bind
from credibly.profile.implicit import Curvature

KINDS: dict[str, tuple[Curvature, int]] = {
    "conjugate gradients, 8 products": ("full", 8),
    "conjugate gradients, 10 products": ("full", 10),
    "conjugate gradients, 100 products": ("full", 100),
    "Woodbury": ("outputs", 1),
}


def main() -> None:
    """Print the cost and the error of each way to solve the linear system."""
    sample = load_sample()
    clf, x = cr.Classifier(sample.net), sample.images[:64]
    profile = cr.credibility(clf, x, gamma=200.0)
    problem = cr.solvers.FitRiskProblem(bind(clf, x), torch.full((10,), 200.0))
    one = seconds(lambda: problem.evaluate(profile.perturbed))
    exact = gradient(clf, profile, "full", 100)
    for name, (curvature, products) in KINDS.items():
        cost = seconds(lambda c=curvature, p=products: gradient(clf, profile, c, p)) / one  # type: ignore[misc]
        gap = (gradient(clf, profile, curvature, products) - exact).flatten(1).norm(dim=1)
        share = (gap / exact.flatten(1).norm(dim=1)).median()
        print(f"{name}: {cost:.0f} passes, off by {float(share):.2%} (median of {len(x)} images)")


def gradient(
    clf: cr.Classifier, profile: cr.Profile, curvature: Curvature, products: int
) -> torch.Tensor:
    """Return the gradient of the largest credibility with respect to the inputs."""
    x0 = profile.x0.clone().requires_grad_(True)
    c = cr.attached_credibility(clf, profile, x0=x0, curvature=curvature, products=products)
    c.amax(1).sum().backward()
    assert x0.grad is not None
    return x0.grad


def seconds(work: Callable[[], object]) -> float:
    """Return the median time of five runs, after a warm-up."""
    work()
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return median(times)


if __name__ == "__main__":
    main()
