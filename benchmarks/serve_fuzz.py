"""Hostile bodies for the service: nothing but refusals, and it answers as before.

    python -m benchmarks.serve_fuzz [--bodies 10000] [--examples 100] [--seed 0] [--out RESULT.json]

Bodies that are right are broken in many ways: bits, cuts, repeats, numbers and words replaced,
headers that lie. Each is sent to a running service (the real command, on loopback). Then
schemathesis asks whatever the OpenAPI description allows, and what it forbids. No answer may be a
500, the service must live, and at the end it must say of an input what it said at the beginning.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from benchmarks.serve import served

KINDS = ("application/json", "application/x-npy", "application/x-npz", "image/png",
         "multipart/form-data; boundary=b", "application/octet-stream", "text/plain")  # fmt: skip
WORDS = (b"null", b"true", b"-1", b"1e999", b"NaN", b"[]", b"{}", b'"x"', b"9" * 400, b"\x00",
         b"\xff\xfe", b"[" * 200, b"2147483648", b"0x10", b"'", b"shape", b"\\u0000")  # fmt: skip
CHECKS = "not_a_server_error"

Request = tuple[str, bytes, dict[str, str]]


def right(x: np.ndarray[Any, Any]) -> list[Request]:
    """Requests that are answered, in every form that a row (1, ...) can have."""
    npy, npz, png = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(npy, x)
    np.savez_compressed(npz, x=x)
    Image.fromarray((x.reshape(x.shape[-2:]) * 255).astype(np.uint8)).save(png, "PNG")
    form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
    tensor = {"name": "input", "shape": list(x.shape), "datatype": "FP32"}
    raw = x.astype("<f4").tobytes()
    size = {"parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"inputs": [{**tensor, **size}]}).encode()
    infer, length = "/v2/models/judge/infer", "inference-header-content-length"
    plain = json.dumps({"inputs": [{**tensor, "data": [round(v, 2) for v in x.ravel().tolist()]}],
                        "outputs": [{"name": "verdict"}, {"name": "risk"}]})  # fmt: skip
    lists = json.dumps({"inputs": x.round(2).tolist(), "profile": False})
    return [
        ("/v1/judge", lists.encode(), {"content-type": KINDS[0]}),
        ("/v1/judge", npy.getvalue(), {"content-type": KINDS[1]}),
        ("/v1/judge", npz.getvalue(), {"content-type": KINDS[2]}),
        ("/v1/judge", png.getvalue(), {"content-type": KINDS[3]}),
        ("/v1/judge", form + png.getvalue() + b"\r\n--b--\r\n", {"content-type": KINDS[4]}),
        (infer, plain.encode(), {"content-type": KINDS[0]}),
        (infer, head + raw, {"content-type": KINDS[5], length: str(len(head))}),
    ]


def broken(requests: list[Request], count: int, seed: int) -> Iterator[Request]:
    """The same, each damaged in one to four ways."""
    generator = random.Random(seed)  # noqa: S311  # no secret
    for _ in range(count):
        place, body, headers = generator.choice(requests)
        content = bytearray(body)
        for _ in range(generator.randint(1, 4)):
            _damage(content, generator)
        yield place, bytes(content), _lies(headers, len(content), generator)


def _damage(content: bytearray, generator: random.Random) -> None:
    """Change bytes, near the beginning more often: there is what is read first."""
    far = len(content) if generator.random() < 0.5 else min(len(content), 120)
    at = generator.randrange(far + 1)
    way = generator.randrange(6)
    if way == 0 and content:
        content[min(at, len(content) - 1)] ^= 1 << generator.randrange(8)
    elif way == 1:
        del content[at:]
    elif way == 2:
        del content[at : at + generator.randint(1, 40)]
    elif way == 3:
        content[at:at] = generator.choice(WORDS)
    elif way == 4:
        content[at : at + generator.randint(1, 8)] = generator.choice(WORDS)
    else:
        content[at:at] = content[at : at + generator.randint(1, 400)]


def _lies(headers: dict[str, str], size: int, generator: random.Random) -> dict[str, str]:
    found = dict(headers)
    if generator.random() < 0.1:
        found["content-type"] = generator.choice(KINDS)
    if generator.random() < 0.1:
        lengths = ("-1", "0", str(size), str(size + 1), "x", "9" * 30)
        found["inference-header-content-length"] = generator.choice(lengths)
    if generator.random() < 0.05:
        found["x-deadline-ms"] = generator.choice(["0", "-5", "1", "99999999", "soon"])
    return found


def ask_all(client: httpx.Client, requests: Iterator[Request]) -> Counter[int]:
    """Send them one after the other; which statuses came back, and which request was the worst."""
    statuses: Counter[int] = Counter()
    for place, body, headers in requests:
        answer = client.post(place, content=body, headers=headers)
        statuses[answer.status_code] += 1
        if answer.status_code >= 500:
            message = f"{answer.status_code} for {place} {headers} {body!r:.300}"
            raise SystemExit(message)
        json.loads(answer.content) if answer.status_code != 200 else None
    return statuses


def schemathesis(url: str, examples: int, seed: int) -> None:
    """Ask what the description allows and forbids; ends with an error if an answer is a 500."""
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--checks", CHECKS,
        "--max-examples", str(examples), "--mode", "all", "--seed", str(seed), "--no-color",
        "--phases", "examples,coverage,fuzzing", "--suppress-health-check", "all",
    ]  # fmt: skip
    subprocess.run(command, check=True)  # noqa: S603


def main() -> None:
    """Send everything, and print what came back."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bodies", type=int, default=10_000)
    parser.add_argument("--examples", type=int, default=100, help="of schemathesis, by place")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with served("embedded", "--deadline", "10") as here:
        url = f"http://127.0.0.1:{here.port}"
        requests = right(here.images[:1].numpy())
        with httpx.Client(base_url=url, timeout=60) as client:
            place, body, headers = requests[1]
            before = client.post(place, content=body, headers=headers).json()
            good = ask_all(client, iter(requests))
            assert set(good) == {200}
            statuses = ask_all(client, broken(requests, given.bodies, given.seed))
            print(f"{given.bodies} broken bodies: {dict(sorted(statuses.items()))}", flush=True)
            schemathesis(url, given.examples, given.seed)
            assert client.post(place, content=body, headers=headers).json() == before
            assert client.get("/v2/health/live").status_code == 200
    if given.out:
        known = json.loads(given.out.read_text("utf-8")) if given.out.exists() else {}
        known["fuzz"] = {
            "bodies": given.bodies,
            "statuses": dict(sorted(statuses.items())),
            "schemathesis": {"examples_by_place": given.examples, "errors": 0},
        }
        given.out.write_text(json.dumps(known, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
