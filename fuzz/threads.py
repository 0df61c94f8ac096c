"""Threads: one-row calls from several at once give what they give one after the other."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

import credibly as cr
from fuzz.server import Forks
from fuzz.subjects import all_names, make_all, subject
from fuzz.tally import Case, Plan, Tally, kind_of

CALLS = 24
SOLVERS = (
    cr.solvers.LBFGS(steps=4),
    cr.solvers.GradientDescent(steps=4),
    cr.solvers.GaussNewton(steps=1),
)


def _one(call: tuple[Any, ...]) -> cr.Profile | str:
    tested, row, solver = call
    try:
        return cr.credibility(*tested.ask(row), gamma=30.0, solver=solver)
    except Exception as error:  # noqa: BLE001  # serial and parallel must say the same
        return kind_of(error)


def try_threads(case: Case, tally: Tally, made: set[str]) -> None:
    """The same calls in turn, and from two to eight threads; of subjects that were made."""
    random, names = case.random(), all_names()
    calls = []
    chosen = [names[random.integers(len(names))] for _ in range(3)]
    chosen = [name if name in made else "smooth" for name in chosen]
    for _ in range(CALLS):
        name = chosen[random.integers(3)]
        dtype = (torch.float32, torch.float64)[random.integers(2)]
        tested = subject(name, dtype)
        solver = SOLVERS[random.integers(len(SOLVERS))]
        calls.append((name, (tested, tested.draw(random, 1, dtype), solver)))
    workers = int(random.integers(2, 9))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = [_one(call) for _, call in calls]
        with ThreadPoolExecutor(workers) as pool:
            found = list(pool.map(_one, [call for _, call in calls]))
    tally.counts["calls"] += CALLS
    tally.counts["rounds"] += 1
    for (name, _), one, other in zip(calls, expected, found, strict=True):
        if what := _differs(one, other):
            tally.find(case, what, f"{name}, {workers} threads")


def _differs(serial: cr.Profile | str, parallel: cr.Profile | str) -> str | None:
    if isinstance(serial, str) or isinstance(parallel, str):
        return None if serial == parallel else f"serial: {serial}; in threads: {parallel}"[:300]
    for name in ("credence", "credibility", "perturbed", "risk", "codes"):
        one, other = getattr(serial, name), getattr(parallel, name)
        if not torch.equal(one.nan_to_num(), other.nan_to_num()):
            return f"{name} differs from that of the same call alone"
    return None


def run(plan: Plan, forks: Forks) -> Tally:  # noqa: ARG001  # as in the other parts
    """Rounds of calls until the time is up."""
    tally = Tally("threads")
    made = make_all(quick=plan.quick)
    for case in plan.cases("threads"):
        try_threads(case, tally, made)
    return tally
