"""Passes of the constrained problem on the embedded network, and how near the best known risk.

python -m benchmarks.constrained
"""

from __future__ import annotations

import torch

import credibly as cr
from credibly.data.sample import load_sample

METHODS = {
    "default": cr.AugmentedLagrangian(),
    "no anneal": cr.AugmentedLagrangian(anneal_steps=1, rough_steps=15),
    "long": cr.AugmentedLagrangian(anneal_steps=300, rough_steps=30),
    "longer": cr.AugmentedLagrangian(first_steps=30, anneal_steps=900, rough_steps=60),
}


def main() -> None:
    """Print risk against the best of all methods, violation and passes."""
    sample = load_sample()
    clf, x = cr.Classifier(sample.net), sample.images[:60]
    credences = cr.credibility(clf, x, gamma=200.0).credibility - 0.2
    found = {
        name: cr.solve_constrained(clf, x, credences, method=method)
        for name, method in METHODS.items()
    }
    best = torch.stack([solution.risk for solution in found.values()]).amin(0)
    for name, solution in found.items():
        solved = sum(status is cr.Feasibility.SOLVED for status in solution.status)
        share = solution.risk / best - 1
        print(
            f"{name}: {solved} of {len(x)} solved, risk {float(share.median()):.1%} above the best "
            f"known (median; 9 of 10 within {float(share.quantile(0.9)):.1%}), "
            f"largest violation {float(solution.violation.max()):.1e}, "
            f"median passes {float(solution.passes.median()):.0f}"
        )


if __name__ == "__main__":
    main()
