"""Images and passes per second, against the bare network, and against what a user would do instead.

    python -m benchmarks.speed [--device cuda] [--network FILE --images FILE.npz] [--large]
        [--limit 220] [--out results/speed-NAME.json]

Without a network, the embedded one. Everything is measured in one run: "bare" is forward and
backward by the input of the same network, without this package. Ratios within a run tell more than
times. `--large` adds networks of 1000 classes for 224 x 224 pixels (torchvision, random weights).
What does not fit into `--limit` seconds is left out, and said to be. Each run is appended to the
file, and what takes a quarter more bare passes than in the last run of that network and device is
named.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import credibly as cr
from benchmarks.speed_growth import checks, growth, large, shapes
from benchmarks.speed_instead import instead
from benchmarks.speed_meter import Bench, one_forward, one_pass, waits_of
from credibly.data.sample import load_sample
from credibly.metrics import auroc
from credibly.model.fast import HalfPrecision
from credibly.model.folding import folded

ORDINARY, SOLVED, SMALL = 300, 2048, 256
Data = tuple[nn.Module, Tensor, Tensor]
"""The network, ordinary images, and images to judge."""

SLOWER = 1.25
"""Times as many bare passes as before that are named; a busy machine changes them less."""

Passes = dict[tuple[str, int], float]
"""Seconds of a bare pass, by the form of the network and the size of the batch."""


def bare_passes(bench: Bench, net: nn.Module, x: Tensor) -> Passes:
    """Seconds of a bare pass: as the user has it, folded, and folded in bfloat16."""
    fast = folded(net)[0]
    if bench.cuda:
        fast = fast.to(memory_format=torch.channels_last)
    nets = {"plain": net, "folded": fast, "bfloat16": HalfPrecision(fast, x.device.type)}
    found: Passes = {}
    for size in sorted({len(x), min(SMALL, len(x))}, reverse=True):
        for kind, one in nets.items():
            seconds = bench.seconds(lambda one=one, size=size: one_pass(one, x[:size]))
            found[kind, size] = bench.note(f"bare pass, {kind}, batch {size}", seconds, size)
        seconds = bench.seconds(lambda size=size: one_forward(net, x[:size]))
        bench.note(f"bare forward, plain, batch {size}", seconds, size)
    return found


def judges(
    bench: Bench, net: Any, known: Tensor, x: Tensor, passes: Passes, *, words: str = ""
) -> dict[str, cr.Judge]:
    """Judges that solve no profiles, those of doubtful inputs, and all."""
    found = {}
    for use in ("never", "doubtful", "always"):
        judge = found[use] = cr.Judge.fit(net, known, profile=use)  # type: ignore[arg-type]
        for size in sorted({len(x), min(SMALL, len(x))}, reverse=True):
            work = lambda judge=judge, size=size: judge(x[:size], keep=False)  # noqa: E731
            work()  # a recorder sees the sizes of the pieces
            name = f"Judge{words}, profile={use!r}, batch {size}"
            bench.note(name, bench.seconds(work), size, passes["plain", size])
    return found


def decisions(
    bench: Bench, forms: dict[str, tuple[cr.Classifier, str]], x: Tensor, passes: Passes,
    question: dict[str, Any],
) -> None:  # fmt: skip
    """Decision-grade profiles, and bare passes of the same precision."""
    for name, (clf, kind) in forms.items():
        for size in sorted({len(x), min(SMALL, len(x))}, reverse=True):
            work = lambda clf=clf, size=size: cr.credibility(clf, x[:size], **question)  # noqa: E731
            spent = float(work().passes.mean())
            seconds, bare = bench.seconds(work), passes[kind, size]
            bench.note(f"decision, {name}, batch {size}", seconds, size, bare)
            share = seconds / (spent * bare)
            words = f"{share:.2f} of {spent:.2f} bare passes in {kind}"
            bench.say(f"overhead of a decision, {name}, batch {size}", share, words)


def solves(
    bench: Bench, forms: dict[str, cr.Classifier], x: Tensor, gamma: float, sizes: tuple[int, ...]
) -> None:
    """Full solves: the first one, which prepares what the others use, and a second one."""
    for size in sizes:
        for name, clf in forms.items():
            found: list[cr.Profile] = []

            def work(clf: cr.Classifier = clf, size: int = size, found: Any = found) -> None:
                found.append(cr.credibility(clf, x[:size], gamma=gamma))

            first, seconds = bench.once(work), bench.once(work)
            spent = float(found[-1].passes.mean())
            objective = float(found[-1].certificate.objective.mean())
            words = f"full solve, {name}, batch {size}"
            bench.note(words, seconds, size)
            told = {"passes": spent, "objective": objective, "first call": first}
            said = (
                f"{spent:.0f} passes, mean F {objective:.5f}, first call {first:.1f} s, "
                f"{size * spent / seconds:,.0f} passes/s"
            )
            bench.say(f"{words}, more", told, said)


def agreement(bench: Bench, net: nn.Module, known: Tensor, x: Tensor) -> None:
    """How much a faster network changes: verdicts, and the AUROC of `gain` on foreign images."""
    g = torch.Generator().manual_seed(0)
    mixed = torch.randperm(x[0].numel(), generator=g).to(x.device)
    sets = {
        "clean": x,
        "uniform noise": torch.rand(x.shape, generator=g).to(x),
        "Gaussian noise": (x + 0.2 * torch.randn(x.shape, generator=g).to(x)).clamp(0, 1),
        "inverted": 1 - x,
        "shuffled pixels": x.flatten(1)[:, mixed].reshape(x.shape),
    }
    pair = [cr.Judge.fit(net, known, profile="always", fast=fast) for fast in (False, True)]
    found = [{name: judge(part, keep=False) for name, part in sets.items()} for judge in pair]
    for name in sets:
        same = float((found[0][name].codes == found[1][name].codes).double().mean())
        bench.say(f"same verdict with the faster network, {name}", same, f"{same:.2%}")
    for score in ("gain", "shift"):
        values = [{n: one[n].signals[score] for n in sets} for one in found]
        gaps = {
            n: auroc(-values[1][n], -values[1]["clean"]) - auroc(-values[0][n], -values[0]["clean"])
            for n in sets if n != "clean"
        }  # fmt: skip
        words = ", ".join(f"{n} {gap:+.4f}" for n, gap in gaps.items())
        bench.say(f"AUROC of {score}, change with the faster network", gaps, words)


def memory(
    bench: Bench, forms: dict[str, cr.Classifier], x: Tensor, question: dict[str, Any]
) -> None:
    """Peak memory of a decision over that of a bare pass of the same network."""
    for name, clf in forms.items():
        assert isinstance(clf.net, nn.Module)
        own = clf.with_net(clf.net)  # without a recorder, whose memory stays
        own.draft = clf.draft
        net = clf.net if clf.draft is None else clf.draft
        least = bench.peak(lambda net=net: one_pass(net, x))  # type: ignore[arg-type]
        most = bench.peak(lambda own=own: cr.credibility(own, x, chunk_size=len(x), **question))
        words = f"{most / max(least, 1):.2f} of a bare pass ({most / 1e6:,.0f} MB)"
        told = {"bytes": most, "over bare": most / max(least, 1)}
        bench.say(f"peak memory of a decision, {name}", told, words)


def waits(bench: Bench, clf: cr.Classifier, judge: cr.Judge, x: Tensor, question: Any) -> None:
    """How often the CPU waits for the GPU in one call."""
    plain = {**question, "solver": cr.solvers.Hybrid()}
    steps: list[int] = []
    for name, work in (
        ("a decision", lambda: cr.credibility(clf, x, **question)),
        ("a Judge without profiles", lambda: judge(x, keep=False)),
        ("a full solve", lambda: steps.append(int(cr.credibility(clf, x, **plain).steps.max()))),
    ):
        work()
        count = waits_of(work)
        more = f" in {steps[-1]} steps" if steps else ""
        bench.say(f"waits of {name}", count, f"the CPU waits {count} times{more}")


def compiled(bench: Bench, data: Data, passes: Passes, question: dict[str, Any]) -> None:
    """The same with torch.compile inside the recordings."""
    net, known, x = data
    clf = cr.accelerate(cr.Classifier(net), known, compiled=True)
    assert isinstance(clf.draft, nn.Module)
    assert clf.recorder is not None
    if bench.has_time("compiled decisions", 60):
        decisions(bench, {"compiled": (clf, "bfloat16")}, x, passes, question)
        half = clf.recorder.faster(clf.draft)
        size = clf.recorder.sizes[-1]  # compiled by now
        seconds = bench.seconds(lambda: one_pass(half, x[:size]))  # type: ignore[arg-type]
        bench.note(f"bare pass, compiled, batch {size}", seconds, size)
    if bench.has_time("compiled Judges", 15):
        judges(bench, clf, known, x, passes, words=", compiled")
    if bench.has_time("compiled full solves", 60):
        solves(bench, {"compiled": clf}, x, question["gamma"], (SOLVED,))


def alone(bench: Bench, net: nn.Module, known: Tensor, x: Tensor) -> None:
    """How much an input changes that is solved by itself, not in a batch."""
    judge, part = cr.Judge.fit(net, known, profile="always"), x[:100]
    clf, gamma = judge.examiner.clf, judge.examiner.gamma
    full = () if bench.cuda else (cr.solvers.Hybrid(),)  # a hundred of them alone take too long
    for solver in (judge.examiner.descent, cr.solvers.LBFGS(steps=16), *full):
        solve = lambda y, solver=solver: cr.credibility(clf, y, gamma=gamma, solver=solver)  # noqa: E731
        together = solve(part).credibility
        single = torch.cat([solve(one).credibility for one in part.split(1)])
        gap = float((together - single).abs().max())
        name = f"alone against a batch of {len(part)}, {type(solver).__name__}"
        bench.say(name, gap, f"largest change of c+ {gap:.2g}")


def busy(bench: Bench, net: nn.Module, known: Tensor, x: Tensor) -> None:
    """One image while another process spins on a core."""
    found = {use: cr.Judge.fit(net, known, profile=use) for use in ("never", "always")}  # type: ignore[arg-type]
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        for use, judge in found.items():
            seconds = bench.seconds(lambda judge=judge: judge(x[:1], keep=False))
            bench.note(f"Judge, profile={use!r}, one image beside a busy process", seconds, 1)
    finally:
        other.kill()


def subject(given: argparse.Namespace) -> Data:
    """The embedded network, or the one that was named."""
    last = ORDINARY + given.count
    if given.network is None:
        sample = load_sample()
        net, images = sample.net, sample.images[:last]
    else:
        from experiments import networks
        from experiments.images import read_npz

        net, images = networks.load(given.network).net, read_npz(given.images)[:last].pixels
    images = images.to(given.device)
    return net.to(given.device).eval(), images[:ORDINARY], images[ORDINARY:]


def measure(bench: Bench, given: argparse.Namespace) -> None:
    """Everything there is time for, what matters most first."""
    net, known, x = subject(given)
    bench.has_time("bare passes", 0)
    passes = bare_passes(bench, net, x)
    plain = cr.Classifier(net)
    quick = cr.accelerate(plain, known)
    bench.say("accelerate", list(quick.notes), "; ".join(quick.notes))
    gamma = cr.auto_gamma(plain, known)
    bench.has_time("Judges", 0)
    found = judges(bench, net, known, x, passes)
    question = {"gamma": gamma, "solver": found["always"].examiner.descent}
    bench.has_time("decisions", 0)
    kind = "folded" if quick.draft is None else "bfloat16"
    forms = {"plain": (plain, "plain"), "accelerated": (quick, kind)}
    decisions(bench, forms, x, passes, question)
    clfs = {name: clf for name, (clf, _) in forms.items()}
    if bench.has_time("full solves", 30):
        sizes = tuple(sorted({min(SOLVED, len(x)), min(SMALL, len(x))}, reverse=True))
        solves(bench, {"accelerated": quick}, x, gamma, sizes)
        solves(bench, {"plain": plain}, x, gamma, sizes[-1:])
    if bench.has_time("the same answers", 10):
        agreement(bench, net, known, x)
        alone(bench, net, known, x)
    if bench.cuda and bench.has_time("memory and waits", 5):
        memory(bench, clfs, x, question)
        waits(bench, quick, found["never"], x[:SMALL], question)
    checks(bench, plain, torch.cat([known, x])[:SMALL], "this network")
    if quick.recorder is not None:
        said = quick.recorder.failures
        bench.say("work that could not be recorded", said, "; ".join(said) or "none")
    if bench.cuda:
        compiled(bench, (net, known, x), passes, question)
    if given.large and bench.has_time("large networks", 30):
        large(bench)
    if bench.has_time("instead", 15):
        instead(bench, net, known, x, passes["plain", len(x)])
    if bench.has_time("growth", 20):
        growth(bench, net, known, x)
        shapes(bench)
    if not bench.cuda:
        busy(bench, net, known, x)


def main() -> None:
    """Measure everything, print it, and append it to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--network", type=Path)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--limit", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore", cr.errors.CrediblyWarning)
    bench = Bench(given.device, given.limit)
    try:
        measure(bench, given)
    finally:  # what was measured before something failed is kept
        if given.out is not None:
            append(given.out, bench, given)


