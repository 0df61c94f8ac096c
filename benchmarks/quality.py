"""Quality of decisions against passes: how little of a solve is enough.

    python -m benchmarks.quality [--network FILE --images FILE.npz] [--device cuda] [--count 300]
        [--short] [--out results/quality.json]
    python -m benchmarks.quality --draw results/quality.json docs/images/quality.png

Without a network, the embedded one. For each solver: passes, F over that of a full solve (median),
AUROC of outliers (mean and worst over five sets; the score is the smaller of the conformal ranks of
`shift` and `gain`), and AURC of `predicted_ratio` over that of max softmax. Runs are appended.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import credibly as cr
from credibly.data.sample import load_sample
from credibly.metrics import aurc, auroc
from credibly.problem.fit_risk import FitRiskProblem
from credibly.solve.base import likely_distance

SHORT = ("descent, 5 steps", "descent, 8 steps", "one radius for all, 5 steps",
         "one radius for all, 8 steps")  # fmt: skip
"""What `--short` compares; F is then over that of L-BFGS with 32 steps."""

ORDINARY = 300
"""Images that ranks are counted among, and that set gamma and the radius."""


def solvers(radius: float) -> dict[str, cr.solvers.Solver | cr.solvers.FixedDescent]:
    """What is compared, by name; descents of other lengths differ in nothing else."""
    fixed: dict[str, dict[str, Any]] = {
        f"descent, {t} steps": {"steps": t} for t in (1, 2, 3, 4, 5, 6, 8, 12, 16)
    }
    fixed |= {f"one radius for all, {t} steps": {"radius": radius, "steps": t} for t in (5, 8)}
    fixed |= {
        f"descent, 5 steps, length {a}, momentum {m}": {"steps": 5, "length": a, "momentum": m}
        for a in (0.5, 0.9) for m in (0.0, 0.2, 0.4)
    }  # fmt: skip
    made = {n: cr.solvers.FixedDescent(**given) for n, given in fixed.items()}
    newton = {f"L-BFGS, {t} steps": cr.solvers.LBFGS(steps=t) for t in (2, 4, 8, 16, 32)}
    return {**made, **newton, "full solve": cr.solvers.Hybrid()}


def foreign(x: Tensor) -> dict[str, Tensor]:
    """Images that do not belong: noise of two kinds, inverted, shuffled pixels and patches."""
    g = torch.Generator().manual_seed(0)
    flat = x.flatten(2).cpu()
    mixed = torch.randperm(flat.shape[2], generator=g)
    n, channels, height, width = x.shape
    tall, wide = height // 4, width // 4
    parts = x.cpu().reshape(n, channels, 4, tall, 4, wide).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    order = torch.stack([torch.randperm(16, generator=g) for _ in range(n)])
    moved = parts[torch.arange(n)[:, None], order].reshape(n, 4, 4, channels, tall, wide)
    made = {
        "uniform noise": torch.rand(x.shape, generator=g),
        "Gaussian noise": (x.cpu() + 0.2 * torch.randn(x.shape, generator=g)).clamp(0, 1),
        "inverted": 1 - x.cpu(),
        "shuffled pixels": flat[:, :, mixed].reshape(x.shape),
        "shuffled patches": moved.permute(0, 3, 1, 4, 2, 5).reshape(x.shape),
    }
    return {name: part.to(x) for name, part in made.items()}


def ranks(known: Tensor, values: Tensor) -> Tensor:
    """Conformal p-values (n,) of scores whose small values are strange."""
    below = torch.searchsorted(known.sort().values, values.contiguous(), right=True)
    return (1 + below) / (len(known) + 1)


class Question:
    """A network, its ordinary and new images, and what is asked of every solver."""

    def __init__(self, net: Any, x: Tensor, labels: Tensor, chunk: int) -> None:
        self.clf, self.chunk = cr.Classifier(net), chunk
        self.known, self.new, self.labels = x[:ORDINARY], x[ORDINARY:], labels[ORDINARY:]
        self.gamma = cr.auto_gamma(self.clf, self.known)
        self.sets = foreign(self.new)
        logits = torch.cat([net(part) for part in self.new.split(chunk)]).detach()
        self.right = (logits.argmax(1) == self.labels).cpu()
        top = logits.double().log_softmax(1).sort(1, descending=True).values
        self.softmax = aurc((top[:, 0] - top[:, 1:].logsumexp(1)).cpu(), self.right)

    def solve(self, x: Tensor, solver: Any) -> cr.Profile:
        """Profiles with Judge's gamma."""
        return cr.credibility(self.clf, x, gamma=self.gamma, solver=solver, chunk_size=self.chunk)

    def row(self, solver: Any, objective: Tensor) -> dict[str, float]:
        """What a solver is worth."""
        known, clean = self.solve(self.known, solver), self.solve(self.new, solver)
        own = belongs(known, known)
        here = ranks(own, belongs(known, clean))
        found = {
            name: auroc(-ranks(own, belongs(known, self.solve(x, solver))), -here)
            for name, x in self.sets.items()
        }
        score = cr.scores.predicted_ratio(clean)
        return {
            "passes": float(clean.passes.mean()),
            "objective": float((clean.certificate.objective / objective).median()),
            "AUROC": sum(found.values()) / len(found),
            "worst": min(found.values()),
            "AURC": aurc(score.cpu(), self.right) / self.softmax,
        }


