"""How much is left where `Hybrid` stops early, on small random networks with large weights.

    python -m benchmarks.steep_networks

48 networks of four kinds, weights three to ten times their usual size, gamma .01, .3 and 3 times
the automatic one, 12 inputs each. Where a sample ended near a stationary point without having
converged, 3000 patient steps of L-BFGS go on from there.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import credibly as cr
from credibly.problem.fit_risk import FitRiskProblem
from credibly.solve.loop import solve

KINDS = (nn.ReLU, nn.GELU, nn.Tanh, nn.Softplus)
NETWORKS, INPUTS, FEATURES, CLASSES = 48, 12, 12, 5
SHARES = (0.01, 0.3, 3.0)
ENOUGH, LAST_STAGE = 0.065, 95
PATIENT = cr.solvers.LBFGS(steps=3000, patience=None, tolerance=1e-10)


def network(number: int) -> nn.Module:
    """One of the random networks, in double precision."""
    torch.manual_seed(number)
    kind = KINDS[number % len(KINDS)]
    net = nn.Sequential(
        nn.Linear(FEATURES, 24), kind(), nn.Linear(24, 24), kind(), nn.Linear(24, CLASSES)
    ).double()
    for parameter in net.parameters():
        parameter.requires_grad_(False).mul_(3 + 7 * number / (NETWORKS - 1))
    return net.eval()


def further(clf: cr.Classifier, x: Tensor, gamma: float) -> Tensor:
    """F after patient steps over F before, for the samples that ended early."""
    found = cr.credibility(clf, x, gamma=gamma)
    open_ = (found.codes == cr.Status.STALLED) | (found.codes == cr.Status.STEP_LIMIT)
    near = found.certificate.relative_stationarity <= ENOUGH
    rows = open_ & near & (found.passes < LAST_STAGE)
    if not bool(rows.any()):
        return torch.zeros(0, dtype=torch.float64)
    weights = torch.full((CLASSES,), gamma, dtype=torch.float64)
    problem = FitRiskProblem(cr.bind(clf, x[rows]), weights)
    after = solve(problem, PATIENT, chunk_size=len(x), start=found.perturbed[rows])
    return problem.objective(after.x) / found.certificate.objective[rows]


def main() -> None:
    """Print how many ended early, and what was left there."""
    ratios = []
    for number in range(NETWORKS):
        clf = cr.Classifier(network(number))
        x = torch.randn(INPUTS, FEATURES).double()
        gamma = cr.auto_gamma(clf, x)
        ratios += [further(clf, x, share * gamma) for share in SHARES]
    left = torch.cat(ratios)
    total = NETWORKS * INPUTS * len(SHARES)
    shares = {f"{100 - 100 * r:.0f} %": int((left < r).sum()) for r in (0.99, 0.95)}
    words = ", ".join(f"{count} by more than {by}" for by, count in shares.items())
    print(f"{len(left)} of {total} ended early; of these F falls for {words}")
    print(
        "the largest falls, to a share of:", [f"{r:.2f}" for r in left.sort().values[:5].tolist()]
    )


if __name__ == "__main__":
    main()
