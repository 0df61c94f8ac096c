"""Images and passes per second, against the bare network, and against what a user would do instead.

    python -m benchmarks.speed [--device cuda] [--network FILE --images FILE.npz] [--large]
        [--out results/speed-NAME.json]

Without a network, the embedded one. Everything is measured in one run: "bare" is forward and
backward by the input of the same network, without this package. Ratios within a run tell more than
times. `--large` adds networks of 1000 classes for 224 x 224 pixels (torchvision, random weights).
Each run is appended to the file, so that a slowdown can be seen.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import credibly as cr
from credibly.baselines import ODIN, TestTimeAugmentation
from credibly.data.sample import load_sample
from credibly.metrics import auroc
from credibly.model.fast import HalfPrecision
from credibly.model.folding import folded

ORDINARY, KINDS = 300, ("plain", "folded", "bfloat16")


class Bench:
    """Times, and the words they are printed with."""

    def __init__(self, device: str) -> None:
        self.device, self.rows = device, dict[str, Any]()
        self.rounds = 5 if device == "cuda" else 3

    def seconds(self, work: Callable[[], object]) -> float:
        """The median of some runs after a first one, the device waited for."""
        work()
        found = []
        for _ in range(self.rounds):
            self.wait()
            begin = time.perf_counter()
            work()
            self.wait()
            found.append(time.perf_counter() - begin)
        return sorted(found)[self.rounds // 2]

    def wait(self) -> None:
        """Wait for the device."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def note(self, name: str, seconds: float, count: int, bare: float | None = None) -> float:
        """Print and keep images per second, and how many bare passes the same time would take."""
        rate = count / seconds
        passes = "" if bare is None else f"; {seconds / bare:6.2f} bare passes"
        print(f"{name:<58} {rate:>12,.1f} images/s, {1e3 * seconds:9.2f} ms{passes}", flush=True)
        self.rows[name] = {"images": count, "seconds": seconds, "images_per_second": rate}
        if bare is not None:
            self.rows[name]["bare_passes"] = seconds / bare
        return seconds

    def peak(self, work: Callable[[], object]) -> float:
        """Bytes of a GPU at the most, above what was there before; 0 on a CPU."""
        if self.device != "cuda":
            return 0.0
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return float(torch.cuda.max_memory_allocated() - before)


def one_pass(net: nn.Module, x: Tensor) -> Tensor:
    """Forward and backward by the input, and nothing else."""
    given = x.detach().requires_grad_(True)
    (slope,) = torch.autograd.grad(net(given).float().logsumexp(1).sum(), given)
    return slope


def bare(bench: Bench, net: nn.Module, x: Tensor) -> dict[str, float]:
    """Seconds of a bare pass: as the user has it, folded, and folded in bfloat16."""
    fast = folded(net)[0]
    if bench.device == "cuda":
        fast = fast.to(memory_format=torch.channels_last)
    half = HalfPrecision(fast, x.device.type)
    nets = {"plain": net, "folded": fast, "bfloat16": half}
    if bench.device == "cuda":
        nets |= {"compiled": torch.compile(half, dynamic=False)}
    found = {}
    for kind, one in nets.items():
        seconds = bench.seconds(lambda one=one: one_pass(one, x))
        found[kind] = bench.note(f"bare pass, {kind}, batch {len(x)}", seconds, len(x))
    return found


