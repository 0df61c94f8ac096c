"""Passes and risk of the constrained problem, on two networks with many kinks.

python -m benchmarks.constrained
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import credibly as cr
from credibly.data.sample import load_sample

METHODS = {
    "default": cr.theory.AugmentedLagrangian(),
    "no anneal": cr.theory.AugmentedLagrangian(anneal_steps=1, rough_steps=15),
    "long": cr.theory.AugmentedLagrangian(anneal_steps=300, rough_steps=30),
    "longer": cr.theory.AugmentedLagrangian(first_steps=30, anneal_steps=900, rough_steps=60),
}


def main() -> None:
    """Compare the methods on the embedded network, and on a small random one."""
    sample = load_sample()
    clf, x = cr.Classifier(sample.net), sample.images[:60]
    print("embedded network, gamma 200, credences 0.2 below the profile")
    compare(clf, x, cr.credibility(clf, x, gamma=200.0).credibility - 0.2)
    at_the_profile(clf, x[:40])
    torch.manual_seed(0)
    layers = nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5)
    net = nn.Sequential(*layers).double().eval()
    for weight in net.parameters():
        nn.init.normal_(weight, std=2 / weight.shape[-1] ** 0.5)  # steep, with kinks everywhere
    clf, x = cr.Classifier(net), torch.randn(100, 8).double()
    print("\nrandom ReLU network, gamma 20, credences 0.1 below the profile")
    compare(clf, x, cr.credibility(clf, x, gamma=20.0).credibility - 0.1)


def at_the_profile(clf: cr.Classifier, x: Tensor) -> None:
    """Print the results at the profile's own credences, which leave no slack."""
    profile = cr.credibility(clf, x, gamma=200.0)
    for slack in (0.0, 0.05):
        found = cr.theory.solve_constrained(clf, x, profile.credibility - slack)
        solved = sum(status is cr.theory.Feasibility.SOLVED for status in found.status)
        share = (found.risk / profile.risk).double()
        low, middle, high = share.quantile(torch.tensor([0.1, 0.5, 0.9]).double()).tolist()
        print(
            f"{slack:g} below the profile: {solved} of {len(x)} solved, {middle:.3f} times its risk"
            f" (median; 80 % within {low:.2f} to {high:.2f}), largest violations "
            f"{', '.join(f'{value:.1e}' for value in found.violation.topk(2).values.tolist())}"
        )


def compare(clf: cr.Classifier, x: Tensor, credences: Tensor) -> None:
    """Print the risk relative to the best of all methods, violation and passes."""
    found = {
        name: cr.theory.solve_constrained(clf, x, credences, method=method)
        for name, method in METHODS.items()
    }
    best = torch.stack([solution.risk for solution in found.values()]).amin(0)
    for name, solution in found.items():
        solved = sum(status is cr.theory.Feasibility.SOLVED for status in solution.status)
        share = (solution.risk - best) / best.clamp(min=torch.finfo(best.dtype).tiny)
        print(
            f"{name}: {solved} of {len(x)} solved, risk {float(share.median()):.1%} above the best "
            f"known (median; 9 of 10 within {float(share.quantile(0.9)):.1%}, all within "
            f"{float(share.max()):.0%}), largest violation {float(solution.violation.max()):.1e}, "
            f"passes {float(solution.passes.median()):.0f} in the median, "
            f"{float(solution.passes.mean()):.0f} in the mean"
        )


if __name__ == "__main__":
    main()
