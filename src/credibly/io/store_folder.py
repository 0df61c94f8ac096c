"""The folder of a long run in a store: as `RunFolder`, with a lock that others can only look at."""

from __future__ import annotations

import fnmatch
import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from credibly.errors import CrediblyError, FileFormatError, OutputError
from credibly.io.files import check_format, json_text
from credibly.io.places import Place
from credibly.io.run_folder import RunFolder

HELD, RENEWED = 90.0, 20.0
"""Seconds for which a lock is believed that nobody renews, and how often its owner does."""

AT_ONCE = 16
"""Requests to a store that wait side by side."""

LOCK = "lock.json"


class StoreFolder(RunFolder):
    """The same in a store.

    Stores have no lock that ends with a process. The owner writes a file and renews it; another run
    is refused for as long as it is fresh. Two runs that begin in the same instant may both start:
    they then write the same bytes under the same names.
    """

    def __init__(self, place: Place, **settings: Any) -> None:
        RunFolder.__init__(self, str(place), **settings)  # whatever else a subclass is
        self.place = place

    def __str__(self) -> str:
        return str(self.place)

    def create(self) -> None:
        """Stores make folders by themselves."""

    def exists(self) -> bool:
        return self.place.is_folder()

    @contextmanager
    def lock(self, what: object = None, *, name: str = LOCK) -> Iterator[None]:
        """Refuse to work where another run is at work, as far as the store tells."""
        place, own = self.place / name, uuid.uuid4().hex
        age = self._age(place)
        if age is not None and age < HELD:
            raise OutputError(
                f"another run is working on {what or self.place}, or was {age:.0f} s ago",
                remedy=f"Wait for it, or stop it and start this {HELD:.0f} s later.",
            )
        content = json.dumps({"owner": own}).encode()
        place.write_whole(content)
        if place.read_whole() != content:
            raise OutputError(
                f"another run has just begun on {what or self.place}",
                remedy="Wait for it, or choose another output.",
            )
        stop = threading.Event()
        renewing = threading.Thread(target=_renew, args=(place, content, stop), daemon=True)
        renewing.start()
        try:
            yield
        finally:
            stop.set()
            renewing.join()
            with suppress(CrediblyError):
                if place.read_whole() == content:  # else it is the lock of another run
                    place.delete()

    def is_begun(self) -> bool:
        return (self.place / self.manifest.name).facts() is not None

    def clear(self) -> None:
        for pattern in (*self._patterns, self.manifest.name):  # the manifest last
            self._unlink(pattern)

    def leave(self) -> None:
        """There is no folder to remove; the lock goes with its owner."""

    def manifest_bytes(self) -> bytes:
        return (self.place / self.manifest.name).read_whole()

    def _record(self) -> dict[str, Any]:
        return json_at(self.place / self.manifest.name, self._kind, self._version)

    def _write_record(self, record: Mapping[str, Any]) -> None:
        (self.place / self.manifest.name).write_whole(json_text(record).encode())

    def _remove_abandoned(self) -> None:
        """Files appear in a store when they are whole."""

    def _unlink(self, pattern: str) -> None:
        if not self.exists():
            return
        names = [found.name for found in self.place.list()]
        matching = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda name: (self.place / name).delete(), matching))

    def _age(self, lock: Place) -> float | None:
        """Seconds since a lock was renewed, by the clock of the store."""
        found = lock.facts()
        if found is None:
            return None
        probe = self.place / f"clock-{uuid.uuid4().hex}.json"
        probe.write_whole(b"{}")
        now = probe.facts()
        probe.delete()
        return None if now is None else max(0.0, (now.changed - found.changed) / 1e9)


def _renew(place: Place, content: bytes, stop: threading.Event) -> None:
    while not stop.wait(RENEWED):
        with suppress(CrediblyError):  # the next one may succeed
            if place.read_whole() != content:  # it was late, and another run has begun
                return
            place.write_whole(content)


def json_at(place: Place, kind: str, version: int) -> dict[str, Any]:
    """Read a JSON file whose fields `format` and `format_version` are `kind` and `version`."""
    try:
        content = json.loads(place.read_whole())
    except ValueError as error:
        raise FileFormatError(f"{place}: not a JSON file ({error}).") from error
    if not isinstance(content, dict):
        raise FileFormatError(
            f"{place}: not a {kind!r} file; it is a JSON {type(content).__name__}."
        )
    check_format(str(place), content, kind, version)
    return content
