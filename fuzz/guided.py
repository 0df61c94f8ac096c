"""Damage that is led by coverage: `python -m fuzz.guided npz --seconds 60`.

atheris, which must be installed, watches which lines of the readers a file reaches, and changes
those files further that reach new ones. Everything else is as in the part `files`: an error of the
package or an answer. It works in a process of its own, which it may crash.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzz.server import python_path
from fuzz.tally import ROOT, kind_of, say

FORMATS = (
    "npy", "bytes.npy", "npz", "safetensors", "csv", "csv with ids", "labels.npy", "labels.npz",
    "labels.csv", "rules", "profile",
)  # fmt: skip
"""Kinds of `fuzz.corpus` of one file, which are read by Python code."""

WATCHED = "credibly", "zipfile"
"""Modules whose lines count; those that are loaded already do not."""

SILENCE, MEMORY = 10, 2048
"""Seconds and MB, libraries included, that one file may take."""

MISSING = (
    "fuzz.guided needs atheris, which is not installed: pip install atheris (on Linux; it is not "
    "among the extras, since nothing else needs it). `python -m fuzz --part files` does without."
)


class Reader:
    """Reads what atheris makes, and keeps the first file of each kind of find."""

    def __init__(self, name: str, folder: Path, keep: Path) -> None:
        from fuzz.corpus import KINDS

        self.kind, self.folder, self.keep, self.finds = KINDS[name], folder, keep, set[str]()
        self.seeds = folder / "seeds"
        self.seeds.mkdir()
        self.kind.make(self.seeds)
        place = folder / "one"
        place.mkdir()
        self.file = place / min(path.name for path in self.seeds.iterdir())

    def read(self, data: bytes) -> None:
        """Read a file with this content; only errors of the package pass."""
        from credibly.errors import CrediblyError

        self.file.write_bytes(data)
        try:
            self.kind.read(self.file.parent)
        except CrediblyError:
            return

    def look(self, data: bytes) -> None:
        """Read a file, and note other errors; the search goes on."""
        try:
            self.read(data)
        except BaseException as error:  # noqa: BLE001  # Rust panics are no Exceptions
            what = kind_of(error)
            place = what.partition(":")[0]  # texts differ from file to file
            if isinstance(error, KeyboardInterrupt) or place in self.finds:
                return
            self.finds.add(place)
            path = self.keep / f"find-{hashlib.sha256(data).hexdigest()[:12]}"
            path.write_bytes(data)
            say(f"  find: {what}, {path}")

    def mutate(self, data: bytes, longest: int, seed: int, blindly: Callable[..., bytes]) -> bytes:
        """Damage that knows the format where the file still has it, or that of atheris."""
        import numpy as np

        random = np.random.default_rng(seed)
        own = self.kind.own.get(self.file.suffix)
        if own is not None and random.random() < 0.5:
            try:
                changed = own(random, data)
            except Exception:  # noqa: BLE001  # it expects a good file
                return blindly(data, longest)
            return changed[:longest]
        return blindly(data, longest)


def search(name: str, keep: Path, flags: list[str]) -> None:
    """In the process of atheris: look until the time is up; it never comes back."""
    import atheris

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        with atheris.instrument_imports(include=list(WATCHED)):
            reader = Reader(name, Path(folder), keep)
            for path in sorted(reader.seeds.iterdir()):  # which loads all that is loaded on demand
                reader.read(path.read_bytes())

        def mutate(data: bytes, longest: int, seed: int) -> bytes:
            return reader.mutate(data, longest, seed, atheris.Mutate)

        atheris.Setup(
            ["fuzz.guided", *flags, str(reader.seeds)], reader.look, custom_mutator=mutate
        )
        atheris.Fuzz()


def repeat(name: str, path: Path) -> int:
    """Read one file again, such as a find; an error that is not of the package is raised."""
    with tempfile.TemporaryDirectory() as folder:
        Reader(name, Path(folder), Path(folder)).read(path.read_bytes())
    say("an answer, or an error of the package")
    return 0


def run(name: str, seconds: int, seed: int, keep: Path) -> int:
    """Start the search, pass on what it says, and tell how many finds there are."""
    keep.mkdir(parents=True, exist_ok=True)
    before = set(keep.iterdir())
    flags = [
        f"-max_total_time={seconds}", f"-seed={seed + 1}", f"-timeout={SILENCE}", "-max_len=65536",
        f"-rss_limit_mb={MEMORY}", f"-artifact_prefix={keep}/", "-print_final_stats=1",
    ]  # fmt: skip
    command = [sys.executable, "-m", "fuzz.guided", name, "--keep", str(keep), "--search", *flags]
    ended = subprocess.run(  # noqa: S603  # this very file
        command, check=False, stderr=subprocess.PIPE, text=True, errors="replace", cwd=ROOT,
        env={**os.environ, "PYTHONPATH": python_path()},
    )  # fmt: skip
    tried = [line for line in ended.stderr.splitlines() if "number_of_executed_units" in line]
    covered = [line for line in ended.stderr.splitlines() if " cov: " in line]
    found = sorted(path.name for path in set(keep.iterdir()) - before)
    say(f"{name}: {len(found)} finds; {' '.join(tried)}; {covered[-1].strip() if covered else ''}")
    if ended.returncode or not tried:
        say("\n".join(ended.stderr.splitlines()[-20:]))
    for path in found:
        say(f"  python -m fuzz.guided '{name}' --repeat {keep / path}")
    return 1 if found or ended.returncode or not tried else 0


def main(arguments: list[str] | None = None) -> int:
    """Search, or repeat a find; the exit status is 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.guided", description=__doc__)
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="another seed tries other files")
    parser.add_argument("--keep", type=Path, default=Path(".cache/fuzz"), help="folder for finds")
    parser.add_argument("--repeat", metavar="FILE", type=Path, help="only read this file")
    parser.add_argument("--search", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given: Any = parser.parse_args(arguments)
    if given.repeat is not None:
        return repeat(given.format, given.repeat)
    if importlib.util.find_spec("atheris") is None:
        say(MISSING)
        return 2
    if given.search is not None:
        search(given.format, given.keep, given.search)
    return run(given.format, given.seconds, given.seed, given.keep.resolve())


if __name__ == "__main__":
    sys.exit(main())
