"""Many threads ask one model about single samples; every answer must be that of one thread alone.

python -m benchmarks.threads
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

from benchmarks.thread_cases import CASES, ROUNDING, Ask
from benchmarks.thread_networks import SAMPLES


@contextmanager
def switching_often() -> Iterator[None]:
    """Let Python change threads as often as it can, so that accidents are likely."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def compare(ask: Ask, *, calls: int, threads: int, rounding: float = 0.0) -> tuple[list[str], int]:
    """Errors, and how many answers differ from those of one thread."""
    alone = [ask(n) for n in range(SAMPLES)]

    def one(call: int) -> str | bool:
        expected = alone[call % SAMPLES]
        try:
            return bool(((ask(call % SAMPLES) - expected).abs() > rounding).any())
        except Exception as error:  # noqa: BLE001
            return f"{type(error).__name__}: {error}"

    with switching_often(), ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(one, range(calls)))
    return [entry for entry in found if isinstance(entry, str)], found.count(True)


def main() -> None:
    """Print, for each case, how many calls raised and how many answers differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=8)
    given = parser.parse_args()
    torch.set_num_threads(1)
    share, raised, different = -(-given.calls // len(CASES)), 0, 0
    for case in CASES:
        began = time.perf_counter()
        rounding = ROUNDING.get(case, 0.0)
        errors, wrong = compare(case(), calls=share, threads=given.threads, rounding=rounding)
        raised, different = raised + len(errors), different + wrong
        spent = time.perf_counter() - began
        print(f"{case.__name__:20} raised {len(errors)}, different {wrong} ({spent:.1f} s)")
        print(*sorted(set(errors))[:3], sep="\n", end="\n" if errors else "")
    total = share * len(CASES)
    print(f"{total} calls in {given.threads} threads: raised {raised}, different {different}")


if __name__ == "__main__":
    main()
