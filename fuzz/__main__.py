"""`python -m fuzz --seconds 60 --seed 0`, or `--repeat files:0:17`."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import torch

from fuzz.server import Forks
from fuzz.tally import PARTS, Case, Plan, Tally, say

SHARES = {"samples": 0.35, "files": 0.3, "kills": 0.15, "threads": 0.05, "disks": 0.15}


def look(part: str, plan: Plan, forks: Forks) -> Tally:
    """Run one part, and tell how long it took."""
    started = time.monotonic()
    tally: Tally = import_module(f"fuzz.{part}").run(plan, forks)
    tally.seconds = time.monotonic() - started
    return tally


def main(arguments: list[str] | None = None) -> int:
    """Run all parts, or repeat a find; the exit status is 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all parts together")
    parser.add_argument("--seed", type=int, default=0, help="another seed tries other cases")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part")
    parser.add_argument("--repeat", metavar="CASE", help="one case, such as files:0:17")
    parser.add_argument("--keep", type=Path, help="folder for the files of a repeated case")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    plan, parts = Plan(given.seed, keep=given.keep), tuple(given.part or PARTS)
    if given.repeat:
        case = Case.named(given.repeat)
        plan, parts = replace(plan, seed=case.seed, only=case.number), (case.part,)
    total, found = sum(SHARES[part] for part in parts), 0
    with Forks() as forks:  # which loads its libraries meanwhile
        for part in parts:
            seconds = given.seconds * SHARES[part] / total
            tally = look(part, replace(plan, seconds=seconds), forks)
            found += tally.found
            say("\n".join(tally.lines()))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