def ours(bench: Bench, net: nn.Module, known: Tensor, x: Tensor, passes: dict[str, float]) -> None:
    """Judges, decisions and full solves, before and after `accelerate`."""
    plain = cr.Classifier(net)
    quick = cr.accelerate(plain, known)
    forms = {"plain": (plain, "plain"), "accelerated": (quick, "folded")}
    if quick.draft is not None:
        forms["accelerated"] = (quick, "bfloat16")
    if bench.device == "cuda":
        forms["compiled"] = (cr.accelerate(plain, known, compiled=True), "compiled")
    print("accelerate:", "; ".join(quick.notes))
    bench.rows["notes"] = list(quick.notes)
    gamma = cr.auto_gamma(plain, known)
    judges = {use: cr.Judge.fit(net, known, profile=use) for use in ("never", "doubtful", "always")}
    descent = judges["always"].examiner.descent
    size = len(x)
    for use, judge in judges.items():
        seconds = bench.seconds(lambda judge=judge: judge(x, keep=False))
        bench.note(f"Judge, profile={use!r}, batch {size}", seconds, size, passes["plain"])
    for name, (clf, kind) in forms.items():
        work = lambda clf=clf: cr.credibility(clf, x, gamma=gamma, solver=descent)  # noqa: E731
        work()  # a recorder sees the sizes of the pieces
        seconds = bench.seconds(work)
        bench.note(f"decision, {name}, batch {size}", seconds, size, passes[kind])
        if name == "compiled":
            judge = cr.Judge.fit(clf, known, profile="always")
            judge(x, keep=False)
            seconds = bench.seconds(lambda judge=judge: judge(x, keep=False))
            bench.note(f"Judge, compiled, profile='always', batch {size}", seconds, size)
    for count in sorted({min(size, 256), size}):
        for name, (clf, _) in forms.items():
            begin = time.perf_counter()
            found = cr.credibility(clf, x[:count], gamma=gamma)
            bench.wait()
            seconds = time.perf_counter() - begin
            spent = float(found.passes.mean())
            bench.note(f"full solve, {name}, batch {count}, {spent:.0f} passes", seconds, count)
    agreement(bench, (plain, quick), x, gamma, descent)
    memory(bench, (plain, quick), x, gamma, descent)
    if bench.device == "cuda":
        waits(bench, quick, x[:256], gamma, descent)


def agreement(
    bench: Bench, clfs: tuple[cr.Classifier, ...], x: Tensor, gamma: float, descent: Any
) -> None:
    """How much decisions differ: AUROC of noise and inverted images by `gain`, and classes."""
    g = torch.Generator().manual_seed(0)
    far = {"uniform noise": torch.rand(x.shape, generator=g).to(x), "inverted": 1 - x}
    found = []
    for clf in clfs:
        scores = {
            name: cr.scores.gain(cr.credibility(clf, part, gamma=gamma, solver=descent))
            for name, part in {"clean": x, **far}.items()
        }
        found.append({n: auroc(-v.cpu(), -scores["clean"].cpu()) for n, v in scores.items()})
    same = float((clfs[0].predict(x) == clfs[1].predict(x)).double().mean())
    gaps = {name: found[1][name] - found[0][name] for name in far}
    print(f"same class {same:.4%}; AUROC of gain changes by {gaps}")
    bench.rows["agreement"] = {"same class": same, "auroc": found, "auroc changes": gaps}


def memory(
    bench: Bench, clfs: tuple[cr.Classifier, ...], x: Tensor, gamma: float, descent: Any
) -> None:
    """Peak memory of a decision over that of a bare pass of the same network."""
    for name, clf in zip(("plain", "accelerated"), clfs, strict=True):
        assert isinstance(clf.net, nn.Module)
        net = clf.net if clf.draft is None else clf.draft
        least = bench.peak(lambda net=net: one_pass(net, x))  # type: ignore[arg-type]
        most = bench.peak(
            lambda clf=clf: cr.credibility(
                clf, x, gamma=gamma, solver=descent, chunk_size=max(1, len(x))
            )
        )
        if least:
            print(f"peak memory, {name}: {most / least:.2f} of a bare pass ({most / 1e6:,.0f} MB)")
            bench.rows[f"memory, {name}"] = {"bytes": most, "over bare": most / least}


