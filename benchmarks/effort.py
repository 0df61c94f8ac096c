"""Two grades of a solve on the embedded network: what a decision needs, and what it costs.

python -m benchmarks.effort
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

import credibly as cr
from credibly.data.sample import Sample, load_sample

IMAGES, GAMMA = 300, 200.0


def foreign(images: torch.Tensor) -> dict[str, torch.Tensor]:
    """Inputs that do not belong, made from the images or from nothing."""
    g = torch.Generator().manual_seed(0)
    mixed = torch.randperm(images[0].numel(), generator=g)
    return {
        "uniform noise": torch.rand(images.shape, generator=g),
        "inverted": 1 - images,
        "shuffled pixels": images.flatten(1)[:, mixed].reshape(images.shape),
    }


def print_judge(sample: Sample) -> None:
    """Time of a Judge in batches of 100, and one image at a time."""
    ordinary, new = sample.images[0::2], sample.images[1:200:2]
    for use in ("doubtful", "always", "never"):
        judge = cr.Judge.fit(sample.net, ordinary, profile=use)  # type: ignore[arg-type]
        found = judge(new)
        batch, alone = _seconds(lambda: judge(new), 5), _seconds(lambda: judge(new[:1]), 20)  # noqa: B023
        each = 1e3 * batch / len(new)
        print(
            f"Judge, profile {use:<9} {found.cost:5.2f} passes, {each:6.2f} ms per image, batches "
            f"of {len(new)}, {1e3 * alone:6.2f} ms for one image"
        )


def _seconds(work: Callable[[], object], times: int) -> float:
    """The fastest of several runs."""
    spent = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        spent.append(time.perf_counter() - started)
    return min(spent)


def main() -> None:
    """One row per effort."""
    sample = load_sample()
    clf, images = cr.Classifier(sample.net), sample.images[:IMAGES]
    full = cr.credibility(clf, images, gamma=GAMMA)
    radius = float(f"{float(full.risk.sqrt().median()):.3g}")
    efforts = {
        "solve": cr.solvers.Hybrid(),
        "decide, 9 passes": cr.solvers.FixedDescent(radius=radius),
        "decide, 7 passes": cr.solvers.FixedDescent(radius=radius, steps=6),
    }
    print(
        "effort            passes  F / solve  ms an image  AUROC of gain: noise, inverted, shuffled"
    )
    for name, solver in efforts.items():
        started = time.perf_counter()
        profile = cr.credibility(clf, images, gamma=GAMMA, solver=solver)
        spent = 1e3 * (time.perf_counter() - started) / IMAGES
        ratio = (profile.certificate.objective / full.certificate.objective).median()
        known = cr.scores.gain(profile)
        found = [
            cr.metrics.auroc(
                -cr.scores.gain(cr.credibility(clf, x, gamma=GAMMA, solver=solver)), -known
            )
            for x in foreign(images).values()
        ]
        print(
            f"{name:<17} {float(profile.passes.median()):6.1f}  {float(ratio):9.3f}  {spent:11.2f}"
            + "".join(f"  {value:.3f}" for value in found)
        )
    print_judge(sample)


if __name__ == "__main__":
    main()
