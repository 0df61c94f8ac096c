"""Count the passes of each solver, by wrapping the model.

    python -m benchmarks.solvers                       # the embedded network
    python -m benchmarks.solvers --model resnet18.safetensors --data images.npz

The reference of each image is the smallest F that any run here found, long runs of every solver
included. Numbers are medians over images; "never" means that half of the images did not get there.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import credibly as cr
from benchmarks import models
from benchmarks.meter import Meter
from credibly.model.bind import bind
from credibly.problem.fit_risk import FitRiskProblem
from credibly.solve.base import Solver, Stage, State
from credibly.solve.gradient_descent import annealed
from credibly.solve.loop import solve

GAMMA = 200.0
MEASURED: dict[str, Solver] = {
    "Hybrid (default)": cr.solvers.Hybrid(),
    "LBFGS": cr.solvers.LBFGS(),
    "GaussNewton": cr.solvers.GaussNewton(steps=30),
    "GradientDescent, Adam, cosine 90": cr.solvers.GradientDescent(
        scaling="adam", schedule="cosine", step=0.7, momentum=0.7, forgetting=0.8,
        steps=90, patience=None,
    ),
    "GradientDescent, plain .02": cr.solvers.GradientDescent(step=0.02, steps=300, patience=None),
    "ArrowHurwicz .003": cr.solvers.ArrowHurwicz(primal_step=0.003, steps=1000, patience=None),
    "ArrowHurwicz .01": cr.solvers.ArrowHurwicz(primal_step=0.01, steps=1000, patience=None),
    "ArrowHurwicz .03": cr.solvers.ArrowHurwicz(primal_step=0.03, steps=1000, patience=None),
}  # fmt: skip


class EarlierDefault(Solver):
    """The stages of `Hybrid` before it went on where the model looks smooth."""

    def stages(self) -> tuple[Stage[State], ...]:
        return (
            *cr.solvers.LBFGS(steps=200, memory=5, decrease=0.05, patience=6).stages(),
            *annealed(20, 0.2, momentum=0.5, forgetting=0.6).stages(),
            *annealed(50, 0.45, momentum=0.6, forgetting=0.8).stages(),
            *cr.solvers.LBFGS(steps=100, memory=5, decrease=0.002, patience=4).stages(),
        )


SHORT = ("Hybrid (default)", "LBFGS", "ArrowHurwicz .03")
"""What `--short` measures, with one reference instead of four and the default of before."""

REFERENCES: dict[str, Solver] = {
    "Hybrid, effort 8": cr.solvers.Hybrid(effort=8),
    "LBFGS, 400": cr.solvers.LBFGS(steps=400, patience=None),
    "Adam .9 .999, cosine 600": cr.solvers.GradientDescent(
        scaling="adam", schedule="cosine", step=1.0, momentum=0.9, forgetting=0.999,
        steps=600, patience=None,
    ),
    "Adam .9 .999, cosine 600, double": cr.solvers.GradientDescent(
        scaling="adam", schedule="cosine", step=2.0, momentum=0.9, forgetting=0.999,
        steps=600, patience=None,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One solver on one batch, as measured by the meter."""

    curve: Tensor
    best: Tensor
    best_class: Tensor
    passes: Tensor
    seconds: float


def measure(net: torch.nn.Module, images: Tensor, solver: Solver, chunk: int) -> Run:
    """Solve all images once with a metered model."""
    meter = Meter(net, images, GAMMA, most=4000)
    weights = torch.full((10,), GAMMA, device=images.device)
    problem = FitRiskProblem(bind(cr.Classifier(meter), meter.numbered()), weights)
    start = time.perf_counter()
    solve(problem, solver, chunk_size=chunk)
    seconds = time.perf_counter() - start
    return Run(meter.curve(), meter.best, meter.best_class, meter.spent, seconds)


def first_time(curve: Tensor, goal: Tensor) -> Tensor:
    """Return the passes until each sample's F is at most its goal; infinite if never."""
    there = curve <= goal
    first = there.double().argmax(0).double()
    return torch.where(there.any(0), first, torch.inf)


def row(run: Run, reference: Tensor, predicted: Tensor) -> dict[str, float]:
    """Return the row of one solver."""
    ratio = run.best / reference
    return {
        "passes_to_5_percent": first_time(run.curve, 1.05 * reference).median().item(),
        "passes_to_2_percent": first_time(run.curve, 1.02 * reference).median().item(),
        "ratio_at_40": (run.curve[40] / reference).median().item(),
        "ratio_at_90": (run.curve[90] / reference).median().item(),
        "ratio_at_end": ratio.median().item(),
        "ratio_at_end_90th": ratio.quantile(0.9).item(),
        "passes_in_all": run.passes.median().item(),
        "class_kept": (run.best_class == predicted).double().mean().item(),
        "mean_objective": run.best.mean().item(),
        "seconds": run.seconds,
    }


