"""A job of a hundred million images on 64 to 1000 GPUs, simulated: stragglers, failures, shards.

    python -m experiments.cluster_simulation --out results/cluster-simulation.json

The events are those of the engine 'ray': a driver that hands out numbered shards, two to each
worker, one to solve and one to read meanwhile; a worker that is lost loses what it was solving, is
replaced after a while, and its shards are given to others. Nothing is computed twice on purpose.
Rates of failure and the times to start are assumptions, stated with the result; what a shard costs
a worker and the driver was measured by `python -m benchmarks.scale constants`.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import deque
from dataclasses import asdict, dataclass, field, replace
from heapq import heappop, heappush
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is simulated; times in seconds, rates per hour.

    Attributes:
        gpus: workers, one on each.
        node: GPUs that are lost together.
        rows: of the job.
        shard: rows per shard.
        speed: rows per second of a worker.
        per_shard: time of a worker for each shard beside its rows, which nothing hides.
        driver: time of the driver for each shard; it does one after the other.
        start: until a worker has its model.
        restart: until a lost worker is noticed, replaced, and has its model.
        failures: of a GPU.
        node_failures: of a node.
        slow: share of the workers that are slow all the time.
        slow_by: factor.
        spread: standard deviation of the logarithm of the time of a shard.
    """

    gpus: int = 64
    node: int = 8
    rows: int = 100_000_000
    shard: int = 4096
    speed: float = 537.0
    per_shard: float = 0.006
    driver: float = 0.001
    start: float = 30.0
    restart: float = 90.0
    failures: float = 0.0
    node_failures: float = 0.0
    slow: float = 0.0
    slow_by: float = 3.0
    spread: float = 0.0

    @property
    def shards(self) -> int:
        """How many there are."""
        return -(-self.rows // self.shard)


@dataclass(frozen=True)
class Outcome:
    """How a job went.

    Attributes:
        hours: until the last shard.
        lost: hours of GPUs whose work was thrown away.
        losses: workers that were lost.
        useful: share of all GPU time in which rows were solved that count.
    """

    hours: float
    lost: float
    losses: int
    useful: float


@dataclass(eq=False)
class _Worker:
    number: int
    factor: float
    current: int | None = None
    begun: float = 0.0
    held: deque[int] = field(default_factory=deque)
    up: bool = False
    life: int = 0  # events of an earlier life are ignored


class Job:
    """One run of the simulation."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.s, self.rng = setting, np.random.default_rng(seed)
        slow = self.rng.random(setting.gpus) < setting.slow
        self.workers = [
            _Worker(n, setting.slow_by if is_slow else 1.0) for n, is_slow in enumerate(slow)
        ]
        self.pending = deque(range(setting.shards))
        self.left, self.free, self.events = setting.shards, 0.0, list[tuple[Any, ...]]()
        self.count, self.lost, self.losses = 0, 0.0, 0

    def run(self) -> Outcome:
        """Handle events until every shard is finished."""
        now = 0.0
        for worker in self.workers:
            self._at(self.s.start, self._come_up, worker)
        if self.s.node_failures:
            for first in range(0, self.s.gpus, self.s.node):
                self._at(self._wait(self.s.node_failures), self._lose_node, first)
        while self.left:
            now, _, act, args = heappop(self.events)
            act(now, *args)
        solving = self.s.rows / self.s.speed
        return Outcome(
            now / HOUR, self.lost / HOUR, self.losses, solving / (now * self.s.gpus)
        )  # fmt: skip

    def _at(self, when: float, act: Any, *args: Any) -> None:
        self.count += 1
        heappush(self.events, (when, self.count, act, args))

    def _wait(self, per_hour: float) -> float:
        return float(self.rng.exponential(HOUR / per_hour))

    def _come_up(self, now: float, worker: _Worker) -> None:
        worker.up = True
        if self.s.failures:
            self._at(now + self._wait(self.s.failures), self._lose, worker, worker.life)
        self._give(now, worker)
        self._at(now, self._refill, worker, worker.life)  # after others that come up now

    def _give(self, now: float, worker: _Worker) -> None:
        """Hand out a shard; two at most are with a worker."""
        busy = worker.current is not None
        if worker.up and self.pending and busy + len(worker.held) < 2:
            worker.held.append(self.pending.popleft())
            self._begin(now, worker)

    def _begin(self, now: float, worker: _Worker) -> None:
        if worker.current is not None or not worker.held:
            return
        worker.current, worker.begun = worker.held.popleft(), now
        rows = min(self.s.shard, self.s.rows - worker.current * self.s.shard)
        time = rows / self.s.speed * worker.factor
        if self.s.spread:
            time *= math.exp(self.rng.normal(-(self.s.spread**2) / 2, self.s.spread))
        self._at(now + time + self.s.per_shard, self._finish, worker, worker.life)

    def _finish(self, now: float, worker: _Worker, life: int) -> None:
        if life != worker.life:
            return
        worker.current = None
        self.left -= 1
        self._begin(now, worker)
        self.free = max(self.free, now) + self.s.driver
        self._at(self.free, self._refill, worker, life)

    def _refill(self, now: float, worker: _Worker, life: int) -> None:
        if life == worker.life:
            self._give(now, worker)

    def _lose(self, now: float, worker: _Worker, life: int) -> None:
        if life != worker.life or not worker.up:
            return
        self.losses += 1
        worker.up, worker.life = False, worker.life + 1
        if worker.current is not None:
            self.lost += now - worker.begun
            worker.held.appendleft(worker.current)
            worker.current = None
        self.pending.extendleft(reversed(worker.held))
        worker.held.clear()
        for other in self.workers:  # one that has nothing to do takes it over
            if not self.pending:
                break
            if other.up and other.current is None:
                self._give(now, other)
        self._at(now + self.s.restart, self._come_up, worker)

    def _lose_node(self, now: float, first: int) -> None:
        for worker in self.workers[first : first + self.s.node]:
            self._lose(now, worker, worker.life)
        self._at(now + self._wait(self.s.node_failures), self._lose_node, first)


def simulate(setting: Setting, seeds: int = 3) -> Outcome:
    """Return the mean over seeds."""
    found = [asdict(Job(setting, seed).run()) for seed in range(seeds)]
    return Outcome(**{name: mean(one[name] for one in found) for name in found[0]})


def expected_time(setting: Setting) -> float:
    """Return the mean time of one shard on one worker that fails and is replaced, in closed form.

    Failures come at a constant rate f, each throws the shard away and costs R until it begins
    again: (exp(f t) - 1) (1 / f + R).
    """
    time = setting.shard / setting.speed + setting.per_shard
    rate = setting.failures / HOUR
    return time if rate == 0 else math.expm1(rate * time) * (1 / rate + setting.restart)


TROUBLE = {
    "none": {},
    "stragglers": {"slow": 0.02, "spread": 0.1},
    "stragglers, a failure per GPU in 1000 h": {
        "slow": 0.02, "spread": 0.1, "failures": 1e-3, "node_failures": 2e-3,
    },
    "stragglers, preemptible: a node lost every 20 h": {
        "slow": 0.02, "spread": 0.1, "failures": 1e-3, "node_failures": 0.05,
    },
}  # fmt: skip
GPUS = (64, 128, 256, 512, 1000)
SHARDS = (256, 1024, 4096, 16384, 65536, 262144)


def table(base: Setting, seeds: int) -> list[dict[str, Any]]:
    """Simulate every case."""
    rows = []
    for trouble, how in TROUBLE.items():
        for gpus in GPUS:
            for shard in SHARDS:
                setting = replace(base, gpus=gpus, shard=shard, **how)
                found = simulate(setting, seeds)
                rows.append({"trouble": trouble, "gpus": gpus, "shard": shard, **asdict(found)})
    return rows


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print hours, by GPUs and rows per shard; the best of a line has a star."""
    for trouble in TROUBLE:
        print(f"\n{trouble}: minutes until the end (share of GPU time that counts)")
        print("  GPUs " + "".join(f"{shard:>16,}" for shard in SHARDS))
        for gpus in GPUS:
            mine = [r for r in rows if (r["trouble"], r["gpus"]) == (trouble, gpus)]
            best = min(r["hours"] for r in mine)
            cells = [f"{60 * r['hours']:.1f}{'*' if r['hours'] == best else ''} "
                     f"({r['useful']:.0%})" for r in mine]  # fmt: skip
            print(f"  {gpus:4} " + "".join(f"{cell:>16}" for cell in cells))


def main() -> None:
    """Simulate, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=Setting.rows)
    parser.add_argument("--speed", type=float, default=Setting.speed)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    base = Setting(rows=given.rows, speed=given.speed)
    rows = table(base, given.seeds)
    print_table(rows)
    if given.out is not None:
        command = (
            f"python -m experiments.cluster_simulation --seeds {given.seeds} --rows {given.rows} "
            f"--speed {given.speed:g}"
        )
        found = [
            {k: round(v, 4) if isinstance(v, float) else v for k, v in r.items()} for r in rows
        ]
        content = {"command": command, "setting": asdict(base), "trouble": TROUBLE, "cases": found}
        given.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
