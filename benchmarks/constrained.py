"""Passes of the constrained problem on the embedded network.

python -m benchmarks.constrained
"""

from __future__ import annotations

import credibly as cr
from credibly.data.sample import load_sample

SETTINGS: dict[str, dict[str, float]] = {
    "default": {},
    "quick": {"tolerance": 1e-2, "inner_steps": 15},
    "reference": {"tolerance": 1e-3, "inner_steps": 60, "rounds": 200},
}


def main() -> None:
    """Print risk, violation and passes of three settings."""
    sample = load_sample()
    clf, x = cr.Classifier(sample.net), sample.images[:60]
    credences = cr.credibility(clf, x, gamma=200.0).credibility - 0.2
    for name, settings in SETTINGS.items():
        found = cr.solve_constrained(clf, x, credences, **settings)  # type: ignore[arg-type]
        solved = sum(status is cr.Feasibility.SOLVED for status in found.status)
        print(
            f"{name}: {solved} of {len(x)} solved, median risk {float(found.risk.median()):.4f}, "
            f"largest violation {float(found.violation.max()):.1e}, "
            f"median passes {float(found.passes.median()):.0f}"
        )


if __name__ == "__main__":
    main()
