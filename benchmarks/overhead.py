"""Time and memory of a solve, compared with the same forward and backward passes alone.

    python -m benchmarks.overhead

Memory is measured in separate processes, so that the two do not affect each other. On a noisy
machine only ratios within one run count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

import credibly as cr
from credibly.data.sample import load_sample
from credibly.model.bind import bind
from credibly.problem.fit_risk import FitRiskProblem
from credibly.solve.loop import solve

BATCH = 100


def _recorded() -> tuple[list[int], FitRiskProblem]:
    """Return the batch sizes of all passes of one default solve, and the problem."""
    sample, sizes = load_sample(), []

    def net(x: torch.Tensor) -> torch.Tensor:
        sizes.append(len(x))
        return sample.net(x)

    weights = torch.full((10,), 200.0)
    problem = FitRiskProblem(bind(cr.Classifier(net), sample.images[:BATCH]), weights)
    solve(problem, cr.solvers.Hybrid(), chunk_size=BATCH)
    return list(sizes), problem


def _bare_pass(net: torch.nn.Module, x: torch.Tensor) -> None:
    x = x.detach().requires_grad_(True)
    torch.autograd.grad(torch.logsumexp(net(x), 1).sum(), x)


def time_ratio(rounds: int) -> dict[str, float]:
    """Return seconds of a solve, and of forward and backward alone at the same batch sizes."""
    sizes, problem = _recorded()
    net, x = load_sample().net, problem.x0
    ratios, solved, bare = [], [], []
    for _ in range(rounds):
        start = time.perf_counter()
        solve(problem, cr.solvers.Hybrid(), chunk_size=BATCH)
        middle = time.perf_counter()
        for size in sizes:
            _bare_pass(net, x[:size])
        end = time.perf_counter()
        solved.append(middle - start)
        bare.append(end - middle)
        ratios.append((middle - start) / (end - middle))
    return {
        "passes": len(sizes),
        "solve_seconds": sorted(solved)[rounds // 2],
        "bare_seconds": sorted(bare)[rounds // 2],
        "ratio": sorted(ratios)[rounds // 2],
    }


def _peak(what: str) -> float:
    """Return the growth of peak memory in MiB: of a solve, or of the same passes alone."""
    sample = load_sample()
    x, weights = sample.images[:BATCH], torch.full((10,), 200.0)
    problem = FitRiskProblem(bind(cr.Classifier(sample.net), x), weights)
    sizes = json.loads(os.environ["CREDIBLY_BATCH_SIZES"])
    solve(problem.select(slice(0, 2)), cr.solvers.Hybrid(), chunk_size=2)  # libraries and threads
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of loading them
    before = _high_water()
    if what == "bare":
        for size in sizes:
            _bare_pass(sample.net, x[:size])
    else:
        solve(problem, cr.solvers.Hybrid(), chunk_size=BATCH)
    return (_high_water() - before) / 1024


def _high_water() -> int:
    """Return the largest resident size since the last reset, in KiB (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def memory_ratio() -> dict[str, float]:
    """Return peak memory of a solve and of bare passes, each in a fresh process."""
    found, (sizes, _) = {}, _recorded()
    for what in ("bare", "solve"):
        command = [sys.executable, "-m", "benchmarks.overhead", "--peak", what]
        # large blocks are returned to the system at once, so that the peak is that of live tensors
        settings = {
            **os.environ,
            "MALLOC_MMAP_THRESHOLD_": "65536",
            "CREDIBLY_BATCH_SIZES": json.dumps(sizes),
        }
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=True, env=settings
        )
        found[what] = float(done.stdout)
    return {"bare_mib": found["bare"], "solve_mib": found["solve"],
            "ratio": found["solve"] / found["bare"]}  # fmt: skip


def main() -> None:
    """Print both ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peak", choices=["bare", "solve"], help="used by this script itself")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    if given.peak:
        print(_peak(given.peak))
        return
    print(json.dumps({"time": time_ratio(given.rounds), "memory": memory_ratio()}, indent=1))


if __name__ == "__main__":
    main()
