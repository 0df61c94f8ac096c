"""A folder of cells, and processes that fill it together.

    OUT/settings.json   what is attacked; a run with other settings is refused
    OUT/systems.json    gamma, scores and thresholds, from held-out images, made once
    OUT/cells/*.json    one system, norm, attack and eps: a 0 or 1 for each image
    INPUTS/*.safetensors  what attacks found that several systems judge

A process holds a lock on the piece of work it does; others take the next piece. The system drops
the locks of a process that dies, so that a killed run goes on where it stopped.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

import credibly as cr
from credibly.errors import InvalidArgumentError
from credibly.io.tensor_files import save_tensors
from experiments.adaptive_attacks import Job, Subject
from experiments.adaptive_inputs import Counted
from experiments.made_with import stamp

_PATIENCE = 1.0
"""Seconds between looks at work that others do."""

_TRIES = 20
"""How often a piece of work that found the device's memory full is tried again."""


@dataclass(frozen=True)
class Folder:
    """Where results lie.

    Attributes:
        out: cells and settings.
        inputs: perturbed inputs; they are large, and not needed for tables.
    """

    out: Path
    inputs: Path

    def prepare(self) -> None:
        """Make the folders."""
        for path in (self.out / "cells", self.out / "locks", self.inputs):
            path.mkdir(parents=True, exist_ok=True)

    def once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The content of a file, made by the first process that asks while the others wait."""
        path = self.out / name
        with self.lock(name, wait=True):
            if not path.exists():
                write(path, make())
        return dict(json.loads(path.read_text("utf-8")))

    def note(self, command: str) -> None:
        """Keep the commands that filled the folder, each once."""
        path = self.out / "commands.json"
        with self.lock(path.name, wait=True):
            known = json.loads(path.read_text("utf-8"))["commands"] if path.exists() else []
            if command not in known:
                write(path, {"commands": [*known, command]})

    def refuse_others(self, settings: Mapping[str, Any]) -> None:
        """Compare with the settings that the folder was begun with."""
        content = plain(settings)
        known = self.once("settings.json", lambda: content)
        differing = {k for k in {*known, *content} if known.get(k) != content.get(k)}
        if differing:
            raise _mixed(self.out, {k: known.get(k) for k in differing},
                         {k: content.get(k) for k in differing})  # fmt: skip

    @contextmanager
    def lock(self, name: str, *, wait: bool = False) -> Iterator[bool]:
        """Hold a piece of work; False where another process holds it."""
        with (self.out / "locks" / f"{_slug(name)}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True  # closing the file drops the lock

    def cell(self, job: Job, letter: str) -> Path:
        """The file of a cell."""
        # b and B are two systems also where file names do not tell them apart
        name = "bare" if letter == "b" else letter
        return self.out / "cells" / f"{name}-{_slug(_title(job))}.json"

    def kept(self, job: Job) -> Path:
        """The file of the inputs of a job."""
        return self.inputs / f"{_slug(_title(job))}.safetensors"

    def done(self, job: Job) -> bool:
        """Whether every cell of a job is there; cells made otherwise are refused."""
        found = [path for letter in job.systems if (path := self.cell(job, letter)).exists()]
        for path in found:
            known = json.loads(path.read_text("utf-8"))["settings"]
            if known != plain(job.settings):
                raise _mixed(path, known, plain(job.settings))
        return len(found) == len(job.systems)


def work(subject: Subject, todo: list[Job], folder: Folder) -> int:
    """Do what is missing, together with other processes; how many jobs this one did."""
    begin, mine, failures = time.perf_counter(), 0, 0
    pending = sorted((job for job in todo if _possible(job, folder, subject)), key=_order)
    while pending:
        left = []
        for job in pending:
            if folder.done(job):
                continue
            with folder.lock(_title(job) + job.systems) as held:
                if not held or folder.done(job):
                    left.append(job)
                    continue
                try:
                    line = _do(subject, job, folder)
                except torch.cuda.OutOfMemoryError:
                    failures += 1
                    if failures > _TRIES:
                        raise
                    left.append(job)
                    line = "no memory left, tried again later"
                else:
                    mine += 1
                if subject.x.is_cuda:
                    torch.cuda.empty_cache()  # others share the device
            print(f"{time.perf_counter() - begin:7.0f} s  {_title(job)}: {line}", flush=True)
        if len(left) == len(pending):
            time.sleep(_PATIENCE)
        pending = left
    return mine


def successes(
    systems: Mapping[str, cr.attacks.System], clf: cr.Classifier, x: Tensor, labels: Tensor
) -> dict[str, Tensor]:
    """Answered and wrong (n,), by system. Profiles are solved once: gamma and solver are one."""
    found = {k: s.judge(clf, x, labels).success for k, s in systems.items() if not s.solves}
    solving = {k: s for k, s in systems.items() if s.solves}
    if solving:
        profile = next(iter(solving.values())).profile(clf, x)
        for letter, system in solving.items():
            success = system.margin(profile, labels) < 0
            if system.score is not None and system.threshold is not None:
                success &= system.score(profile).double() >= system.threshold
            found[letter] = success
    return found


def _do(subject: Subject, job: Job, folder: Folder) -> str:
    """One job: make or read the inputs, judge, write the cells."""
    start, (passes, calls) = time.perf_counter(), _spent(subject)
    candidates = _inputs(job, folder, subject)
    made = _spent(subject)[0]
    systems = {k: subject.systems[k] for k in job.systems}
    count = len(candidates)
    judged = successes(
        systems, subject.clf, candidates.flatten(0, 1), subject.labels.repeat(count)
    )  # fmt: skip
    spent = _spent(subject)
    shift = (candidates - subject.x).flatten(2).double()
    facts = {
        "attack": job.attack, "norm": job.norm, "eps": job.eps,
        "settings": plain(job.settings),
        "seconds": round(time.perf_counter() - start, 2),
        "passes": round((made - passes) / len(subject.x), 1),
        "passes to judge": round((spent[0] - made) / len(subject.x), 1),
        "calls": spent[1] - calls,
        "made_with": stamp(str(subject.x.device)),
    }  # fmt: skip
    if job.norm == "none":
        sizes = {"l2": shift.norm(dim=2), "linf": shift.abs().amax(2)}
        facts["sizes"] = {name: values[0].tolist() for name, values in sizes.items()}
    for letter, success in judged.items():
        each = success.reshape(count, -1)
        bits = {"success": each.any(0).int().tolist(), "candidates": each.int().tolist()}
        write(folder.cell(job, letter), {"system": letter, **facts, **bits})
    rates = " ".join(f"{k} {float(v.reshape(count, -1).any(0).double().mean()):.3f}"
                     for k, v in judged.items())  # fmt: skip
    return (f"{rates}; {facts['passes']:.0f} + {facts['passes to judge']:.0f} passes an image, "
            f"{facts['calls']} calls, {facts['seconds']:.1f} s")  # fmt: skip


def _possible(job: Job, folder: Folder, subject: Subject) -> bool:
    """Whether the library is there, or the inputs, which may have been made elsewhere."""
    if job.library is None or find_spec(job.library) is not None:
        return True
    if _kept(folder.kept(job), _key(job, subject)) is not None:
        return True
    print(f"{job.library} is not installed: {_title(job)} is left out", flush=True)
    return False


def _inputs(job: Job, folder: Folder, subject: Subject) -> Tensor:
    if not (job.shared or job.library):
        return job.find()
    path, key = folder.kept(job), _key(job, subject)
    known = _kept(path, key)
    if known is not None:
        return known.to(subject.x)
    found = job.find()
    partial = path.with_suffix(f".{os.getpid()}")
    save_tensors({key: found.contiguous().cpu()}, partial, metadata={})
    partial.replace(path)
    return found


def _kept(path: Path, key: str) -> Tensor | None:
    """Inputs in a file; None where there are none, or those of another run."""
    if not path.exists():
        return None
    with safe_open(path, "pt") as file:
        return file.get_tensor(key) if key in file.keys() else None  # noqa: SIM118


def _key(job: Job, subject: Subject) -> str:
    """Everything that inputs depend on; folders of several networks may share them."""
    parts = {
        "settings": job.settings, "network": subject.sha256, "gamma": job.gamma,
        "images": digest([subject.x, subject.labels]),
    }  # fmt: skip
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def digest(tensors: list[Tensor]) -> str:
    """A short name of the values of tensors."""
    total = sha256()
    for tensor in tensors:
        total.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()[:16]


def plain(content: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON gives it back."""
    return dict(json.loads(json.dumps(content)))


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a whole file or none."""
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(content) + "\n", encoding="utf-8")
    partial.replace(path)


def _spent(subject: Subject) -> tuple[float, int]:
    nets = [c.net for c in (subject.clf, subject.other) if c is not None]
    counted = [net for net in nets if isinstance(net, Counted)]
    return sum(net.passes for net in counted), sum(net.calls for net in counted)


def _title(job: Job) -> str:
    return f"{job.norm} {job.eps:g} {job.attack}"


def _order(job: Job) -> tuple[bool, bool, str]:
    """Clean first, long ones next; kinds are mixed, because some want memory and some time."""
    return job.attack != "clean", not job.early, sha256(_title(job).encode()).hexdigest()


def _slug(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9.]+", "-", name).strip("-")


def _mixed(path: Path, known: object, got: object) -> InvalidArgumentError:
    return InvalidArgumentError(
        "out",
        expected=f"the settings that {path} was made with: {known}",
        got=str(got),
        remedy="Go on with the same settings, or choose another folder.",
    )
