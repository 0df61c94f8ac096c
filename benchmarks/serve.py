"""How fast `credibly serve` answers, what it does under too much load, and whether it stays so.

    python -m benchmarks.serve [--only one full many crowd soak] [--seconds 300] [--out RESULT.json]

The service is the real command in a process of its own, on loopback; clients are a third process.
Two networks: the embedded one, and the same eight times as wide with random weights. Every answer
is compared with `judge(x)` in Python. Numbers depend on the machine; ratios are within one run, in
turns, and the load of the machine is printed beside them.

- one: a client asks about one image at a time; the median time, by that of `judge(x)` in Python.
  `work_ratio` is the same of the seconds that a core computed, which do not depend on how busy the
  machine is.
- full, many: 64 clients that send one image at a time, 16 that send 32; rows per second, by those
  of `judge(x)` on batches of 64. `work_share` is what a row costs in Python by what it costs the
  thread of the service that judges: the share that is left where cores are free for clients and for
  the rest of the service.
- crowd: 400 clients, a deadline of one second: which statuses, and the 99th percentile of the 200s.
  The clients wait as Retry-After tells them; then again with clients that wait 50 ms only, and
  with a queue of 64 rows, where many are refused.
- soak: 100 clients for `--seconds`; wrong answers, and resident memory at the end by that after a
  minute (medians of half a minute: a batch more or less is several per cent).
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

import credibly as cr
from benchmarks.serve_clients import as_npy
from credibly.data.sample import load_sample

MODELS = {
    "embedded": "credibly.data.sample:classifier",
    "wide": "benchmarks.serve_network:wide",
}
ROUNDS = 3
HASTE = 0.05


class Served:
    """A running service, its Judge here, and inputs whose answers are known.

    Attributes:
        port: of the service.
        judge: the same one, in this process.
        images: inputs.
        folder: for files.
    """

    def __init__(self, folder: Path, judge: cr.Judge, port: int, process: int) -> None:
        self.folder, self.judge, self.port = folder, judge, port
        self.process = psutil.Process(process)
        self.images = load_sample().images[300:]
        found = judge(self.images, keep=False)
        np.savez(folder / "known.npz", images=self.images.numpy(), trust=found.trust.numpy())

    def clients(
        self, clients: int, seconds: float, pause: float | None = None, rows: int = 1
    ) -> dict[str, Any]:
        """Let clients ask, in another process."""
        settings = {"port": self.port, "clients": clients, "seconds": seconds, "pause": pause,
                    "rows": rows, "inputs": str(self.folder / "known.npz")}  # fmt: skip
        place = self.folder / "settings.json"
        place.write_text(json.dumps(settings), "utf-8")
        command = [sys.executable, "-m", "benchmarks.serve_clients", str(place)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603
            out, _ = process.communicate()
        found: dict[str, Any] = json.loads(out)
        return found

    def asker(self) -> Callable[[bytes], None]:
        """Asks about one image, over a connection that stays open."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)

        def ask(body: bytes) -> None:
            kind = {"Content-Type": "application/x-npy"}
            connection.request("POST", "/v1/judge", body, kind)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200

        return ask

    def work(self) -> list[float]:
        """Seconds that each thread of the service has computed, the busiest first."""
        threads = self.process.threads()
        return sorted((one.user_time + one.system_time for one in threads), reverse=True)

    def value(self, name: str) -> float:
        """One of the counts of the service."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        found = re.search(rf"^{name} (\S+)$", text, flags=re.MULTILINE)
        assert found is not None
        return float(found[1])


@contextmanager
def served(model: str, *options: str) -> Iterator[Served]:
    """Fit a Judge, and serve it until the end of the block."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        loaded = cr.load_classifier(MODELS[model])
        judge = cr.Judge.fit(loaded, load_sample().images[:300])
        judge.save(folder / "judge")
        command = [sys.executable, "-m", "credibly", "serve", MODELS[model], "--judge",
                   str(folder / "judge"), "--port", "0", *options]  # fmt: skip
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(  # noqa: S603
                command, stdout=subprocess.PIPE, stderr=log, text=True
            )
            try:
                yield Served(folder, judge, _port(process), process.pid)
            finally:
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=60)
        assert process.returncode == 0


def _port(process: subprocess.Popen[str]) -> int:
    """Wait until the service is ready."""
    assert process.stdout is not None
    for line in process.stdout:
        print(f"    {line.rstrip()}" if line.startswith("memory") else "", end="")
        if line.startswith("http://"):
            port = int(line.rstrip().rpartition(":")[2])
            break
    else:
        message = "the service did not start"
        raise SystemExit(message)
    print()
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/v2/health/ready")
        if connection.getresponse().status == 200:
            return port
        time.sleep(0.1)


