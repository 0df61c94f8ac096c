"""Stages of a computation, each in a file named by the SHA-256 of everything it depends on.

The key of a stage is known before it is computed: it is made of its settings and the keys of the
stages it reads. Stages that are in the folder are not computed again. Several processes may share a
folder: the same key has the same content, files are written completely or not at all, and a stage
that one process computes the others wait for.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from credibly.errors import FileFormatError
from credibly.io.files import load_metadata, load_tensors, save_tensors
from credibly.io.run_folder import RunFolder


@dataclass(frozen=True)
class Content:
    """The result of a stage: tensors, and facts that JSON can hold."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


Compute = Callable[[], Content]


def canonical(value: object) -> str:
    """Write a value as JSON in a unique form."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class Stage:
    """One step, not yet computed.

    Attributes:
        name: the kind of step.
        label: a description for the printed line; not part of the key.
        version: raised when the code of the step changes its result.
        settings: everything that the result depends on, besides earlier stages.
        earlier: the stages it reads.
        compute: makes the content.
    """

    name: str
    label: str
    version: int
    settings: Mapping[str, Any]
    earlier: Sequence[Stage]
    compute: Compute = field(repr=False)

    @property
    def key(self) -> str:
        """The SHA-256 of everything that the content depends on."""
        parts = {
            "stage": self.name,
            "version": self.version,
            "settings": self.settings,
            "earlier": [stage.key for stage in self.earlier],
        }
        return hashlib.sha256(canonical(parts).encode()).hexdigest()


@dataclass
class Cache:
    """A folder of computed stages.

    Attributes:
        folder: of the files; made when the first stage is loaded.
        stamp: recorded with every stage that is computed here (versions, device).
        computed: names of the stages that this object has computed, in order.
        met: keys of the stages that were reported by a printed line.
    """

    folder: Path
    stamp: Mapping[str, str] = field(default_factory=dict)
    computed: list[str] = field(default_factory=list)
    met: set[str] = field(default_factory=set)
    _seconds_inside: float = 0.0
    _begun: bool = False

    def path(self, stage: Stage) -> Path:
        """Return the file of a stage."""
        return self.folder / f"{stage.name}-{stage.key[:32]}.safetensors"

    def load(self, stage: Stage) -> Content:
        """Read the content of a stage from its file, or compute it."""
        path, run = self.path(stage), RunFolder(self.folder, kind="credibly.paper")
        if not self._begun:  # which refuses folders of other work, and removes what a kill left
            run.begin({})
            self._begun = True
        with run.claim(path.stem, wait=True):  # no two wait for each other: stages are in order
            return self._read(stage, path) or self._compute(stage, path)

    def _read(self, stage: Stage, path: Path) -> Content | None:
        """Read the file of a stage; None if there is none, or a damaged one."""
        if not path.exists():
            return None
        try:
            content = read(path, stage.key)
        except (FileFormatError, ValueError, KeyError) as error:
            say(f"{path.name} is damaged ({error}): computing it again")
            return None
        if stage.key not in self.met:
            say(f"  cached  {stage.label}")
        self.met.add(stage.key)
        return content

    def _compute(self, stage: Stage, path: Path) -> Content:
        begin = time.perf_counter()
        inside = self._seconds_inside
        self._seconds_inside = 0.0
        content = stage.compute()
        whole = time.perf_counter() - begin
        seconds = whole - self._seconds_inside  # without the earlier stages it had computed
        self._seconds_inside = inside + whole
        facts = dict(content.facts)
        facts["cost"] = self._cost(stage, facts.pop("passes", 0.0), seconds)
        facts["stamps"] = self._stamps(stage)
        tensors = {
            name: value.detach().cpu().contiguous() for name, value in content.tensors.items()
        }
        # the same facts as when the file is read again
        done = Content(tensors, json.loads(json.dumps(facts)))
        write(path, stage.key, done)
        self.computed.append(stage.name)
        self.met.add(stage.key)
        say(f"{seconds:6.1f} s  {stage.label}")
        return done

    def _cost(self, stage: Stage, passes: float, seconds: float) -> dict[str, list[float]]:
        """Return seconds and passes of this stage and all earlier ones, each once."""
        found: dict[str, list[float]] = {}
        for earlier in stage.earlier:
            found |= self._facts(earlier)["cost"]
        return found | {stage.key[:16]: [round(seconds, 3), round(float(passes), 1)]}

    def _stamps(self, stage: Stage) -> list[dict[str, str]]:
        found = [dict(self.stamp)]
        for earlier in stage.earlier:
            found += self._facts(earlier)["stamps"]
        return [json.loads(text) for text in sorted({canonical(stamp) for stamp in found})]

    def _facts(self, stage: Stage) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(load_metadata(self.path(stage))["facts"])
        return facts


def say(text: str) -> None:
    """Print a line without buffering."""
    print(text, flush=True)


def read(path: Path, key: str) -> Content:
    """Read what `write` wrote under this key, and check every byte."""
    tensors, marks = load_tensors(path)
    if marks.get("key") != key:
        raise FileFormatError("it belongs to another key")
    if marks.get("sha256") != digest(tensors, marks["facts"]):
        raise FileFormatError("its bytes have changed")
    return Content(tensors, json.loads(marks["facts"]))


def write(path: Path, key: str, content: Content) -> None:
    """Write a stage completely or not at all."""
    facts = json.dumps(content.facts)
    metadata = {"key": key, "sha256": digest(content.tensors, facts), "facts": facts}
    save_tensors(content.tensors, path, metadata=metadata)


def digest(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """Return the SHA-256 of names, types, shapes and bytes."""
    total = hashlib.sha256(text.encode())
    for name, value in sorted(tensors.items()):
        total.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        total.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()
