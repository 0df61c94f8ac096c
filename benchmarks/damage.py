"""Flipped bits and swapped shards of stopped runs: are they found, and solved again?

python -m benchmarks.damage
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import torch

import credibly as cr
from credibly.batch.shards import Shards

ROWS, SHARD, TRIES = 60, 10, 20


def flip(parts: list[Path], rng: random.Random) -> int:
    """Flip one bit of one shard; gives how many rows that damages."""
    path = rng.choice(parts)
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(content))
    return SHARD


def swap(parts: list[Path], rng: random.Random) -> int:
    """Swap two shards."""
    one, other = rng.sample(parts, 2)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    return 2 * SHARD


def is_found(folder: Path, damage: Callable[[list[Path], random.Random], int], seed: int) -> bool:
    """Stop a run before its shards are joined, damage them, run it again, compare the bytes."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    data, out, expected = folder / "x.npy", folder / "out.parquet", folder / "expected.parquet"
    np.save(data, torch.randn(ROWS, 4).numpy())
    solver = cr.solvers.LBFGS(steps=3)

    def score(path: Path) -> int:
        return cr.score(
            cr.Classifier(net), data, path, gamma=1.0, chunk_size=SHARD, shard_size=SHARD,
            solver=solver, overwrite=True,
        ).resumed  # fmt: skip

    score(expected)
    try:
        with mock.patch.object(Shards, "merge", side_effect=KeyboardInterrupt):
            score(out)
    except KeyboardInterrupt:
        pass
    parts = sorted((folder / "out.parquet.parts").glob("part-*.parquet"))
    damaged = damage(parts, random.Random(seed))  # noqa: S311  # which bit is no secret
    return score(out) == ROWS - damaged and out.read_bytes() == expected.read_bytes()


def main() -> None:
    """One line per kind of damage."""
    for name, damage in (("flipped bits", flip), ("swapped shards", swap)):
        found = 0
        for seed in range(TRIES):
            with tempfile.TemporaryDirectory() as folder:
                found += is_found(Path(folder), damage, seed)
        print(f"{name}: {found} of {TRIES} found, solved again, and the bytes as without damage")


if __name__ == "__main__":
    main()
