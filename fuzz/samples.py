"""Hostile samples: no row may break the call, be NaN with a good status, or disturb another."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import credibly as cr
from credibly.errors import CrediblyError
from fuzz.server import Forks
from fuzz.subjects import Subject, all_names, make_all, subject
from fuzz.tally import Case, Plan, Tally, kind_of

ROWS = 64
SOLVERS = (
    *3 * (cr.solvers.LBFGS(steps=4),), cr.solvers.LBFGS(steps=12, memory=2),
    cr.solvers.GradientDescent(steps=4), cr.solvers.ArrowHurwicz(steps=4),
    cr.solvers.GaussNewton(steps=2), cr.solvers.GaussNewton(steps=1, jacobian="free"),
)  # fmt: skip
SLOW = cr.solvers.Hybrid(effort=0.05), cr.solvers.Hybrid()
GAMMAS: tuple[Any, ...] = (1.0, 30.0, 30.0, "auto", 1e-8, 1e8)

VALUES = (
    np.nan, np.inf, -np.inf, 1e30, -1e30, 1e-38, 1e-45, 0.0, -0.0, 3e38, 1e15, -1e5, 1.0,
)  # fmt: skip
"""Of the last ones nothing is wrong, unless a whole row of them is."""

NUMBERS = ("credibility", "credence", "risk", "perturbed", "multipliers", "passes")

PROBED = ("tradeoff", "hull")
"""Parts of a certificate that only `certify(..., probes=...)` fills."""


def spoil(random: np.random.Generator, x: Tensor, rows: list[int], *, floating: bool) -> Tensor:
    """The batch with hostile rows."""
    x = x.clone()
    for row in rows:
        if not floating:
            x[row] = 0  # a text of padding
            continue
        value = VALUES[random.integers(len(VALUES))]
        how = random.integers(4)
        flat = x[row].view(-1)
        if how == 0:
            flat[:] = value
        elif how == 1:
            flat[random.integers(len(flat))] = value
        elif how == 2:
            flat[torch.from_numpy(random.random(len(flat)) < 0.5)] = value
        else:
            flat[:] = torch.from_numpy(random.choice(VALUES, len(flat)))
    return x


@dataclass(frozen=True)
class Ask:
    """How one subject is asked.

    Attributes:
        tested: the subject.
        solver: of the profiles.
        where: both in words.
    """

    tested: Subject
    solver: Any
    where: str

    def solve(self, x: Tensor, gamma: Any, chunk_size: int = 128) -> cr.Profile | str:
        """A profile, or what stopped it; an error of the package begins with 'refused'."""
        how: dict[str, Any] = {"weights": gamma} if isinstance(gamma, tuple) else {"gamma": gamma}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # libraries warn of overflow
                asked = self.tested.ask(x)
                return cr.credibility(*asked, solver=self.solver, chunk_size=chunk_size, **how)
        except CrediblyError as error:
            return f"refused: {kind_of(error)}"
        except Exception as error:  # noqa: BLE001  # that is what is looked for
            return kind_of(error)


def try_samples(case: Case, tally: Tally, made: set[str]) -> None:
    """One batch with bad rows among good ones, if its subject was made."""
    random, names = case.random(), all_names()
    name = names[random.integers(len(names))]
    if name not in made:
        return
    dtype = (torch.float32, torch.float64)[random.integers(2)]
    solver = SOLVERS[random.integers(len(SOLVERS))]
    if random.random() < 0.02:
        solver = SLOW[random.integers(2)]
    gamma = GAMMAS[random.integers(len(GAMMAS))]
    bad = random.random(ROWS) < (0.05, 0.3, 0.9)[random.integers(3)]
    tested = subject(name, dtype)
    x = tested.draw(random, ROWS, dtype)
    spoiled = spoil(random, x, np.flatnonzero(bad).tolist(), floating=tested.floating)
    tally.counts.update(batches=1, samples=ROWS, hostile=int(bad.sum()))
    ask = Ask(tested, solver, f"{name}, {str(dtype)[6:]}, {type(solver).__name__}")
    good = torch.from_numpy(np.flatnonzero(~bad))
    profile = ask.solve(spoiled, gamma)
    if isinstance(profile, str):
        tally.counts["refused"] += 1
        if _is_find(profile, ask, x[good], gamma):
            tally.find(case, profile, ask.where)
        return
    for what in check(profile):
        tally.find(case, what, ask.where)
    if len(good):
        _compare(case, tally, ask, x[good], profile[good])


def _is_find(said: str, ask: Ask, x: Tensor, gamma: Any) -> bool:
    """A refusal is a find where the good rows alone are solved: bad rows get a status instead."""
    if not said.startswith("refused"):
        return True
    if gamma == "auto":  # most rows being hostile, there may be no gradient to set it from
        return False
    return len(x) > 0 and not isinstance(ask.solve(x, gamma), str)


def _compare(case: Case, tally: Tally, ask: Ask, x: Tensor, among: cr.Profile) -> None:
    """Good rows must come out as they do without the bad ones."""
    weights, rough = among.settings.weights, ask.tested.rough
    alone = ask.solve(x, weights)
    if isinstance(alone, str):
        tally.find(case, f"good rows alone: {alone}", ask.where)
    elif what := differs(among, alone, rough=rough):
        again = [ask.solve(x, weights, chunk_size=size) for size in (7, 1, 16)]
        filled = ask.solve(x[torch.arange(ROWS) % len(x)], weights)  # as large, of good rows only
        again.append(filled if isinstance(filled, str) else filled[: len(x)])
        if any(not isinstance(p, str) and differs(p, alone, rough=rough) for p in again):
            tally.counts["rounding"] += 1  # other batches do the same without any bad rows
        else:
            tally.find(case, what, ask.where)


def check(profile: cr.Profile) -> list[str]:
    """What is wrong with a profile, by itself."""
    wrong, usable = [], profile.usable
    numbers = {name: getattr(profile, name) for name in NUMBERS}
    own = {name: value for name, value in vars(profile.certificate).items() if name not in PROBED}
    numbers |= {f"certificate.{name}": value for name, value in own.items()}
    for name, values in numbers.items():
        if bool(values[usable].isnan().any()):
            wrong.append(f"NaN in {name} with a usable status")
    if bool((usable & ~profile.x0.flatten(1).isfinite().all(1)).any()):
        wrong.append("a usable status for an input that is not finite")
    w = torch.tensor(profile.settings.weights, dtype=torch.float64)
    before, after = (
        (c.double().square() / w).sum(1) for c in (profile.credence, profile.credibility)
    )
    if bool((profile.risk.double() > before - after)[usable].any()):
        wrong.append("the risk exceeds the gain")
    return wrong


def differs(among: cr.Profile, alone: cr.Profile, *, rough: bool) -> str | None:
    """Whether rows came out otherwise among bad ones than alone."""
    both = among.usable & alone.usable
    if not torch.equal(among.usable, alone.usable):
        return "a good row has another status without the bad ones"
    single = among.credence.dtype == torch.float32
    if _apart(among.credence, alone.credence, both, (1e-3 if rough else 1e-4) if single else 1e-9):
        return "the credence of a good row depends on the bad ones"
    w = torch.tensor(among.settings.weights, dtype=torch.float64)
    found, expected = (
        p.risk.double() + (p.credibility.double().square() / w).sum(1) for p in (among, alone)
    )
    loose = (0.05 if rough else 0.01) if single else (1e-3 if rough else 1e-5)
    if _apart(found[:, None], expected[:, None], both, loose):
        return "the objective of a good row depends on the bad ones"
    return None


def _apart(found: Tensor, expected: Tensor, rows: Tensor, tolerance: float) -> bool:
    found, expected = found[rows].double(), expected[rows].double()
    scale = expected.abs().amax(1, keepdim=True).clamp(min=1e-6)
    return bool(((found - expected).abs() > tolerance * scale).any())


def run(plan: Plan, forks: Forks) -> Tally:  # noqa: ARG001  # as in the other parts
    """Try batches until the time is up."""
    tally = Tally("samples")
    made = make_all(quick=plan.quick)
    for case in plan.cases("samples"):
        try_samples(case, tally, made)
    return tally
