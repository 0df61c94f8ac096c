"""Rows that are in several files: which of them hold which rows, and whether they have changed."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from credibly.io.fingerprints import digest_of_parts
from credibly.io.source import Source, Stamp, Where, naming, stamp_of

AT_ONCE = 16
"""Files of a store that are asked for at the same time."""

Item = TypeVar("Item")
Found = TypeVar("Found")


class FileSet(Source):
    """Files below a folder, and the row that each begins with; the last number is that of all."""

    _root: Where
    _names: Sequence[str]
    _starts: Sequence[int]

    def _where(self, number: int) -> Where:
        return self._root / self._names[number]

    def fingerprint(self) -> str:
        """Return the SHA-256 over the names, sizes and times of all files."""
        with naming(self.path):
            found = each(self._size_and_time, range(len(self._names)), afar=self.is_afar)
            return digest_of_parts(zip(self._names, found, strict=True))

    def _size_and_time(self, number: int) -> str:
        stamp = stamp_of(self._where(number))
        return str(tuple(stamp[-3:-1] if isinstance(self.path, Path) else stamp))

    def stamp(self, start: int = 0, stop: int | None = None) -> Stamp:
        """Return a digest of the stamp of each file that holds some of the rows."""
        numbers = range(len(self._names))[self.stamped(start, len(self) if stop is None else stop)]
        with naming(self.path):
            found = each(lambda k: stamp_of(self._where(k)), numbers, afar=self.is_afar)
            return array("q", (hash(tuple(stamp)) for stamp in found))

    def stamped(self, start: int, stop: int) -> slice:
        last = bisect_right(self._starts, max(start, stop - 1)) - 1
        return slice(bisect_right(self._starts, start) - 1, last + 1)

    def reads(self, path: Path) -> bool:
        own = (self._where(number) for number in range(len(self._names)))
        return any(isinstance(w, Path) and w.exists() and path.samefile(w) for w in own)


def each(call: Callable[[Item], Found], items: Iterable[Item], *, afar: bool) -> Iterator[Found]:
    """`call` of every item in order; several at a time where each waits for a store."""
    if not afar:
        yield from map(call, items)
        return
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="credibly-store") as pool:
        yield from pool.map(call, items)
