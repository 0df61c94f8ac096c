"""Damaged files: an error of the package or a good answer; no other error, crash, hang or flood."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from credibly.errors import CrediblyError
from fuzz.corpus import KINDS, good
from fuzz.mutations import BYTES
from fuzz.server import HANG, Forks, limit_memory
from fuzz.tally import Case, Plan, Tally, kind_of

NAMES = [name for turn in range(4) for name, kind in KINDS.items() if turn == 0 or not kind.slow]
"""The kinds in turn; as many cases are tried in one fork."""

SILENCE = 10.0
"""Seconds after which a case counts as hanging."""

MEMORY = 1 << 30
"""Bytes that a fork may have on top of what it begins with."""


def damage(case: Case, folder: Path, root: Path) -> tuple[str, str]:
    """Copy the good files of a kind, and damage one of them; gives the kind and what was done."""
    random = case.random()
    name = NAMES[case.number % len(NAMES)]
    kind = KINDS[name]
    shutil.copytree(good(root, name), folder, dirs_exist_ok=True)
    targets = sorted(p for p in folder.glob(kind.files) if p.is_file() and p.stat().st_size)
    target = targets[random.integers(len(targets))]
    data, done = target.read_bytes(), []
    own = kind.own.get(target.suffix)
    if own is not None and random.random() < 0.6:
        data = own(random, data)
        done.append(getattr(own, "__name__", "own"))
    while not done or random.random() < 0.2:
        change = BYTES[random.integers(len(BYTES))]
        data = change(random, data)
        done.append(change.__name__)
    if random.random() < 0.02:
        other = sorted(p for p in root.rglob("*") if p.is_file())
        data = other[random.integers(len(other))].read_bytes()
        done.append("another file")
    target.write_bytes(data)
    return name, f"{name}, {target.name}, {'+'.join(done)}"


def attempt(case: Case, folder: Path, root: Path, expected: Any) -> tuple[str, str, str]:
    """Damage and read: 'fine', 'refused' or 'find', what happened, and where."""
    name, where = damage(case, folder, root)
    try:
        found = KINDS[name].read(folder)
    except CrediblyError:
        return "refused", "", where
    except BaseException as error:  # noqa: BLE001  # Rust panics are no Exceptions
        return "find", kind_of(error), where
    if expected is not None and found != expected:
        return "find", "other rows than with the good files, and no error", where
    return "fine", "", where


def read_some(argument: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fork: try some cases, one after the other."""
    warnings.simplefilter("ignore")
    cases = [Case("files", argument["seed"], number) for number in argument["numbers"]]
    root, expected = Path(argument["root"]), {}
    for name, kind in KINDS.items():
        if kind.exact:
            with tempfile.TemporaryDirectory() as place:
                shutil.copytree(good(root, name), place, dirs_exist_ok=True)
                expected[name] = kind.read(Path(place))
    limit_memory(MEMORY)
    for case in cases:
        yield {"begin": case.number}
        name = NAMES[case.number % len(NAMES)]
        with tempfile.TemporaryDirectory() as place:
            outcome, what, where = attempt(case, Path(place), root, expected.get(name))
        yield {"number": case.number, "outcome": outcome, "what": what, "where": where}


def _try_batch(forks: Forks, root: Path, seed: int, numbers: list[int], tally: Tally) -> None:
    """Try cases in a fork; where it dies or hangs, note it and go on behind."""
    while numbers:
        begun = numbers[0]
        asked = {"seed": seed, "numbers": numbers, "root": str(root)}
        for said in forks.call("fuzz.files:read_some", asked, silence=SILENCE):
            begun = said.get("begin", begun)
            if "outcome" in said:
                _note(tally, Case("files", seed, said["number"]), said)
                numbers = [number for number in numbers if number > said["number"]]
            elif "ended" in said and numbers:
                ended = said["ended"]
                what = "hangs" if ended == HANG else f"the process ended with {ended}"
                tally.find(Case("files", seed, begun), what, NAMES[begun % len(NAMES)])
                numbers = [number for number in numbers if number > begun]


def _heavy(number: int) -> bool:
    return KINDS[NAMES[number % len(NAMES)]].heavy


def _note(tally: Tally, case: Case, said: Mapping[str, Any]) -> None:
    tally.counts["files"] += 1
    if said["outcome"] == "find":
        tally.find(case, said["what"], said["where"])
    else:
        tally.counts[said["outcome"]] += 1


def run(plan: Plan, forks: Forks) -> Tally:
    """Damage files until the time is up; a case that is repeated may leave its files."""
    tally = Tally("files")
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        asked = {"root": place, "quick": plan.quick}
        ended = list(forks.call("fuzz.corpus:make_all", asked, silence=60.0))[-1]
        assert ended == {"ended": 0}, "good files cannot be read"  # noqa: S101
        if plan.only is not None and plan.keep is not None:
            plan.keep.mkdir(parents=True, exist_ok=True)
            tally.counts[damage(Case("files", plan.seed, plan.only), plan.keep, root)[1]] += 1
        last = -1
        for case in plan.cases("files"):
            if case.number > last:  # several at a time
                last = case.number if plan.only is not None else case.number + len(NAMES) - 1
                numbers = range(case.number, last + 1)
                chosen = [n for n in numbers if not (plan.quick and _heavy(n))]
                _try_batch(forks, root, plan.seed, chosen, tally)
    return tally