def belongs(known: cr.Profile, new: cr.Profile) -> Tensor:
    """The smaller of the ranks of shift and gain among the ordinary ones."""
    names = ("shift", "gain")
    pairs = [(cr.scores.SCORES[n](known).cpu(), cr.scores.SCORES[n](new).cpu()) for n in names]
    return torch.stack([ranks(own, values) for own, values in pairs]).amin(0)


def subject(given: argparse.Namespace) -> tuple[str, Question]:
    """The embedded network, or the one that was named."""
    last = ORDINARY + given.count
    if given.network is None:
        sample = load_sample()
        order = torch.randperm(len(sample.images), generator=torch.Generator().manual_seed(0))
        rows = order[:last]
        net, x, labels, name = sample.net, sample.images[rows], sample.labels[rows], "embedded"
    else:
        from experiments import networks
        from experiments.images import read_npz

        some = read_npz(given.images)[:last]
        net, x, labels = networks.load(given.network).net, some.pixels, some.labels
        name = given.network.stem
    device = given.device
    return name, Question(net.to(device).eval(), x.to(device), labels.to(device), given.chunk)


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """One row per solver, printed."""
    name, question = subject(given)
    near = cr.solvers.LBFGS(steps=32) if given.short else cr.solvers.Hybrid()
    full = question.solve(question.new, near)
    radius = float(f"{float(full.risk.sqrt().median()):.3g}")
    print(f"{name}: gamma {question.gamma:.4g}, radius {radius}, {len(question.new)} images")
    met = distance_met(question, full)
    print(f"likely distance: the true one is 2/3 to 3/2 of it for {met:.1%} of the images")
    print(f"{'solver':<44} passes  F/full   AUROC   worst  AURC/softmax")
    rows = {}
    asked = {k: s for k, s in solvers(radius).items() if not given.short or k in SHORT}
    for kind, solver in asked.items():
        row = rows[kind] = question.row(solver, full.certificate.objective)
        numbers = f"{row['objective']:7.3f} {row['AUROC']:7.3f} {row['worst']:7.3f} "
        print(f"{kind:<44} {row['passes']:6.1f} {numbers} {row['AURC']:8.3f}", flush=True)
    return {
        "command": "python -m benchmarks.quality", "network": name, "images": len(question.new),
        "device": given.device, "gamma": question.gamma, "radius": radius,
        "likely distance met": met, "rows": rows,
    }  # fmt: skip


def distance_met(question: Question, full: cr.Profile) -> float:
    """The share of images whose x+ is about as far from x0 as the pass at x0 tells."""
    clf, weights = question.clf, full.x0.new_full(full.credence.shape[1:], question.gamma)
    problem = FitRiskProblem(cr.bind(clf, question.new), weights)
    ratio = full.risk.sqrt() / likely_distance(problem, problem.evaluate(problem.x0))
    return float(((ratio > 2 / 3) & (ratio < 3 / 2)).double().mean())


def draw(found: Path, picture: Path) -> None:
    """AUROC against passes, one line per network and kind of solver."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.subplots()
    for number, run in enumerate(json.loads(found.read_text("utf-8"))):
        if "full solve" not in run["rows"]:  # a short run
            continue
        for kind, style in (("descent", "o-"), ("L-BFGS", "s--")):
            rows = [r for n, r in run["rows"].items() if n.startswith(kind) and "length" not in n]
            label = f"{run['network']}, {kind}"
            places, values = [r["passes"] for r in rows], [r["AUROC"] for r in rows]
            axes.plot(places, values, style, color=f"C{number}", label=label, markersize=4)
        axes.axhline(run["rows"]["full solve"]["AUROC"], color=f"C{number}", lw=0.8, ls=":")
    axes.set(xscale="log", xlabel="passes per input", ylabel="AUROC of outliers, mean of five sets")
    axes.set_xticks([2, 3, 4, 6, 9, 17, 35], labels=["2", "3", "4", "6", "9", "17", "35"])
    axes.set_title("Dotted: a full solve", fontsize=9)
    axes.minorticks_off()
    axes.legend(fontsize=7, frameon=False)
    figure.savefig(picture, dpi=150)


def main() -> None:
    """Measure, or draw what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--network", type=Path)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--chunk", type=int, default=256)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--draw", type=Path, nargs=2, metavar=("RESULTS", "PICTURE"))
    given = parser.parse_args()
    if given.draw is not None:
        draw(*given.draw)
        return
    warnings.simplefilter("ignore", cr.errors.CrediblyWarning)
    found = measure(given)
    if given.out is not None:
        runs = json.loads(given.out.read_text("utf-8")) if given.out.exists() else []
        given.out.write_text(json.dumps([*runs, found], indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
