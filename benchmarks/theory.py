"""Check the paper's inequalities on the embedded network.

python -m benchmarks.theory
"""

from __future__ import annotations

import argparse

import torch

import credibly as cr
from credibly.data.sample import load_sample

GAMMA = 200.0


def main() -> None:
    """Print how often Definition 2 and Assumption 2 hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=50)
    count = parser.parse_args().images
    sample = load_sample()
    clf, x = cr.Classifier(sample.net), sample.images[:count]
    profile = cr.credibility(clf, x, gamma=GAMMA)
    others = {
        "L-BFGS": cr.credibility(clf, x, gamma=GAMMA, solver=cr.solvers.LBFGS()).perturbed,
        "Hybrid(effort=4)": cr.credibility(
            clf, x, gamma=GAMMA, solver=cr.solvers.Hybrid(effort=4.0)
        ).perturbed,
    } | cr.attacks.minimum_norm_attacks(clf, x, bounds=(0.0, 1.0))
    found = cr.theory.check_tradeoff(clf, profile, others=others)
    print(f"trade-off at {count} images, gamma {GAMMA:g}, the default solver:")
    print(found.summary())
    near = torch.cat(
        [found.margins[name] for name in ("random directions", "gradient directions")], dim=1
    )
    print(f"samples that no nearby x' improves by more than 1 %: {share(near.amin(1) >= -0.01)}")
    print(
        f"samples that no x' at all improves by more than 1 %: {share(found.holds(tolerance=0.01))}"
    )
    print("Assumption 2 in double precision, by radius relative to |x+ - x0|:")
    double = cr.Classifier(sample.net.double())
    assumption = cr.theory.check_assumption_2(
        double, cr.credibility(double, x.double(), gamma=GAMMA)
    )
    rows = zip(assumption.radii, assumption.by_radius, assumption.unknown, strict=True)
    for radius, row, hidden in rows:
        print(
            f"  {radius:g}: holds in {float(row.mean()):.1%} of the directions, hidden by rounding "
            f"in {float(hidden.mean()):.1%}"
        )
    print(f"  worst margin: median {float(assumption.worst.median()):.3g} of sum l^2")
    print(f"  samples where it holds in every direction: {share(assumption.fraction == 1)}")


def share(mask: torch.Tensor) -> str:
    """Format the mean of truth values in per cent."""
    return f"{float(mask.double().mean()):.0%}"


if __name__ == "__main__":
    main()
