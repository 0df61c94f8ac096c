"""What the attacks do to the embedded network, in pixels: the bare model and three systems.

    python -m benchmarks.attacks                      # a few images, a few steps: minutes
    python -m benchmarks.attacks --images 500 --steps 100 --device cuda

Bare: the model's class. B: the most credible class. A: the model's class, answered at 90 % coverage
of clean images that are not attacked here. T: the model's class, unless it is flagged as tampered,
at 95 % coverage. Each number is the share of the attacked images on which the attack succeeds:
wrong, and for A and T wrong and answered. The last row of each block is the worst case, image by
image. Small counts say little: the standard error is printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import credibly as cr
from credibly.data.sample import load_sample
from experiments import cifar10, networks

RADII = (0.01, 0.02, 0.03)
LARGE = 0.3
Makers = dict[str, Callable[[float], cr.Attack | cr.RejectionAware]]


def main() -> None:
    """Print one table a system, and what the sanity list says."""
    given = _arguments()
    clf, images, labels = _subject(given)
    count = given.images
    x, y = images[:count], labels[:count]
    held = images[-given.held_out :]
    gamma = cr.auto_gamma(clf, held) if given.gamma is None else given.gamma
    solver = cr.Hybrid(effort=given.effort)
    ordinary = cr.credibility(clf, held, gamma=gamma, solver=solver)
    ranked = cr.System.ranked(score=cr.failure_score(ordinary), gamma=gamma, solver=solver)
    guarded = cr.System.ranked(score=cr.tamper_score(ordinary), gamma=gamma, solver=solver)
    systems = {
        "bare model": cr.System.bare(),
        "B: most credible class": cr.System.most_credible(gamma=gamma, solver=solver),
        "A: answered at 90 %, and wrong": ranked.calibrated(clf, held, coverage=0.9),
        "T: not flagged as tampered at 95 %, and wrong": guarded.calibrated(
            clf, held, coverage=0.95
        ),
    }
    name = "embedded network" if given.model is None else given.model.stem
    print(f"{name}, {count} images, pixels, linf, gamma {gamma:g}, {solver}, "
          f"{given.steps} steps, {given.restarts} restarts, seed {given.seed}, "
          f"{torch.get_default_dtype()}, {given.device}")  # fmt: skip
    chosen = {t: system for t, system in systems.items() if t[0] in given.systems}
    for title, system in chosen.items():
        start = time.perf_counter()
        makers = _attacks(system, given)
        table = cr.try_attacks(clf, x, y, attacks=makers, radii=given.radii, system=system)
        clean = float(table.success["clean", 0.0].double().mean())
        worst = table.worst(given.radii[0])
        error = (worst * (1 - worst) / count) ** 0.5
        print(f"\n{title}: clean {clean:.3f}; standard error at eps {given.radii[0]}: {error:.3f}")
        print(table)
        if given.sanity:
            for finding in _sanity(clf, x, y, table=table, makers=makers, system=system):
                print(f"  {finding}")
        print(f"  {time.perf_counter() - start:.0f} s")


def _subject(given: argparse.Namespace) -> tuple[cr.Classifier, torch.Tensor, torch.Tensor]:
    """The embedded network and images, or a ResNet-18 with CIFAR-10."""
    if given.model is None:
        sample = load_sample()
        net, images, labels = sample.net, sample.images, sample.labels
    else:
        split = cifar10.load(given.data, "test")
        net, images, labels = networks.load(given.model).net, split.images, split.labels
    net = net.to(given.device).eval().requires_grad_(False)
    return cr.Classifier(net), images.to(given.device), labels.to(given.device)


def _attacks(system: cr.System, given: argparse.Namespace) -> Makers:
    common: dict[str, Any] = {
        "bounds": (0.0, 1.0), "system": system, "seed": given.seed, "restarts": given.restarts,
    }  # fmt: skip
    more = {**common, "steps": given.steps}
    makers: Makers = {
        "pgd (A0)": lambda eps: cr.PGD(
            eps=eps, **{**common, "steps": 100, "step_size": 0.005 if eps <= 0.01 else 0.01}
        ),
        "apgd (A1)": lambda eps: cr.TransferAPGD(eps=eps, **{**more, "restarts": 1}),
        "square (A7)": lambda eps: cr.Square(
            eps=eps, **{**common, "restarts": 1, "steps": given.queries}
        ),
    }
    if find_spec("pyautoattack") is None:
        print("pyautoattack is not installed: A1 is left out")
        makers.pop("apgd (A1)")
    if not system.solves:
        return makers
    knowing: Makers = {
        "bpda (A2)": lambda eps: cr.BPDA(eps=eps, **more),
        "implicit, full (A3)": lambda eps: cr.ImplicitGradient(eps=eps, **more),
        "implicit, outputs (A3)": lambda eps: cr.ImplicitGradient(
            eps=eps, curvature="outputs", **more
        ),
        "unrolled 20 (A4)": lambda eps: cr.Unrolled(eps=eps, length=20, rate=0.02, **more),
        "unrolled 5 (A4)": lambda eps: cr.Unrolled(eps=eps, length=5, rate=0.05, **more),
        "gauss-newton (A5)": lambda eps: cr.Surrogate(eps=eps, **more),
        "inverse map (A6)": lambda eps: cr.InverseMap(eps=eps, **more),
    }
    return makers | knowing if system.score is None else makers | _aware(makers | knowing, system)


def _aware(makers: Makers, system: cr.System) -> Makers:
    """The same against a threshold; unaware of it, A2 to A5 would see the bare model only."""

    def made(eps: float, name: str) -> cr.RejectionAware:
        inner = makers[name](eps)
        assert isinstance(inner, cr.Attack)
        assert system.threshold is not None
        assert system.score is not None
        return cr.RejectionAware(inner, system.threshold, system.score)

    left_out = ("apgd (A1)", "implicit, full (A3)", "unrolled 5 (A4)", "gauss-newton (A5)")
    chosen = [name for name in makers if name not in left_out]
    return {f"aware {name[:-1]}, A8)": partial(made, name=name) for name in chosen}


def _sanity(
    clf: cr.Classifier,
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    table: cr.AttackTable,
    makers: Makers,
    system: cr.System,
) -> list[cr.Finding]:
    """What must hold if the attacks work: the radius of the last item is large on purpose."""
    black = [name for name in table.attacks if "square" in name]
    white = [name for name in table.attacks if name not in black]
    strong = max(white, key=lambda name: table.rate(name, RADII[-1]))
    large = cr.try_attacks(
        clf, x, y, attacks={strong: makers[strong]}, radii=(LARGE,), system=system
    )
    findings = [
        cr.accuracy_falls_with_eps(table),
        cr.white_box_beats_black_box(table, white=white, black=black),
        cr.large_eps_breaks_everything(large),
    ]
    attack = makers[strong](RADII[0])
    if isinstance(attack, cr.Attack):
        longer = replace(attack, steps=4 * attack.steps)(clf, x, y)
        more = system.judge(clf, longer, y).success
        findings.append(cr.more_steps_do_not_help(table.success[strong, RADII[0]], more))
    return findings


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a ResNet-18 file; with --data, CIFAR-10")
    parser.add_argument("--data", type=Path, help="folder of CIFAR-10")
    parser.add_argument("--systems", default="bBAT", help="some of b (bare), B, A and T")
    parser.add_argument("--radii", type=float, nargs="+", default=RADII)
    parser.add_argument("--sanity", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--images", type=int, default=6)
    parser.add_argument("--held-out", type=int, default=50, help="clean images that set A's level")
    parser.add_argument("--steps", type=int, default=8, help="of the attacks other than PGD")
    parser.add_argument("--queries", type=int, default=10, help="of the gradient-free attack")
    parser.add_argument("--restarts", type=int, default=1)
    parser.add_argument("--gamma", type=float, help="by default that of auto_gamma")
    parser.add_argument("--effort", type=float, default=0.5, help="of the deployed Hybrid solver")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


if __name__ == "__main__":
    main()
