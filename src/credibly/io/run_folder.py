"""The folder of a long run: its settings, its finished parts, and a lock against other runs."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from credibly.errors import FileFormatError, OutputError
from credibly.io.files import TEMPORARY, read_json, whole_file, write_json, writing

CONTINUE = "Finished parts are kept: make room, then start the same run again to continue."

Same = Callable[[str, Any, Any], bool]
"""Whether the stored and the new value of a setting, given by name, mean the same."""


class RunFolder:
    """A manifest, finished parts and lock files. A run that was killed continues from them.

    Args:
        path: the folder; `create`, `lock` and `begin` make it.
        kind: the format that the manifest names.
        version: of the format.
        manifest: the file name of the manifest.
        parts: glob patterns of the names of parts; `clear` removes no other files.
        restart: how a user drops the finished parts, for error messages.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        kind: str = "credibly.run",
        version: int = 1,
        manifest: str = "manifest.json",
        parts: str | tuple[str, ...] = "*.safetensors",
        restart: str = "choose another folder",
    ) -> None:
        self.path = Path(path)
        self.manifest = self.path / manifest
        self._kind, self._version = kind, version
        self._patterns = (parts,) if isinstance(parts, str) else parts
        self._restart = restart

    def __str__(self) -> str:
        return str(self.path)

    def exists(self) -> bool:
        """Return whether the folder is there."""
        return self.path.is_dir()

    def is_begun(self) -> bool:
        """Return whether there is a manifest."""
        return self.manifest.exists()

    def manifest_bytes(self) -> bytes:
        """Return the manifest as it is written."""
        return self.manifest.read_bytes()

    def create(self) -> None:
        """Make the folder."""
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def lock(self, what: object = None, *, name: str = "lock") -> Iterator[None]:
        """Allow one run at a time: raise `OutputError` where another one works on `what`.

        The lock ends with the process, however that ends. Whoever holds it works alone, so
        temporary files are leftovers of a killed run and are removed.
        """
        with self._hold(name, timeout=0) as held:
            if not held:
                raise OutputError(
                    f"another run is working on {what or self.path}",
                    remedy="Wait for it, stop it, or choose another output.",
                )
            self._unlink(TEMPORARY)
            yield

    @contextmanager
    def claim(self, name: str, *, wait: bool = False) -> Iterator[bool]:
        """Reserve one piece of work; False if another process has it (with `wait`: never)."""
        with self._hold(f"{name}.lock", timeout=-1 if wait else 0) as held:
            yield held

    @contextmanager
    def _hold(self, name: str, *, timeout: float) -> Iterator[bool]:
        self.create()
        path = self.path / name
        lock = FileLock(path, timeout=timeout)
        with writing(path):
            try:
                lock.acquire()
                own = path.stat()
            except Timeout:  # an OSError, too
                own = None
        if own is None:
            yield False
            return
        try:
            yield True
        finally:
            # removed while still locked; filelock gives no lock on a file that was removed
            with suppress(OSError):
                if os.path.samestat(own, path.stat()):  # else it is the lock of the next run
                    path.unlink()
            lock.release()

    def begin(
        self,
        settings: Mapping[str, Any],
        make: Callable[[], Mapping[str, Any]] | None = None,
        *,
        same: Same | None = None,
    ) -> dict[str, Any]:
        """Return what the run's first start recorded, or record it now.

        Args:
            settings: everything that the parts depend on. A folder that was begun with other
                settings is refused, and every difference named.
            make: called at the first start only; gives values that are resolved once, such as an
                automatic gamma. They are recorded and returned at every start.
            same: compares a stored with a new setting; by default with ==.

        Returns:
            what `make` gave, as JSON gives it back. Of several processes that begin at the same
            time the first one to write wins.
        """
        own = as_json(settings)
        self._remove_abandoned()
        if not self.is_begun():
            marks = {"format": self._kind, "format_version": self._version}
            content = {"settings": own, "resolved": as_json(make() if make else {})}
            self._write_record({**marks, **content, "sha256": _digest(content)})
        stored = self.read()
        self._refuse_other(stored["settings"], own, same)
        return dict(stored["resolved"])

    def check(self, settings: Mapping[str, Any], *, same: Same | None = None) -> None:
        """Refuse a folder that was begun with other settings; nothing is written."""
        if self.is_begun():
            self._refuse_other(self.read()["settings"], as_json(settings), same)

    def read(self) -> dict[str, Any]:
        """Read the manifest: `settings` and `resolved`."""
        record = self._record()
        for name in ("settings", "resolved"):
            if not isinstance(record.get(name), dict):
                raise FileFormatError(f"{self.manifest}: the manifest has no {name!r}.")
        if not is_intact(record):
            raise FileFormatError(
                f"{self.manifest}: damaged, or changed by hand; its parts cannot be continued. "
                f"Restore it, or {self._restart}."
            )
        return record

    def part(self, name: str) -> Path:
        """Return the path of a part."""
        return self.path / name

    def has(self, name: str) -> bool:
        """Return whether a part is finished; parts are written completely or not at all."""
        return self.part(name).exists()

    def write(self, name: str) -> AbstractContextManager[Path]:
        """Give a name to write a part to, which appears under its own name once it is complete."""
        return whole_file(self.part(name), remedy=CONTINUE)

    def clear(self) -> None:
        """Remove the parts and the manifest, and nothing else."""
        for pattern in (TEMPORARY, *self._patterns, self.manifest.name):
            self._unlink(pattern)

    def remove(self) -> None:
        """Remove the parts, the manifest, and the folder if nothing of somebody else is in it."""
        self.clear()
        self.leave()

    def leave(self) -> None:
        """Remove the folder if nothing but the lock of this run is in it."""
        with suppress(OSError):
            if {path.name for path in self.path.iterdir()} <= {"lock"}:
                (self.path / "lock").unlink(missing_ok=True)
                self.path.rmdir()

    def _record(self) -> dict[str, Any]:
        return read_json(self.manifest, self._kind, self._version)

    def _write_record(self, record: Mapping[str, Any]) -> None:
        self.create()
        write_json(self.manifest, record, replace=False)

    def _remove_abandoned(self) -> None:
        """Remove unfinished files of processes that are gone; others may be at work."""
        for path in self.path.glob(TEMPORARY):
            process = path.name.removesuffix(".tmp").rpartition(".")[2].partition("-")[0]
            if not _is_running(int(process)):
                with suppress(OSError):
                    path.unlink(missing_ok=True)

    def _unlink(self, pattern: str) -> None:
        with writing(self.path):
            for path in self.path.glob(pattern):
                path.unlink(missing_ok=True)

    def _refuse_other(
        self, stored: Mapping[str, Any], new: Mapping[str, Any], same: Same | None
    ) -> None:
        same = same or (lambda _, old, new: bool(old == new))
        differences = [
            f"{name} was {_shorten(stored.get(name))} and is now {_shorten(new.get(name))}"
            for name in sorted({*stored, *new})
            if not same(name, stored.get(name), new.get(name))
        ]
        if differences:
            raise OutputError(
                f"{self} belongs to a run with other settings: {'; '.join(differences)}",
                remedy=f"Use the same settings to continue it, or {self._restart}.",
            )


def as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as JSON gives them back, so that stored and new ones compare equal."""
    return dict(json.loads(json.dumps(values)))


def is_intact(record: Mapping[str, Any]) -> bool:
    """Return whether a manifest is as it was written."""
    return bool(record.get("sha256", _digest(record)) == _digest(record))  # older ones have none


def _digest(content: Mapping[str, Any]) -> str:
    known = {name: content[name] for name in ("settings", "resolved")}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def _shorten(value: object) -> str:
    text = "not set" if value is None else str(value)
    if re.fullmatch("[0-9a-f]{64}", text):
        return text[:12]  # enough to tell one digest from another
    return text if len(text) <= 80 else f"{text[:60]}...{text[-12:]}"


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's, or not to be told on this system
        return True
    return True
