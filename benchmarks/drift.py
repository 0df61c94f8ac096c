"""How often a `DriftWatch` raises false alarms, and how soon it notices a shift.

    python -m benchmarks.drift [--streams 10000] [--length 1000] [--shifts 200] [--out RESULT.json]

The Judge is fitted on 300 of the embedded images. Fresh ordinary inputs (300 a stream) and streams
are drawn, with replacement, from the verdicts on the other 700: so they are exchangeable, as the
promise asks. A shift begins after 200 such inputs; from then on the images are damaged. The delay
is the number of inputs from the shift to the alarm; at most 2000 are watched.

Beside it a windowed Kolmogorov-Smirnov test: every 25 inputs the last 100 are compared with the 300
fresh ones, each time at the rate / looks (Bonferroni), for as many looks as a stream of 2200
allows. Unlike the watch, it must know the length of the stream before.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special, stats

import credibly as cr
from credibly.data.sample import load_sample
from credibly.decide.drift import places_of
from credibly.decide.drift_engine import Engine, WatchSettings
from credibly.study.corruptions import Corruption
from experiments.evidence_sets import noise

RATE, FITTED, FRESH = 0.01, 300, 300
CALM, MOST = 200, 2000
WINDOW, EVERY = 100, 25
CLASSES = 10

Integers = NDArray[np.int64]
Pool = tuple[Integers, Integers]


def pools() -> tuple[Pool, dict[str, Pool]]:
    """Places and classes of ordinary images, and of images after each shift."""
    sample = load_sample()
    judge = cr.Judge.fit(cr.Classifier(sample.net), sample.images[:FITTED])
    new = sample.images[FITTED:]

    def judged(x: torch.Tensor) -> Pool:
        found = judge(x, keep=False)
        return places_of(found, FITTED), found.predicted.numpy()

    strange = judged(noise(new, uniform=True, seed=0))
    calm = judged(new)
    shifts = {
        f"gaussian noise {level}": judged(Corruption("gaussian noise", level)(new))
        for level in range(1, 6)
    }
    for share in (0.05, 0.2):
        many = round(share * len(new) / (1 - share))
        mixed = zip(calm, strange, strict=True)
        places, classes = (np.concatenate([a, b[:many]]) for a, b in mixed)
        shifts[f"{share:.0%} are pure noise"] = places, classes
    return calm, shifts


def engine(*, by_class: bool, reference: int, seed: int) -> Engine:
    """A watch over verdicts of that Judge."""
    return Engine.begin(WatchSettings(
        false_alarms=RATE, by_class=by_class, seed=seed, ordinary=FITTED, classes=CLASSES,
        reference=reference, judge="",
    ))  # fmt: skip


def draw(pool: Pool, count: int, random: np.random.Generator) -> Pool:
    """Independent draws."""
    rows = random.integers(0, len(pool[0]), count)
    return pool[0][rows], pool[1][rows]


def watch(known: Pool, stream: Pool, *, by_class: bool, seed: int) -> int | None:
    """Number of the input with which the alarm rose."""
    found = engine(by_class=by_class, reference=len(known[0]), seed=seed)
    found.know(*known)
    for _ in found.after(*stream):
        if found.since is not None:
            return found.since
    return None


def limit(length: int) -> float:
    """The distance that two samples of this size exceed with a chance of the rate / looks."""
    looks = (length - WINDOW) // EVERY + 1
    return float(special.kolmogi(RATE / looks) * np.sqrt((FRESH + WINDOW) / (FRESH * WINDOW)))


def windowed(known: Integers, stream: Integers, least: float) -> int | None:
    """The same by the windowed test."""
    for end in range(WINDOW, len(stream) + 1, EVERY):
        if distance(known, stream[end - WINDOW : end]) > least:
            return end
    return None


def distance(one: Integers, other: Integers) -> float:
    """Largest difference of two empirical distributions of places."""
    sizes = FITTED + 2
    ways = (np.bincount(x, minlength=sizes).cumsum() / len(x) for x in (one, other))
    return float(np.abs(np.subtract(*ways)).max())


METHODS = ("watch, by class", "watch, all inputs", "windowed KS")


def alarms(known: Pool, stream: Pool, seed: int) -> list[int | None]:
    """When each method raised the alarm."""
    return [
        watch(known, stream, by_class=True, seed=seed),
        watch(known, stream, by_class=False, seed=seed),
        windowed(known[0], stream[0], limit(CALM + MOST)),
    ]


def false_alarms(calm: Pool, streams: int, length: int) -> dict[str, Any]:
    """How many streams raised an alarm though nothing changed."""
    random, raised = np.random.default_rng(0), np.zeros(len(METHODS), int)
    for seed in range(streams):
        known, stream = draw(calm, FRESH, random), draw(calm, length, random)
        raised += [since is not None for since in alarms(known, stream, seed)]
    return {
        name: {"raised": int(count), "share": count / streams, "chance of as many": float(
            stats.binom.sf(count - 1, streams, RATE))}
        for name, count in zip(METHODS, raised, strict=True)
    }  # fmt: skip


def delays(calm: Pool, shifted: Pool, streams: int) -> dict[str, Any]:
    """Inputs from the shift to the alarm, over streams without an earlier one."""
    random = np.random.default_rng(1)
    found: list[list[float]] = [[] for _ in METHODS]
    for seed in range(streams):
        known, before = draw(calm, FRESH, random), draw(calm, CALM, random)
        after = draw(shifted, MOST, random)
        stream = tuple(np.concatenate(pair) for pair in zip(before, after, strict=True))
        for values, since in zip(found, alarms(known, stream, seed), strict=True):
            if since is None or since > CALM:
                values.append(np.inf if since is None else since - CALM)
    return {
        name: {"noticed": float(np.isfinite(v).mean()),
               **{f"{q:.0%}": _finite(np.quantile(v, q, method="inverted_cdf"))
                  for q in (0.5, 0.9)}}
        for name, v in zip(METHODS, found, strict=True)
    }  # fmt: skip


def _finite(value: float) -> int | None:
    return int(value) if np.isfinite(value) else None


def main(streams: int, length: int, shifts: int, out: Path | None) -> None:
    """Print and write all numbers."""
    started = time.perf_counter()
    calm, shifted = pools()
    result: dict[str, Any] = {
        "command": f"python -m benchmarks.drift --streams {streams} --length {length} "
        f"--shifts {shifts}",
        "machine": f"{platform.machine()}, one core", "rate": RATE, "length": length,
    }  # fmt: skip
    found = false_alarms(calm, streams, length)
    result["false alarms"] = found
    print(f"false alarms in {streams} streams of {length} ordinary inputs, promised {RATE:.1%}")
    for name, numbers in found.items():
        print(f"  {name:20} {numbers['share']:.2%} ({numbers['raised']})", flush=True)
    result["delays"] = {}
    print("inputs until the alarm: median, 90 % (share of streams noticed)")
    for kind, pool in shifted.items():
        found = result["delays"][kind] = delays(calm, pool, shifts)
        cells = [f"{v['50%']}, {v['90%']} ({v['noticed']:.0%})" for v in found.values()]
        print(f"  {kind:22} " + "  ".join(f"{cell:22}" for cell in cells), flush=True)
    print(f"{time.perf_counter() - started:.0f} s; columns: {', '.join(METHODS)}")
    if out is not None:
        out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--length", type=int, default=1000)
    parser.add_argument("--shifts", type=int, default=200)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    main(given.streams, given.length, given.shifts, given.out)