def one(model: str) -> dict[str, Any]:
    """One client, and `judge(x)`, in turns."""
    with served(model) as here:
        ask, times = here.asker(), {"judge": [], "service": []}
        bodies = [as_npy(x[None].numpy()) for x in here.images[:50]]
        ratios = []
        ask(bodies[0])
        before, own = sum(here.work()), 0.0
        for _ in range(ROUNDS + 1):
            times = {"judge": [], "service": []}
            for row, body in enumerate(bodies):
                x = here.images[row : row + 1]
                begun = time.process_time()
                times["judge"].append(seconds_of(lambda x=x: here.judge(x, keep=False)))
                own += time.process_time() - begun
                times["service"].append(seconds_of(lambda body=body: ask(body)))
            middles = {name: statistics.median(found) for name, found in times.items()}
            ratios.append((middles["service"] / middles["judge"], middles))
        ratios = sorted(ratios[1:], key=lambda found: found[0])  # the first warms up
        ratio, middles = ratios[len(ratios) // 2]
        return {
            "ratio": ratio,
            "work_ratio": (sum(here.work()) - before) / own,
            "ratios": [found[0] for found in ratios],
            "judge_ms": 1000 * middles["judge"],
            "service_ms": 1000 * middles["service"],
        }


def full(model: str, clients: int = 64, rows: int = 1) -> dict[str, Any]:
    """Clients, and `judge` on batches of 64, in turns."""
    with served(model, "--deadline", "10") as here:
        x, shares = here.images[:64], []
        here.judge(x, keep=False)
        begun, count = time.process_time(), 10
        for _ in range(count):
            here.judge(x, keep=False)
        own = (time.process_time() - begun) / (count * len(x))
        work, seen = here.work()[0], here.value("credibly_batch_rows_sum")
        for _ in range(ROUNDS + 1):
            before = per_second(lambda: here.judge(x, keep=False), 3.0) * len(x)
            found = here.clients(clients, 6.0, rows=rows)
            after = per_second(lambda: here.judge(x, keep=False), 3.0) * len(x)
            shares.append((2 * found["rows_per_second"] / (before + after), found, before, after))
            assert found["wrong"] == 0
            assert set(found["statuses"]) == {"200"}
        judged, batches = (here.value(f"credibly_batch_rows_{n}") for n in ("sum", "count"))
        shares = sorted(shares[1:], key=lambda one: one[0])
        share, found, before, after = shares[len(shares) // 2]
        return {
            "share": share,
            "work_share": own / ((here.work()[0] - work) / (judged - seen)),
            "shares": [one[0] for one in shares],
            "service_per_second": found["rows_per_second"],
            "judge_per_second": [before, after],
            "median_ms": found["median_ms"],
            "mean_batch": judged / batches,
        }


def crowd(model: str) -> dict[str, Any]:
    """400 clients with a deadline of a second; and with less room, so that most are refused."""
    with served(model, "--deadline", "1") as here:
        here.clients(8, 2.0)
        found = here.clients(400, 20.0)
        hasty = here.clients(400, 20.0, HASTE)
    with served(model, "--deadline", "1", "--queue", "64", "--rows", "64") as here:
        here.clients(8, 2.0)
        little = here.clients(400, 20.0, HASTE)
    assert found["wrong"] == hasty["wrong"] == little["wrong"] == 0
    return {**found, "deadline_ms": 1000, "hasty": hasty, "little_room": little}


def soak(model: str, seconds: float) -> dict[str, Any]:
    """100 clients for long, each answer checked; memory every second, under way."""
    with served(model, "--deadline", "5") as here:
        sizes: list[float] = []
        over = threading.Event()

        def look() -> None:
            while not over.wait(1.0):
                sizes.append(here.process.memory_info().rss / 2**20)

        looking = threading.Thread(target=look)
        looking.start()
        found = here.clients(100, seconds)
        over.set()
        looking.join()
    around, half = len(sizes) * 60 // 300, len(sizes) * 15 // 300
    early = statistics.median(sizes[around - half : around + half])
    late = statistics.median(sizes[-2 * half :])
    return {
        "answers": sum(found["statuses"].values()),
        "statuses": found["statuses"],
        "wrong": found["wrong"],
        "seconds": found["seconds"],
        "memory_mb": [early, late],
        "memory_ratio": late / early,
        "memory_most_mb": max(sizes),
        "p99_ms": found["p99_ms"],
    }


def seconds_of(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def per_second(work: Callable[[], object], seconds: float) -> float:
    """Calls per second."""
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        work()
        count += 1
    return count / (time.perf_counter() - begun)


def main() -> None:
    """Measure, print, and write a file if one is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=["one", "full", "many", "crowd", "soak"])
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--seconds", type=float, default=300.0, help="of the soak")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    parts: dict[str, Callable[[str], dict[str, Any]]] = {
        "one": one, "full": full, "many": lambda m: full(m, 16, 32), "crowd": crowd,
        "soak": lambda m: soak(m, given.seconds),
    }  # fmt: skip
    known = json.loads(given.out.read_text("utf-8")) if given.out and given.out.exists() else {}
    for name in given.only:
        for model in given.models:
            found = parts[name](model)
            found["load_average"] = os.getloadavg()[0]
            print(f"{name}, {model}: {json.dumps(found)}", flush=True)
            known.setdefault(name, {})[model] = found
    known["machine"] = {
        "cores": os.cpu_count(), "python": platform.python_version(), "torch": torch.__version__,
    }  # fmt: skip
    if given.out:
        given.out.write_text(json.dumps(known, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