def append(path: Path, bench: Bench, given: argparse.Namespace) -> None:
    """Add this run to the history of a file, and say what has become slower."""
    name = torch.cuda.get_device_name() if bench.cuda else platform.processor() or "CPU"
    runs = json.loads(path.read_text("utf-8")) if path.exists() else []
    run = {
        "command": "python -m benchmarks.speed", "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "credibly": cr.__version__, "torch": torch.__version__, "device": name,
        "threads": torch.get_num_threads(), "network": given.network and given.network.stem,
        "rows": bench.rows,
    }  # fmt: skip
    before = [r for r in runs if all(r[key] == run[key] for key in ("device", "network"))]
    for line in slower(before[-1]["rows"], bench.rows) if before else ():
        print(line)
    path.write_text(json.dumps([*runs, run], indent=1) + "\n", "utf-8")


def slower(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """One line for each piece of work that takes more bare passes than it did."""
    pairs = {
        name: (before[name]["bare_passes"], row["bare_passes"])
        for name, row in now.items()
        if isinstance(row, dict) and "bare_passes" in row and "bare_passes" in before.get(name, {})
    }
    return [
        f"slower than in the last run: {name}, {new:.2f} bare passes instead of {old:.2f}"
        for name, (old, new) in pairs.items()
        if new > SLOWER * old
    ]


if __name__ == "__main__":
    main()