def compare_with_algorithm_1(default: Run, runs: dict[str, Run]) -> dict[str, float | str]:
    """Divide the passes of the best-tuned Algorithm 1 by the default's, to the same F per image.

    "The same F" is where Algorithm 1 ends, or where the default ends, each within 1 %. If Algorithm
    1 never reaches the latter, its whole run is counted, so that this ratio is a lower bound.
    """
    name = min(runs, key=lambda key: runs[key].best.mean().item())
    best = runs[name]
    to_its_end, to_defaults_end = 1.01 * best.best, 1.01 * default.best
    late = first_time(best.curve, to_defaults_end)
    same = first_time(best.curve, to_its_end) / first_time(default.curve, to_its_end)
    least = torch.minimum(late, best.passes) / first_time(default.curve, to_defaults_end)
    return {
        "solver": name,
        "ratio_to_its_end": same.median().item(),
        "ratio_to_the_defaults_end_at_least": least.median().item(),
        "share_never_there": late.isinf().double().mean().item(),
    }


def study(
    subject: models.Subject, space: str, chunk: int, *, short: bool = False
) -> dict[str, object]:
    """Run all solvers in one space, or some of them."""
    net, images = subject.in_space(space)
    measured, references = MEASURED, list(REFERENCES.values())
    if short:
        measured = {name: MEASURED[name] for name in SHORT} | {"Hybrid before": EarlierDefault()}
        references = references[:1]
    runs = {name: measure(net, images, solver, chunk) for name, solver in measured.items()}
    extra = [measure(net, images, solver, chunk).best for solver in references]
    reference = torch.stack([*(run.best for run in runs.values()), *extra]).amin(0)
    with torch.no_grad():
        predicted = net(images).argmax(1)
    table = {name: row(run, reference, predicted) for name, run in runs.items()}
    algorithm_1 = {name: run for name, run in runs.items() if name.startswith("Arrow")}
    return {
        "model": subject.name,
        "space": space,
        "gamma": GAMMA,
        "images": len(images),
        "reference_mean_objective": reference.mean().item(),
        "solvers": table,
        "algorithm_1": compare_with_algorithm_1(runs["Hybrid (default)"], algorithm_1),
    }


def show(result: dict[str, object]) -> None:
    """Print one study as a Markdown table."""
    found: dict[str, float | str] = result["algorithm_1"]  # type: ignore[assignment]
    print(
        f"\n### {result['model']}, {result['space']} space, gamma = {GAMMA:g}, "
        f"{result['images']} images\n"
    )
    print("| solver | to 5 % | to 2 % | F/ref at 40 | at 90 | at end (90th pct) | passes | kept |")
    print("|---|---|---|---|---|---|---|---|")
    for name, r in result["solvers"].items():  # type: ignore[attr-defined]
        print(
            f"| {name} | {_count(r['passes_to_5_percent'])} | {_count(r['passes_to_2_percent'])} "
            f"| {r['ratio_at_40']:.3f} | {r['ratio_at_90']:.3f} "
            f"| {r['ratio_at_end']:.3f} ({r['ratio_at_end_90th']:.3f}) "
            f"| {r['passes_in_all']:.0f} | {r['class_kept']:.2f} |"
        )
    print(
        f"\nThe best Algorithm 1 ({found['solver']}) needs {found['ratio_to_its_end']:.1f} times "
        f"the default's passes to reach its own final F, and at least "
        f"{found['ratio_to_the_defaults_end_at_least']:.1f} times to reach the default's; "
        f"{found['share_never_there']:.0%} of the images never reach that."
    )


def _count(passes: float) -> str:
    return "never" if passes == float("inf") else f"{passes:.0f}"


def main() -> None:
    """Run, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="ResNet-18 safetensors; embedded if left out")
    parser.add_argument("--data", type=Path, help=".npz with uint8 `images`, or an IDX file")
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--spaces", nargs="+", default=["pixel", "normalised"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--chunk", type=int, default=128)
    parser.add_argument("--out", type=Path, help="folder for a JSON file")
    parser.add_argument("--short", action="store_true", help="the default, now and before")
    given = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    subject = models.load(given.model, given.data, given.images, given.device)
    results = []
    for space in given.spaces:
        results.append(study(subject, space, given.chunk, short=given.short))
        show(results[-1])
        if given.out:
            write(given.out, subject.name, given.device, results)


def write(folder: Path, name: str, device: str, results: list[dict[str, object]]) -> None:
    """Write one JSON file per model, with what is needed to repeat it; null means never."""
    folder.mkdir(parents=True, exist_ok=True)
    files = "" if name == "embedded" else f" --model {name}.safetensors --data IMAGES"
    where = {
        "command": f"python -m benchmarks.solvers{files}",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "precision": "float32, no TF32",
        "version": cr.__version__,
    }
    content = json.dumps(_never_as_null({"made_with": where, "studies": results}), indent=1)
    (folder / f"solvers-{name}.json").write_text(content + "\n")


def _never_as_null(value: object) -> object:
    if isinstance(value, dict):
        return {key: _never_as_null(inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [_never_as_null(inside) for inside in value]
    return None if value == float("inf") else value


if __name__ == "__main__":
    main()
