"""Runs at scale: Ray beside one process, how busy the solver is, memory, and constants of a model.

    python -m benchmarks.scale engines      # Ray's two workers beside two local threads, by turns
    python -m benchmarks.scale busy         # the share of the time that is solving
    python -m benchmarks.scale memory       # peaks of worker and driver, 10^5 and 10^6 rows
    python -m benchmarks.scale constants    # start-up, and what a shard costs the driver
    python -m benchmarks.scale costs        # time per million rows on one CPU core

Each run is a process of its own, so that nothing is warm. `--out FILE` adds the numbers to a file.
Times are of this machine: compare them within one run only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

SAMPLE = "credibly.data.sample:classifier"
COLUMNS = 10

IMAGES = {"judge": 40_000, "decide": 8_000, "score": 1_000}
"""Images of a run, by what is done with them: some ten seconds on one core."""

SMALL = f"""
import torch
from torch import nn

def net():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear({COLUMNS}, 16), nn.Tanh(), nn.Linear(16, 4)).eval()
"""

RUN = """
import json, os, re, sys, time
import numpy as np
import torch
import credibly as cr
from credibly.batch.progress import Follower
given = json.loads(sys.argv[1])
torch.set_num_threads(given["threads"])
rows = len(np.load(given["data"], mmap_mode="r"))
begun, ready, first, last = time.monotonic(), None, None, None
def shards(share):
    return share * rows / given["shard_size"]
class See(Follower):
    def see(self, pulse):
        global ready, first, last
        now = (time.monotonic(), pulse.share, time.process_time())
        workers = max(1, given["workers"])
        if ready is None and pulse.workers >= workers:
            ready = now[0] - begun
        if first is None and ready is not None and shards(pulse.share) >= workers:
            first = now
        if last is None and pulse.share == 1:
            last = now
engine = "local"
if given["workers"]:
    engine = cr.ray.Ray(workers=given["workers"])
clf = cr.load_classifier(given["model"])
solver = cr.solvers.LBFGS(steps=8) if given["work"] == "decide" else None
sizes = {name: given[name] for name in ("chunk_size", "shard_size")}
how = {**sizes, "engine": engine, "progress": See(), "status": "status.json", "folder": True}
if given["work"] == "judge":
    judge = cr.Judge.load("judge", clf)
    report = cr.judge_file(judge, given["data"], given["out"], **how, fingerprint=clf)
else:
    report = cr.score(clf, given["data"], given["out"], gamma=given["gamma"], solver=solver, **how)
ended = time.monotonic()
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
state = json.load(open("status.json"))
steady, share = last[0] - first[0], last[1] - first[1]
print(json.dumps({
    "seconds until all workers are ready": ready, "seconds to end": ended - last[0],
    "rows per second": report.rows * share / steady,
    "CPU seconds per shard": (last[2] - first[2]) / shards(share),
    "seconds per shard": steady / shards(share),
    "solving per shard": state["seconds_solving"] / shards(1),
    "solving": state["seconds_solving"], "run": state["seconds"], "driver MB": peak,
}))
"""


def run(folder: Path, **given: Any) -> dict[str, float]:
    """Do one run in a process of its own; the peak of its workers is watched from here."""
    given = {"workers": 0, "threads": 1, "gamma": 1.0, "out": "out", "chunk_size": 128,
             "shard_size": 1024, "model": "model.py:net", "data": "x.npy", **given}  # fmt: skip
    subprocess.run(["rm", "-rf", "out", "out.parts"], cwd=folder, check=True)  # noqa: S607
    threads = str(given["threads"])
    done = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", RUN, json.dumps(given)],
        cwd=folder, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": threads},
    )  # fmt: skip
    peak = 0.0
    while done.poll() is None:
        for child in psutil.Process(done.pid).children(recursive=True) if given["workers"] else ():
            peak = max(peak, peak_of_worker(child))
        time.sleep(0.2)
    assert done.stdout is not None
    text = done.stdout.read()
    if done.returncode:
        raise SystemExit(done.returncode)
    return {**json.loads(text), "worker MB": peak}


def peak_of_worker(process: psutil.Process) -> float:
    """Return the most memory that a worker of the run has had, in MB; 0 of another process."""
    try:
        if not " ".join(process.cmdline()).startswith("ray::Worker"):
            return 0.0
        lines = Path(f"/proc/{process.pid}/status").read_text("utf-8").splitlines()
    except (psutil.Error, OSError):
        return 0.0
    return max((int(ln.split()[1]) / 1024 for ln in lines if ln.startswith("VmHWM")), default=0.0)


def make_rows(folder: Path, rows: int) -> None:
    """Write random rows, and the model for them."""
    (folder / "model.py").write_text(SMALL)
    np.save(folder / "x.npy", np.random.default_rng(0).normal(size=(rows, COLUMNS)).astype("f4"))


def make_images(folder: Path, images: int) -> None:
    """Write the embedded images, over and over, and a Judge."""
    import credibly as cr
    from credibly.data.sample import load_sample

    x = load_sample().images.numpy()
    np.save(folder / "x.npy", x[np.arange(images) % len(x)])
    cr.Judge.fit(cr.load_classifier(SAMPLE), x[:300]).save(folder / "judge")


def engines(folder: Path, repeats: int) -> dict[str, Any]:
    """Ray's workers of one thread beside one process of as many threads, by turns."""
    make_images(folder, IMAGES["decide"])
    images = {"model": SAMPLE, "gamma": 200.0, "work": "decide", "shard_size": 256}
    found = {}
    for count in (1, 2):
        speeds: dict[str, list[float]] = {"local": [], "ray": []}
        for _ in range(repeats):
            for name, how in (("local", {"threads": count}), ("ray", {"workers": count})):
                speed = run(folder, **images, **how)["rows per second"]
                speeds[name].append(round(speed, 1))
                print(f"{name} {count}: {speed:.1f} rows/s once it runs", flush=True)
        ratios = [b / a for a, b in zip(speeds["local"], speeds["ray"], strict=True)]
        found[f"{count} threads or workers"] = {
            "rows/s": speeds, "ray / local": round(median(ratios), 3),
        }  # fmt: skip
    return found