def waits(bench: Bench, clf: cr.Classifier, x: Tensor, gamma: float, descent: Any) -> None:
    """How often the CPU waits for the GPU in one call, by torch's own count."""
    for name, solver in (("decision", descent), ("full solve", cr.solvers.Hybrid())):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            steps = cr.credibility(clf, x, gamma=gamma, solver=solver).steps.max()
            torch.cuda.set_sync_debug_mode("default")
        count = sum("synchroniz" in str(one.message) for one in found)
        print(f"{name}: the CPU waits {count} times, in {int(steps)} steps")
        bench.rows[f"waits, {name}"] = {"waits": count, "steps": int(steps)}


def instead(bench: Bench, net: nn.Module, x: Tensor, passes: dict[str, float]) -> None:
    """What a user would do instead, on the same network and images."""
    clf, size = cr.Classifier(net), len(x)

    def forwards(count: int) -> Callable[[], None]:
        def work() -> None:
            with torch.no_grad():
                for _ in range(count):
                    net(x)

        return work

    views = tuple(lambda y, k=k: torch.roll(y, k % 5 - 2, dims=3) for k in range(19))
    ways: dict[str, Callable[[], object]] = {
        "one forward (softmax, energy)": forwards(1),
        "5-network ensemble": forwards(5),
        "30-sample dropout": forwards(30),
        "20-view augmentation": lambda: TestTimeAugmentation(views=views)(clf, x),
        "ODIN": lambda: ODIN(eps=0.002)(clf, x),
    }
    for name, work in ways.items():
        bench.note(f"{name}, batch {size}", bench.seconds(work), size, passes["plain"])
    if importlib.util.find_spec("foolbox") is not None:
        foolbox(bench, net, x[:200])


def foolbox(bench: Bench, net: nn.Module, x: Tensor) -> None:
    """Minimum-norm attacks of foolbox: distance to the boundary as a score of trust."""
    import foolbox as fb

    model = fb.PyTorchModel(net, bounds=(0, 1), device=x.device)
    with torch.no_grad():
        labels = net(x).argmax(1)
    for name, attack in (
        ("foolbox DDN", fb.attacks.DDNAttack()),
        ("foolbox DeepFool", fb.attacks.L2DeepFoolAttack()),
    ):
        begin = time.perf_counter()
        attack(model, x, labels, epsilons=None)
        bench.wait()
        bench.note(f"{name}, batch {len(x)}", time.perf_counter() - begin, len(x))


def growth(bench: Bench, net: nn.Module, known: Tensor, x: Tensor) -> None:
    """One image alone, and more and more of them."""
    judges = {use: cr.Judge.fit(net, known, profile=use) for use in ("never", "always")}
    if bench.device == "cuda":
        fast = cr.accelerate(cr.Classifier(net), known, compiled=True)
        judges["always, compiled"] = cr.Judge.fit(fast, known, profile="always")
    sizes = [1, 8, 64, *(size for size in (256, 1024) if size < len(x))]
    for size in sizes:
        part = x[:size]
        for use, judge in judges.items():
            judge(part, keep=False)  # a recorder sees the sizes of the pieces
            seconds = bench.seconds(lambda part=part, judge=judge: judge(part, keep=False))
            bench.note(f"Judge, profile={use!r}, batch {size}", seconds, size)


def alone(bench: Bench, net: nn.Module, known: Tensor, x: Tensor) -> None:
    """How much an input changes that is solved by itself, not in a batch."""
    judge, part = cr.Judge.fit(net, known, profile="always"), x[:100]
    clf, gamma = judge.examiner.clf, judge.examiner.gamma
    for solver in (judge.examiner.descent, cr.solvers.LBFGS(steps=16)):
        solve = lambda y, solver=solver: cr.credibility(clf, y, gamma=gamma, solver=solver)  # noqa: E731
        together = solve(part).credibility
        single = torch.cat([solve(one).credibility for one in part.split(1)])
        gap = float((together - single).abs().max())
        print(f"alone against a batch of {len(part)}, {solver!r}: largest change of c+ {gap:.2g}")
        bench.rows[f"alone, {type(solver).__name__}"] = gap


