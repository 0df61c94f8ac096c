"""Ways to damage a file byte by byte, and to make valid JSON odd."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np

Random = np.random.Generator
Mutation = Callable[[Random, bytes], bytes]

EXTREMES = (0, 1, 2, 127, 255, 256, 65535, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63, 10**400, 1e308, float("nan"), float("inf"), "", "x", "nan", [],
    {}, [[]], {"a": 1}, [1, 2], "\ud800", "torch.float64", [None], "\u0000",
)  # fmt: skip


def _place(random: Random, data: bytes) -> int:
    """A place in a file; headers and ends are more interesting than the middle."""
    size = max(len(data), 1)
    where = random.integers(3)
    if where == 0:
        return int(random.integers(min(size, 300)))
    return int(random.integers(size) if where == 1 else max(0, size - 1 - random.integers(300)))


def flip(random: Random, data: bytes) -> bytes:
    """Change a few bytes."""
    changed = bytearray(data)
    for _ in range(int(random.integers(1, 9))):
        if changed:
            changed[_place(random, data)] ^= 1 << int(random.integers(8))
    return bytes(changed)


def truncate(random: Random, data: bytes) -> bytes:
    """Keep the beginning."""
    return data[: _place(random, data)]


def remove(random: Random, data: bytes) -> bytes:
    """Leave out a piece."""
    at = _place(random, data)
    return data[:at] + data[at + int(random.integers(1, 200)) :]


def repeat(random: Random, data: bytes) -> bytes:
    """Write a piece twice."""
    at = _place(random, data)
    piece = data[at : at + int(random.integers(1, 400))]
    return data[:at] + piece * int(random.integers(2, 5)) + data[at:]


def move(random: Random, data: bytes) -> bytes:
    """Copy a piece of the file over another place."""
    start, at = _place(random, data), _place(random, data)
    piece = data[start : start + int(random.integers(1, 200))]
    return data[:at] + piece + data[at + len(piece) :]


def noise(random: Random, data: bytes) -> bytes:
    """Random bytes, zeros or ones over a piece."""
    at, size = _place(random, data), int(random.integers(1, 64))
    piece = (random.bytes(size), bytes(size), b"\xff" * size)[random.integers(3)]
    return data[:at] + piece + data[at + size :]


def extreme(random: Random, data: bytes) -> bytes:
    """A number of a binary header becomes 0, the largest, or one off."""
    width = (1, 2, 4, 8)[random.integers(4)]
    value = EXTREMES[random.integers(len(EXTREMES))] % 256**width
    at = _place(random, data)
    return data[:at] + value.to_bytes(width, "little") + data[at + width :]


def digits(random: Random, data: bytes) -> bytes:
    """A number written in digits becomes another."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?", data[:20000]))
    if not found:
        return flip(random, data)
    at = found[random.integers(len(found))]
    new = (b"0", b"-1", b"99999999999", b"1e999", b"", b"9" * 400, b"nan", b"7", b'"x"')
    return data[: at.start()] + new[random.integers(len(new))] + data[at.end() :]


def nothing(random: Random, data: bytes) -> bytes:
    """An empty file, or one of zeros."""
    return bytes(len(data)) if random.random() < 0.5 else b""


BYTES: tuple[Mutation, ...] = (
    flip, flip, truncate, remove, repeat, move, noise, extreme, extreme, digits, digits, nothing,
)  # fmt: skip


def odd_json(random: Random, value: Any) -> Any:
    """Replace, remove or rename one part of a JSON value, at any depth."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        name = list(value)[random.integers(len(value))]
        changed, how = dict(value), random.random()
        part = changed.pop(name)
        if how > 0.15:
            new = name if how > 0.2 else "renamed"
            changed[new] = odd_json(random, part)
        return changed
    if isinstance(value, list) and value and random.random() < 0.7:
        changed = list(value)
        at = int(random.integers(len(changed)))
        how = random.random()
        if how < 0.2:
            return changed + changed
        if how < 0.4:
            del changed[at]
            return changed
        changed[at] = odd_json(random, changed[at])
        return changed
    return ODD[random.integers(len(ODD))]


def json_text(random: Random, data: bytes) -> bytes:
    """A valid JSON file with an odd part; seldom one that is deeper than a parser takes."""
    if random.random() < 0.03:
        return b"[" * 100_000
    changed = odd_json(random, json.loads(data))
    return json.dumps(changed).encode("utf-8", "surrogatepass")
