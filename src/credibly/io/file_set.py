"""Rows that are in several files: which of them hold which rows, and whether they have changed."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from credibly.io.fingerprints import digest_of_file, digest_of_parts
from credibly.io.source import Source, Stamp, Where, naming, stamp_of

AT_ONCE = 16
"""Files of a store that are asked for at the same time."""

READ_AGAIN = 1 << 34
"""Bytes of files on a disk, in all, up to which their contents are compared."""

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
        """Return the SHA-256 over the names and contents of all files.

        Where they are many bytes, or in a store, over their sizes and times instead.
        """
        with naming(self.path):
            stamps = list(each(stamp_of, self._places(), afar=self.is_afar))
            found: Iterator[str]
            if not isinstance(self.path, Path):
                found = (str(tuple(stamp)) for stamp in stamps)
            elif sum(size for *_, size, _, _ in stamps) <= READ_AGAIN:
                found = map(digest_of_file, map(str, self._places()))
            else:
                found = (str(tuple(stamp[-3:-1])) for stamp in stamps)
            return digest_of_parts(zip(self._names, found, strict=True))

    def stamp(self, start: int = 0, stop: int | None = None) -> Stamp:
        """Return a digest of the stamp of each file that holds some of the rows."""
        numbers = range(len(self._names))[self.stamped(start, len(self) if stop is None else stop)]
        with naming(self.path):
            found = each(lambda k: stamp_of(self._where(k)), numbers, afar=self.is_afar)
            return array("q", (hash(tuple(stamp)) for stamp in found))

    def stamped(self, start: int, stop: int) -> slice:
        last = bisect_right(self._starts, max(start, stop - 1)) - 1
        return slice(bisect_right(self._starts, start) - 1, last + 1)

    def _places(self) -> Iterator[Where]:
        return map(self._where, range(len(self._names)))


def each(call: Callable[[Item], Found], items: Iterable[Item], *, afar: bool) -> Iterator[Found]:
    """`call` of every item in order; several at a time where each waits for a store."""
    if not afar:
        yield from map(call, items)
        return
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="credibly-store") as pool:
        yield from pool.map(call, items)
