"""Stages of a computation, each in a file named by the SHA-256 of all it depends on.

A stage knows its key before it is computed: its settings and the keys of the stages it reads.
Whatever is in the folder is taken from there, so several processes may share a folder: the same
key has the same content, and files appear whole (written aside, then renamed).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from credibly.errors import FileFormatError
from credibly.io.tensor_files import save_tensors


@dataclass(frozen=True)
class Content:
    """What a stage gives: tensors, and facts that JSON can hold."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


Compute = Callable[[], Content]


def canonical(value: object) -> str:
    """JSON with one spelling only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class Stage:
    """One step, not yet computed.

    Attributes:
        name: which kind of step.
        label: in words, for the line that is printed; no part of the key.
        version: raised when the code of the step changes its result.
        settings: all that the result depends on, besides earlier stages.
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
        """The SHA-256 of what the content depends on."""
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
        folder: where the files are; it is made when the first is written.
        stamp: recorded with every stage that is computed here (versions, device).
        computed: names of the stages that this object has computed, in order.
        met: keys of the stages that a line was printed for.
    """

    folder: Path
    stamp: Mapping[str, str] = field(default_factory=dict)
    computed: list[str] = field(default_factory=list)
    met: set[str] = field(default_factory=set)
    _seconds_inside: float = 0.0

    def path(self, stage: Stage) -> Path:
        """The file of a stage."""
        return self.folder / f"{stage.name}-{stage.key[:32]}.safetensors"

    def load(self, stage: Stage) -> Content:
        """The content of a stage, from its file or computed now."""
        path = self.path(stage)
        if path.exists():
            try:
                content = read(path, stage.key)
            except (FileFormatError, SafetensorError, OSError, ValueError, KeyError) as error:
                say(f"{path.name} is damaged ({error}): computing it again")
            else:
                if stage.key not in self.met:
                    say(f"  cached  {stage.label}")
                self.met.add(stage.key)
                return content
        return self._compute(stage, path)

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
        # numbers look the same now and when they are read again
        done = Content(tensors, json.loads(json.dumps(facts)))
        write(path, stage.key, done)
        self.computed.append(stage.name)
        self.met.add(stage.key)
        say(f"{seconds:6.1f} s  {stage.label}")
        return done

    def _cost(self, stage: Stage, passes: float, seconds: float) -> dict[str, list[float]]:
        """Seconds and passes of this stage and all before it, each once."""
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
        with safe_open(self.path(stage), "pt") as file:
            facts: dict[str, Any] = json.loads(file.metadata()["facts"])
        return facts


def say(text: str) -> None:
    """One line, at once."""
    print(text, flush=True)


def read(path: Path, key: str) -> Content:
    """What `write` wrote under this key, every byte checked."""
    with safe_open(path, "pt") as file:
        facts = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if facts.get("key") != key:
        raise FileFormatError("it belongs to another key")
    if facts.get("sha256") != digest(tensors, facts["facts"]):
        raise FileFormatError("its bytes are not those that were written")
    return Content(tensors, json.loads(facts["facts"]))


def write(path: Path, key: str, content: Content) -> None:
    """Write a whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = json.dumps(content.facts)
    metadata = {"key": key, "sha256": digest(content.tensors, facts), "facts": facts}
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    save_tensors(content.tensors, aside, metadata=metadata)
    aside.replace(path)


def digest(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """The SHA-256 of names, types, shapes and bytes."""
    total = hashlib.sha256(text.encode())
    for name, value in sorted(tensors.items()):
        total.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        total.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()
