"""Clients of a service, many at once, in one process: each asks, waits for the answer, asks again.

They speak HTTP themselves, to take little of the machine that they measure. Each request carries
an input of known answer and an id; an answer that belongs to another one is counted as wrong.

    python -m benchmarks.serve_clients SETTINGS.json    (one JSON line comes back)
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass
class Load:
    """What many clients did and saw.

    Attributes:
        port: of the service, on loopback.
        bodies: requests, as `.npy` bytes.
        trust: the answers to the rows of each.
        stop: when to end, by `time.monotonic`.
        pause: seconds to wait after a refusal; None: what Retry-After says.
    """

    port: int
    bodies: list[bytes]
    trust: list[list[float]]
    stop: float
    pause: float | None = None
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    wrong: int = 0
    last: float = 0.0

    async def client(self, number: int, step: int) -> None:
        """One client; it asks about every `step`-th input."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        turn = number
        while time.monotonic() < self.stop:
            row, turn = turn % len(self.bodies), turn + step
            name, begun = f"c{number}-{turn}", time.monotonic()
            writer.write(request(self.bodies[row], name))
            status, headers, content = await answer(reader)
            self.last = time.monotonic()
            self.statuses[str(status)] += 1
            if status == 200:
                self.seconds.append(self.last - begun)
                found = [one["trust"] for one in json.loads(content)["rows"]]
                good = np.allclose(found, self.trust[row], rtol=1e-3, atol=1e-3)
                self.wrong += not (good and headers.get("x-request-id") == name)
            else:
                asked = float(headers.get("retry-after", "1"))
                await asyncio.sleep(asked if self.pause is None else self.pause)
        writer.close()

    async def run(self, clients: int) -> None:
        """All clients, until the end."""
        await asyncio.gather(*(self.client(k, clients) for k in range(clients)))


def request(body: bytes, name: str) -> bytes:
    """A request for verdicts."""
    head = (
        f"POST /v1/judge HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-npy\r\n"
        f"X-Request-Id: {name}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and content of an answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:])}
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    return int(head[0].split(" ")[1]), headers, content


def measured(settings: dict[str, Any]) -> dict[str, Any]:
    """Run clients as the settings say."""
    with np.load(settings["inputs"]) as arrays:
        rows = settings["rows"]
        starts = range(0, len(arrays["images"]) - rows + 1, rows)
        bodies = [as_npy(arrays["images"][k : k + rows]) for k in starts]
        trust = [arrays["trust"][k : k + rows].tolist() for k in starts]
    begun = time.monotonic()
    load = Load(settings["port"], bodies, trust, begun + settings["seconds"], settings["pause"])
    asyncio.run(load.run(settings["clients"]))
    times = np.array(load.seconds or [np.nan])
    return {
        "clients": settings["clients"],
        "seconds": load.last - begun,
        "statuses": dict(load.statuses),
        "wrong": load.wrong,
        "rows": rows,
        "rows_per_second": rows * len(load.seconds) / (load.last - begun),
        "median_ms": 1000 * float(np.median(times)),
        "p99_ms": 1000 * float(np.quantile(times, 0.99)),
        "most_ms": 1000 * float(times.max()),
    }


def as_npy(x: Any) -> bytes:
    """An array as the bytes of a file."""
    import io

    file = io.BytesIO()
    np.save(file, x)
    return file.getvalue()


if __name__ == "__main__":
    print(json.dumps(measured(json.loads(Path(sys.argv[1]).read_text("utf-8")))))
