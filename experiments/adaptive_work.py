"""A folder of cells, and processes that fill it together.

    OUT/manifest.json   what is attacked, gamma and solver; a run with other settings is refused
    OUT/systems.json    scores and thresholds, from held-out images, computed once
    OUT/cells/*.json    one system, norm, attack and eps: a 0 or 1 for each image
    INPUTS/*.safetensors  perturbed inputs that several systems judge

A process locks the job it works on; the others take the next job. Locks end with their process, so
a killed run continues where it stopped.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import credibly as cr
from credibly.errors import InvalidArgumentError
from credibly.io.files import load_tensors, save_tensors, write_json
from credibly.io.fingerprints import digest_of_tensor
from credibly.io.run_folder import RunFolder, as_json
from experiments.adaptive_attacks import Job, Subject
from experiments.adaptive_inputs import Counted
from experiments.made_with import stamp

_PATIENCE = 1.0
"""Seconds between looks at jobs that others do."""

_TRIES = 20
"""How often a job that found the device's memory full is tried again."""


@dataclass(frozen=True)
class Folder:
    """Where results are stored.

    Attributes:
        out: cells and settings.
        inputs: perturbed inputs; they are large, and not needed for tables.
    """

    out: Path
    inputs: Path

    @property
    def run(self) -> RunFolder:
        """The manifest and the locks."""
        return RunFolder(self.out, kind="credibly.adaptive", parts="cells/*.json")

    def begin(
        self, settings: Mapping[str, Any], make: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return gamma and solver, made by the first run; refuse a folder of other settings."""
        for path in (self.out / "cells", self.inputs):
            path.mkdir(parents=True, exist_ok=True)
        with self.lock("manifest", wait=True):
            return self.run.begin(settings, make)

    def once(self, name: str, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Read a file, which the first process writes while the others wait."""
        path = self.out / name
        with self.lock(name, wait=True):
            if not path.exists():
                write_json(path, make())
        return read(path)

    def note(self, command: str) -> None:
        """Record the commands that filled the folder, each once."""
        path = self.out / "commands.json"
        with self.lock(path.name, wait=True):
            known = read(path)["commands"] if path.exists() else []
            if command not in known:
                write_json(path, {"commands": [*known, command]})

    def lock(self, name: str, *, wait: bool = False) -> AbstractContextManager[bool]:
        """Claim a job; gives False if another process has it."""
        return self.run.claim(_slug(name), wait=wait)

    def cell(self, job: Job, letter: str) -> Path:
        """Return the file of a cell."""
        name = "bare" if letter == "b" else letter  # file names may ignore case
        return self.out / "cells" / f"{name}-{_slug(_title(job))}.json"

    def kept(self, job: Job) -> Path:
        """Return the file of the inputs of a job."""
        return self.inputs / f"{_slug(_title(job))}.safetensors"

    def done(self, job: Job) -> bool:
        """Return whether every cell of a job is there; refuse cells of other settings."""
        found = [path for letter in job.systems if (path := self.cell(job, letter)).exists()]
        own = as_json(job.settings)
        for path in found:
            known = read(path)["settings"]
            if known != own:
                raise InvalidArgumentError(
                    "out",
                    expected=f"the settings of {path}: {known}",
                    got=str(own),
                    remedy="Continue with the same settings, or choose another folder.",
                )
        return len(found) == len(job.systems)


def read(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    return dict(json.loads(path.read_text("utf-8")))


def work(subject: Subject, todo: list[Job], folder: Folder) -> int:
    """Do the missing jobs, together with other processes; return how many this one did."""
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
                    line = "out of memory, will be tried again"
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
    """Return what is answered and wrong (n,), by system; all share gamma, solver and profiles."""
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
    """Do one job: make or read the inputs, judge them, write the cells."""
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
        "settings": as_json(job.settings),
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
        write_json(folder.cell(job, letter), {"system": letter, **facts, **bits})
    rates = " ".join(f"{k} {float(v.reshape(count, -1).any(0).double().mean()):.3f}"
                     for k, v in judged.items())  # fmt: skip
    return (f"{rates}; {facts['passes']:.0f} + {facts['passes to judge']:.0f} passes per image, "
            f"{facts['calls']} calls, {facts['seconds']:.1f} s")  # fmt: skip


def _possible(job: Job, folder: Folder, subject: Subject) -> bool:
    """Return whether the library is installed, or the inputs were made elsewhere."""
    if job.library is None or find_spec(job.library) is not None:
        return True
    if _kept(folder.kept(job), _key(job, subject)) is not None:
        return True
    print(f"{job.library} is not installed: skipping {_title(job)}", flush=True)
    return False


def _inputs(job: Job, folder: Folder, subject: Subject) -> Tensor:
    if not (job.shared or job.library):
        return job.find()
    path, key = folder.kept(job), _key(job, subject)
    known = _kept(path, key)
    if known is not None:
        return known.to(subject.x)
    found = job.find()
    save_tensors({key: found.contiguous().cpu()}, path, metadata={})
    return found


def _kept(path: Path, key: str) -> Tensor | None:
    """Read inputs; None if there are none, or those of another run."""
    return load_tensors(path)[0].get(key) if path.exists() else None


def _key(job: Job, subject: Subject) -> str:
    """Return a digest of everything that inputs depend on; several networks may share a folder."""
    parts = {
        "settings": job.settings, "network": subject.sha256, "gamma": job.gamma,
        "images": digest_of_tensor(subject.x), "labels": digest_of_tensor(subject.labels),
    }  # fmt: skip
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _spent(subject: Subject) -> tuple[float, int]:
    nets = [c.net for c in (subject.clf, subject.other) if c is not None]
    counted = [net for net in nets if isinstance(net, Counted)]
    return sum(net.passes for net in counted), sum(net.calls for net in counted)


def _title(job: Job) -> str:
    return f"{job.norm} {job.eps:g} {job.attack}"


def _order(job: Job) -> tuple[bool, bool, str]:
    """Sort clean first, then long jobs; the kinds are mixed, as some need memory and some time."""
    return job.attack != "clean", not job.early, sha256(_title(job).encode()).hexdigest()


def _slug(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9.]+", "-", name).strip("-")