def busy(bench: Bench, net: nn.Module, known: Tensor, x: Tensor) -> None:
    """One image while another process spins on a core."""
    judges = {use: cr.Judge.fit(net, known, profile=use) for use in ("never", "always")}
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        for use, judge in judges.items():
            seconds = bench.seconds(lambda judge=judge: judge(x[:1], keep=False))
            bench.note(f"Judge, profile={use!r}, one image beside a busy process", seconds, 1)
    finally:
        other.kill()


DESCENT = cr.solvers.FixedDescent(radius=1.0)


def large(bench: Bench) -> None:
    """Networks of 1000 classes at 224 x 224 pixels, random weights."""
    if importlib.util.find_spec("torchvision") is None:
        print("large networks: torchvision is not here")
        return
    from torchvision import models

    x = torch.rand(256, 3, 224, 224, generator=torch.Generator().manual_seed(0)).to(bench.device)
    for name in ("resnet50", "vit_b_16"):
        torch.manual_seed(0)
        net = getattr(models, name)(weights=None).eval().to(bench.device)
        for part in net.modules():  # a last layer of zeros, as of transformers, has no gradient
            if isinstance(part, nn.Linear) and not bool(part.weight.any()):
                nn.init.normal_(part.weight, std=0.02)
        clf = cr.accelerate(cr.Classifier(net), x[:16])
        fast = cr.accelerate(cr.Classifier(net), x[:16], compiled=True)
        forms = {"plain": cr.Classifier(net), "accelerated": clf, "compiled": fast}
        print(f"{name}: {'; '.join(clf.notes)}")
        for size in (1, 64, 256):
            part = x[:size]
            passes = bench.seconds(lambda part=part, net=net: one_pass(net, part))
            bench.note(f"{name}, bare pass, batch {size}", passes, size)
            for kind, one in forms.items():
                work = lambda one=one, part=part: cr.credibility(  # noqa: E731
                    one, part, gamma=1e4, solver=DESCENT, top=10
                )
                work()
                bench.note(
                    f"{name}, decision, {kind}, batch {size}", bench.seconds(work), size, passes
                )
        checks = bench.seconds(lambda: cr.auto_gamma(clf, x[:64], top=10))  # noqa: B023
        bench.note(f"{name}, auto_gamma, 64 images", checks, 64, passes)


def subject(given: argparse.Namespace) -> tuple[nn.Module, Tensor, Tensor]:
    """The network, ordinary images, and images to judge."""
    if given.network is None:
        sample = load_sample()
        return (
            sample.net.to(given.device),
            sample.images[:ORDINARY].to(given.device),
            (sample.images[ORDINARY : ORDINARY + given.count].to(given.device)),
        )
    from experiments import networks
    from experiments.images import read_npz

    net = networks.load(given.network, given.device).net
    images = read_npz(given.images)[: ORDINARY + given.count].to(given.device).pixels
    return net, images[:ORDINARY], images[ORDINARY:]


def main() -> None:
    """Measure everything, print it, and append it to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--network", type=Path)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore", cr.errors.CrediblyWarning)
    bench, (net, known, x) = Bench(given.device), subject(given)
    passes = bare(bench, net, x)
    ours(bench, net, known, x, passes)
    instead(bench, net, x, passes)
    growth(bench, net, known, x)
    alone(bench, net, known, x)
    if given.device == "cpu":
        busy(bench, net, known, x)
    if given.large:
        large(bench)
    if given.out is not None:
        append(given.out, bench, given)


def append(path: Path, bench: Bench, given: argparse.Namespace) -> None:
    """Add this run to the history of a file."""
    name = torch.cuda.get_device_name() if given.device == "cuda" else platform.processor() or "CPU"
    runs = json.loads(path.read_text("utf-8")) if path.exists() else []
    runs.append(
        {
            "command": "python -m benchmarks.speed", "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "credibly": cr.__version__, "torch": torch.__version__, "device": name,
            "threads": torch.get_num_threads(), "network": given.network and given.network.stem,
            "rows": bench.rows,
        }
    )  # fmt: skip
    path.write_text(json.dumps(runs, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
