"""Work that writes files: what is done, what it leaves, and how to disturb it."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import nn

import credibly as cr
from credibly.data.sample import write_images
from fuzz.tally import kind_of

CLASSES = ("red", "green", "blue")
SOLVER = cr.solvers.LBFGS(steps=4)


@cache
def classifier() -> cr.Classifier:
    """A small network with fixed weights."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double().eval()
    return cr.Classifier(net, classes=CLASSES)


def inputs(rows: int = 23) -> np.ndarray[Any, Any]:
    """Inputs, three of which are not finite."""
    x = np.random.default_rng(0).normal(size=(rows, 4))
    x[5, 2], x[6:8] = np.nan, np.inf
    return x


@cache
def profile(gamma: float = 2.0) -> cr.Profile:
    """A profile of finite inputs."""
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(20, 4)))
    return cr.credibility(classifier(), x, gamma=gamma, solver=SOLVER)


def score(folder: Path, **settings: Any) -> None:
    """Score a file of 23 rows in three shards."""
    how = {"gamma": 2.0, "solver": SOLVER, "chunk_size": 4, "shard_size": 8, **settings}
    source = next(path for path in (folder / "x.csv", folder / "x.npy") if path.exists())
    cr.score(classifier(), source, folder / "out.parquet", **how)


def study(folder: Path) -> None:
    """Two small sets, and the result of both."""
    x = torch.from_numpy(inputs()[8:])
    labels = [k % 3 for k in range(len(x))]
    sets = {
        "clean": cr.study.InputSet(x, labels, "ordinary"),
        "far": cr.study.InputSet(x + 9, None, "outliers"),
    }
    found = cr.study.Study(clf=classifier(), gamma=2.0, solver=SOLVER).run(sets, folder / "study")
    cr.study.summarise(found, resamples=2).save(folder / "study")


def _save_x(folder: Path) -> None:
    np.save(folder / "x.npy", inputs())


def _save_csv(folder: Path) -> None:
    lines = ["a,b,c,d", *(",".join(map(repr, row)) for row in np.nan_to_num(inputs()).tolist())]
    (folder / "x.csv").write_text("\n".join(lines) + "\n")


def _scored(folder: Path) -> None:
    _save_x(folder)
    score(folder, gamma=7.0)


def _nothing(folder: Path) -> None:
    """Need nothing."""


@dataclass(frozen=True)
class Work:
    """Something that writes.

    Attributes:
        do: the work, in a folder; done twice it must leave the same.
        before: what is there before.
        old: makes a file that the work replaces.
        out: the name of the file that matters; it is the old one, the new one, or not there.
        resumes: whether a second start continues, and so tidies up after a kill.
    """

    do: Callable[[Path], None]
    out: str
    before: Callable[[Path], None] = _nothing
    old: Callable[[Path], None] | None = None
    resumes: bool = False


def _selective(gamma: float) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        rule = cr.OutlierFlag.fit(classifier(), profile(gamma), false_alarms=0.1)
        rule.save(folder / "rule.json")

    return save


def _saved(gamma: float) -> Callable[[Path], None]:
    return lambda folder: profile(gamma).save(folder / "profile.safetensors")


def _tabled(gamma: float) -> Callable[[Path], None]:
    return lambda folder: profile(gamma).to_parquet(folder / "profile.parquet")


WORK: Mapping[str, Work] = {
    "score": Work(score, "out.parquet", _save_x, resumes=True),
    "score a table, gamma='auto'": Work(
        lambda f: score(f, gamma="auto"), "out.parquet", _save_csv, resumes=True
    ),
    "score again": Work(
        lambda f: score(f, overwrite=True), "out.parquet", _save_x, _scored, resumes=True
    ),
    "study": Work(study, "study/result.json", resumes=True),
    "profile.save": Work(_saved(2.0), "profile.safetensors", old=_saved(3.0)),
    "to_parquet": Work(_tabled(2.0), "profile.parquet", old=_tabled(3.0)),
    "rule.save": Work(_selective(2.0), "rule.json", old=_selective(3.0)),
    "sample": Work(
        lambda f: write_images(f / "s.npz", images=3), "s.npz",
        old=lambda f: write_images(f / "s.npz", images=2),
    ),
}  # fmt: skip