def busy(folder: Path, repeats: int) -> dict[str, Any]:
    """The share of a local run that is solving, from beginning to end."""
    found = {}
    for work, count in IMAGES.items():
        make_images(folder, count)
        got = [run(folder, model=SAMPLE, gamma=200.0, work=work) for _ in range(repeats)]
        shares = [round(g["solving"] / g["run"], 3) for g in got]
        found[work] = {"images": count, "shares": shares}
        print(f"{work}: {shares}", flush=True)
    return found


def memory(folder: Path, repeats: int) -> dict[str, Any]:
    """Peaks over few and over many rows."""
    found = {}
    for rows in (100_000, 1_000_000):
        make_rows(folder, rows)
        got = [run(folder, work="decide", workers=2, chunk_size=1024, shard_size=4096)
               for _ in range(repeats)]  # fmt: skip
        found[str(rows)] = {n: round(median(g[n] for g in got)) for n in ("worker MB", "driver MB")}
        print(rows, found[str(rows)], flush=True)
    few, many = found.values()
    return {**found, "ratio": {name: round(many[name] / few[name], 3) for name in few}}


def constants(folder: Path, repeats: int) -> dict[str, Any]:
    """What a model of throughput needs: start-up, and what a shard costs beside its rows."""
    make_rows(folder, 1000)
    tiny = {"work": "decide", "chunk_size": 1, "shard_size": 1}
    found = {}
    for name, workers in (("ray", 1), ("local", 0)):
        got = [run(folder, **tiny, workers=workers) for _ in range(repeats)]
        beside = [g["seconds per shard"] - g["solving per shard"] for g in got]
        found[name] = {
            what: [round(g[what], 2) for g in got]
            for what in ("seconds until all workers are ready", "seconds to end")
        } | {"seconds per shard beside solving": [round(seconds, 4) for seconds in beside]}
        if workers:  # of one process it is solving, too
            cpu = [g["CPU seconds per shard"] for g in got]
            found[name]["CPU seconds of the driver per shard"] = [round(c, 4) for c in cpu]
        print(name, found[name], flush=True)
    return found


def costs(folder: Path, repeats: int) -> dict[str, Any]:
    """Rows per second on one core, by what is done with them."""
    found = {}
    for work, count in IMAGES.items():
        make_images(folder, count)
        got = [run(folder, model=SAMPLE, gamma=200.0, work=work) for _ in range(repeats)]
        speed = median(g["rows per second"] for g in got)
        found[work] = {
            "rows/s": round(speed, 1),
            "core-hours per million": round(1e6 / speed / 3600, 2),
        }
        print(work, found[work], flush=True)
    return found


PARTS: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    part.__name__: part for part in (engines, busy, memory, constants, costs)
}


def main() -> None:
    """Measure a part, print it, and add it to a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        found = PARTS[given.part](Path(folder), given.repeats)
    result = {
        "command": f"python -m benchmarks.scale {given.part} --repeats {given.repeats}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load before and after": [round(before, 2), round(os.getloadavg()[0], 2)],
        **found,
    }
    print(json.dumps(result, indent=1))
    if given.out is not None:
        known = json.loads(given.out.read_text("utf-8")) if given.out.exists() else {}
        given.out.write_text(json.dumps({**known, given.part: result}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
