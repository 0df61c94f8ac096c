"""Random SIGKILLs over workers, nodes and drivers of a run on a small Ray cluster.

    python -m benchmarks.scale_kills --kills 20 --out results/scale-kills.json

Three nodes, the head of one CPU among them, which alone survives when both others are killed. A
killed driver is started again with the same command, a killed node is followed by a new one now and
then. In the end the rows are compared with those of an undisturbed run in one process.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import psutil

ROWS, SHARD, CHUNK = 4000, 16, 8
PAUSE = 0.02  # seconds that the model sleeps per call: a run lasts long enough to be disturbed
KINDS = ("worker", "worker", "node", "driver")

MODEL = f"""
import time
import torch
from torch import nn

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()

    def forward(self, x):
        time.sleep({PAUSE})
        return self.layers(x)
"""

DRIVER = """
import sys
import credibly as cr
address, out, status = sys.argv[1:]
engine = cr.ray.Ray(address=address) if address != "local" else "local"
clf = cr.load_classifier("model.py:Slow" if address != "local" else "quick.py:Slow")
report = cr.score(
    clf, "x.npy", out, gamma=2.0, solver=cr.solvers.LBFGS(steps=8), chunk_size=int("{chunk}"),
    shard_size=int("{shard}"), engine=engine, status=status, fingerprint="the same",
)
""".replace("{chunk}", str(CHUNK)).replace("{shard}", str(SHARD))


class Ground:
    """A cluster of three nodes, and a driver that is started again when it is killed."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        from ray.cluster_utils import Cluster

        self.folder, self.rng = folder, rng
        memory = {"object_store_memory": 80 << 20, "num_cpus": 1}
        self.memory = memory
        self.cluster: Any = Cluster(
            initialize_head=True, head_node_args={**memory, "include_dashboard": False}
        )
        self.nodes = [self.cluster.add_node(**memory) for _ in range(2)]
        self.driver: subprocess.Popen[str] | None = None
        self.starts, self.log = 0, []

    def start_driver(self, out: str) -> None:
        """Start the same command again."""
        self.starts += 1
        self.driver = start(self.folder, self.cluster.address, out)

    def kill(self, kind: str) -> bool:
        """Kill something of a kind; False where there is nothing of it now."""
        assert self.driver is not None
        if kind == "driver":
            self.driver.kill()
            self.driver.wait()
        elif kind == "node":
            if not self.nodes:
                return False
            node = self.nodes.pop(self.rng.randrange(len(self.nodes)))
            self.cluster.remove_node(node, allow_graceful=False)
        else:
            found = workers()
            if not found:
                return False
            found[self.rng.randrange(len(found))].send_signal(signal.SIGKILL)
        return True

    def heal(self) -> None:
        """Add a node now and then, so that there is one to kill."""
        if len(self.nodes) < 2 and self.rng.random() < 0.3:
            self.nodes.append(self.cluster.add_node(**self.memory))


def start(folder: Path, address: str, out: str) -> subprocess.Popen[str]:
    """Start a driver in a process of its own."""
    errors = (folder / "errors.txt").open("a")
    command = [sys.executable, "driver.py", address, out, "status.json"]
    return subprocess.Popen(  # noqa: S603  # what was written above
        command, cwd=folder, stdout=errors, stderr=errors, text=True, start_new_session=True
    )


def workers() -> list[psutil.Process]:
    """Return the workers of the run, of whichever node; all descend from this process."""
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if title_of(process).startswith("ray::Worker")
    ]


def title_of(process: psutil.Process) -> str:
    """Return what a process is called."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def disturb(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Kill at random times until there were enough; return what happened."""
    rng = random.Random(seed)  # noqa: S311  # when is no secret
    ground, counted, outputs, retries = Ground(folder, rng), Counter[str](), [], 0
    begun = time.monotonic()
    while sum(counted.values()) < kills:
        out = f"rows-{len(outputs)}.parquet"
        outputs.append(out)
        ground.start_driver(out)
        while True:
            assert ground.driver is not None
            try:
                code = ground.driver.wait(timeout=rng.uniform(2, 9))
            except subprocess.TimeoutExpired:
                pass
            else:
                if code == 0:
                    break
                raise SystemExit(f"the driver failed:\n{(folder / 'errors.txt').read_text()}")
            if sum(counted.values()) >= kills:
                continue
            kind = rng.choice(KINDS)
            if ground.kill(kind):
                counted[kind] += 1
                alive = 1 + len(ground.nodes)
                print(
                    f"{time.monotonic() - begun:6.0f} s  {kind:6}  {alive} nodes left", flush=True
                )
            if kind == "driver":
                ground.start_driver(out)
            ground.heal()
        retries += json.loads((folder / "status.json").read_text())["retries"]
    ground.cluster.shutdown()
    return {
        "kills": dict(counted), "runs": len(outputs), "drivers started": ground.starts,
        "shards retried in the last driver of each run": retries,
        "seconds": round(time.monotonic() - begun), "outputs": outputs,
    }  # fmt: skip


def compare(folder: Path, outputs: list[str]) -> dict[str, Any]:
    """Compare with an undisturbed run in one process; look for what was left over."""
    import pandas as pd

    (folder / "quick.py").write_text(MODEL.replace(f"time.sleep({PAUSE})", "pass"))
    assert start(folder, "local", "expected.parquet").wait() == 0
    expected = pd.read_parquet(folder / "expected.parquet")
    same = 0
    for out in outputs:
        found = pd.read_parquet(folder / out)
        assert found["id"].tolist() == list(range(ROWS)), "rows are missing, or there twice"
        pd.testing.assert_frame_equal(found, expected, check_exact=True)
        same += 1
    known = {*outputs, "expected.parquet", "status.json", "errors.txt"}
    known |= {"x.npy", "model.py", "quick.py", "driver.py", "__pycache__"}
    left = sorted({path.name for path in folder.iterdir()} - known)
    return {"outputs equal to that of one process": same, "files left over": left}


def main() -> None:
    """Disturb, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    logging.getLogger("ray").setLevel(logging.ERROR)
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "x.npy", np.random.default_rng(0).normal(size=(ROWS, 4)))
        (folder / "model.py").write_text(MODEL)
        (folder / "driver.py").write_text(DRIVER)
        happened = disturb(folder, given.kills, given.seed)
        result = {
            "command": f"python -m benchmarks.scale_kills --kills {given.kills} "
            f"--seed {given.seed}",
            "rows": ROWS, "shards": -(-ROWS // SHARD), **happened,
            **compare(folder, happened.pop("outputs")),
        }  # fmt: skip
    text = json.dumps(result, indent=1)
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