QUICK = ("score", "study", "profile.save", "to_parquet")
"""What is tried where time is short."""

WRITING = ("open", "os.rename", "os.link", "os.mkdir", "fsync", "write")
"""Operations that a full disk can refuse."""


class Disturbance:
    """Counts operations on files below a folder, and strikes at one of them.

    Python tells of them through an audit hook, just before each; it does not tell of `fsync`, nor
    of what Arrow writes, so these are wrapped.
    """

    def __init__(self, folder: Path, at: int, strike: Callable[[], None], *, writing: bool) -> None:
        self.folder, self.at, self.strike, self.writing = str(folder.resolve()), at, strike, writing
        self.count, self.log = 0, list[str]()

    def install(self) -> None:
        """Begin; there is no end, so this is for forks."""
        fsync, write = os.fsync, pq.ParquetWriter.write_table

        def watched_fsync(*given: Any) -> None:
            self.note("fsync")
            fsync(*given)

        def watched_write(writer: Any, *given: Any, **how: Any) -> None:
            on_disk = writer.file_handle is not None  # else into memory
            if on_disk:
                self.note("write")
            write(writer, *given, **how)
            if on_disk and not self.writing:
                self.note("written")

        os.fsync = watched_fsync
        pq.ParquetWriter.write_table = watched_write
        sys.addaudithook(self._hook)

    def _hook(self, event: str, given: tuple[Any, ...]) -> None:
        if event == "open" or event.startswith(("os.", "fcntl.")):
            place = given[0] if given else None
            try:
                inside = os.path.abspath(os.fsdecode(place)).startswith(self.folder)  # noqa: PTH100
            except TypeError:  # a file descriptor
                inside = event.startswith("fcntl.") and not self.writing
            changes = event != "open" or _writes(given)
            if inside and (changes or not self.writing):
                self.note(event)

    def note(self, event: str) -> None:
        """Count an operation, and strike if it is its turn."""
        if self.writing and event not in WRITING:
            return
        self.count += 1
        self.log.append(event)
        if self.count == self.at:
            self.strike()


def _writes(given: tuple[Any, ...]) -> bool:
    mode, flags = given[1], given[2]
    by_flags = isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    return by_flags or (isinstance(mode, str) and any(sign in mode for sign in "wax+"))


def _full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _kill() -> None:
    os._exit(9)


def do(argument: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Do some work in a fork, perhaps disturbed; tell how it ended and how much there was to do."""
    warnings.simplefilter("ignore")
    folder, work = Path(argument["folder"]), WORK[argument["work"]]
    if argument.get("prepare"):
        work.before(folder)
        if work.old is not None:
            work.old(folder)
    disturbed = None
    if argument.get("kill") or argument.get("full"):
        at, writing = argument.get("kill") or argument["full"], not argument.get("kill")
        disturbed = Disturbance(folder, at, _full if writing else _kill, writing=writing)
        disturbed.install()
    if argument.get("bytes") is not None:  # no file may become larger, whoever writes it
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (argument["bytes"], resource.RLIM_INFINITY))
    error, text = None, ""
    try:
        if not argument.get("idle"):
            work.do(folder)
    except Exception as caught:  # noqa: BLE001  # which one is the question
        error, text = type(caught).__name__, kind_of(caught) + " | " + str(caught)
    if argument.get("bytes") is not None:  # the answer is written to a pipe
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    struck = disturbed is not None and disturbed.count >= disturbed.at
    log = [] if disturbed is None else disturbed.log
    yield {"error": error, "text": text, "struck": struck, "log": log}


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder below a folder."""
    return {
        path.relative_to(folder).as_posix(): _content(path) if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def _content(path: Path) -> bytes:
    """The bytes; the order of the metadata of safetensors, which is random, does not count."""
    data = path.read_bytes()
    if path.suffix != ".safetensors" or len(data) < 8:
        return data
    end = 8 + int.from_bytes(data[:8], "little")
    text = json.dumps(json.loads(data[8:end]), sort_keys=True).encode()
    return len(text).to_bytes(8, "little") + text + data[end:]
