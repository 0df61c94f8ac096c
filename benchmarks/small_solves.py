"""Passes of full solves on small convolutional networks: smooth (GELU) and with kinks (ReLU).

    python -m benchmarks.small_solves [--images 50] [--out results/small-solves.json]

Trains both on the digits of scikit-learn (8 x 8 pixels), solves at gamma = 20, and counts passes by
wrapping the model: until F is within 5 % and .1 % of the best that any run found (median over the
images), and in all. Algorithm 1 of the paper gets the best of four step sizes, told afterwards.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import credibly as cr
from benchmarks.meter import Meter
from benchmarks.small_networks import TRAINED, trained
from benchmarks.solvers import EarlierDefault, first_time
from credibly.model.bind import bind
from credibly.problem.fit_risk import FitRiskProblem
from credibly.solve.base import Solver
from credibly.solve.loop import solve

GAMMA, EPOCHS, CLASSES = 20.0, 20, 10
GOALS = {"5 %": 1.05, ".1 %": 1.001}
REFERENCE = cr.solvers.Hybrid(effort=8, tolerance=1e-7)
SOLVERS: dict[str, Solver] = {
    "Hybrid (default)": cr.solvers.Hybrid(),
    "Hybrid before": EarlierDefault(),
    "LBFGS": cr.solvers.LBFGS(),
    **{
        f"ArrowHurwicz {step:g}": cr.solvers.ArrowHurwicz(
            primal_step=step, steps=1500, patience=None
        )
        for step in (0.003, 0.01, 0.03, 0.1)
    },
}


@dataclass(frozen=True)
class Run:
    """What one solver did: the best F of each image after each pass, at the end, and passes."""

    curve: Tensor
    best: Tensor
    spent: Tensor


def convolutions(kind: type[nn.Module]) -> nn.Module:
    """Two convolutions, a hidden layer and ten logits, with one kind of activation."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), kind(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2), kind(), nn.Flatten(),
        nn.Linear(512, 64), kind(), nn.Linear(64, CLASSES),
    )  # fmt: skip


def run(net: nn.Module, x: Tensor, solver: Solver) -> Run:
    """Solve all images with a metered network."""
    meter = Meter(net, x, GAMMA, most=3000)
    weights = torch.full((CLASSES,), GAMMA)
    problem = FitRiskProblem(bind(cr.Classifier(meter), meter.numbered()), weights)
    solve(problem, solver, chunk_size=len(x))
    return Run(meter.curve(), meter.best, meter.spent)


def row(found: Run, best: Tensor) -> dict[str, float]:
    """The numbers of one solver."""
    ratio = found.best / best
    return {
        **{f"to {n}": float(first_time(found.curve, g * best).median()) for n, g in GOALS.items()},
        "passes": float(found.spent.mean()),
        "F / best, median": float(ratio.median()),
        "F / best, largest": float(ratio.max()),
    }


def study(kind: type[nn.Module], images: int) -> dict[str, Any]:
    """Train a network, solve with all solvers, and print a table."""
    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(pixels / 16).float()[order], torch.tensor(labels)[order]
    torch.manual_seed(0)
    net = trained(lambda: convolutions(kind), x[:TRAINED], y[:TRAINED], EPOCHS)
    net.requires_grad_(False)
    new, classes = x[TRAINED:], y[TRAINED:]
    right = float((net(new).argmax(1) == classes).double().mean())
    runs = {name: run(net, new[:images], solver) for name, solver in SOLVERS.items()}
    reference = run(net, new[:images], REFERENCE)
    best = torch.stack([*(one.best for one in runs.values()), reference.best]).amin(0)
    rows = {name: row(one, best) for name, one in runs.items()}
    print(
        f"\n### digits, {kind.__name__}, right on {right:.1%}, gamma {GAMMA:g}, {images} images\n"
    )
    print("| solver | " + " | ".join(next(iter(rows.values()))) + " |")
    print("|---" * 6 + "|")
    for name, numbers in rows.items():
        cells = [f"{v:.0f}" if n in COUNTS else f"{v:.4f}" for n, v in numbers.items()]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    return {"network": kind.__name__, "right": right, "images": images, "rows": rows}


COUNTS = (*(f"to {name}" for name in GOALS), "passes")


def main() -> None:
    """Both networks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = [study(kind, given.images) for kind in (nn.GELU, nn.ReLU)]
    if given.out is not None:
        content = {"command": "python -m benchmarks.small_solves", "gamma": GAMMA, "found": found}
        given.out.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
