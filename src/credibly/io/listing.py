"""Which files a folder or a glob means: listed once, in little memory, kept for other readers."""

from __future__ import annotations

import glob
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import torch
from torch import Tensor

from credibly.errors import FileFormatError
from credibly.io.files import check_format, load_tensors, save_tensors
from credibly.io.places import FileFacts
from credibly.io.source import Where
from credibly.types import CPU

MAGIC = re.compile(r"[*?\[]")
"""What makes a name a pattern."""

_KIND, _VERSION = "credibly.listing", "1"


class Names:
    """Many short texts, in sorted order, in one block of memory: a million take some 40 MB."""

    def __init__(self, content: bytes, ends: array[int]) -> None:
        self.content, self.ends = content, ends

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """From texts, which may be names of files that are not UTF-8."""
        parts = [os.fsencode(name) for name in names]
        return cls(b"".join(parts), array("q", accumulate(map(len, parts))))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: int) -> str:
        first = self.ends[number - 1] if number else 0
        return os.fsdecode(self.content[first : self.ends[number]])

    def __iter__(self) -> Iterator[str]:
        return map(self.__getitem__, range(len(self)))


def printable(name: str) -> str:
    """Return a name that is text; bytes that are not UTF-8 are written in hex."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


@dataclass(frozen=True, eq=False)
class Listing:
    """Files of a folder, by name relative to it.

    Attributes:
        names: sorted, with slashes.
        sizes: in bytes.
        times: of the last change, in nanoseconds.
    """

    names: Names
    sizes: array[int]
    times: array[int]

    @classmethod
    def of(cls, files: Iterable[FileFacts]) -> Listing:
        """From the files in any order."""
        names, sizes, times = [], array("q"), array("q")
        for file in files:  # not kept as objects: there may be millions
            names.append(file.name)
            sizes.append(file.size)
            times.append(file.changed)
        order = sorted(range(len(names)), key=names.__getitem__)
        moved = (array("q", map(numbers.__getitem__, order)) for numbers in (sizes, times))
        return cls(Names.of(map(names.__getitem__, order)), *moved)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[FileFacts]:
        return map(FileFacts, self.names, self.sizes, self.times)

    def only(self, keep: Callable[[str], bool]) -> Listing:
        """Those whose name is kept."""
        return Listing.of(file for file in self if keep(file.name))

    def save(self, path: Path) -> None:
        """Write it, so that another process need not list the folder again."""
        tensors = {
            "content": torch.frombuffer(bytearray(self.names.content), dtype=torch.uint8),
            **{k: as_tensor(v) for k, v in self._numbers().items()},
        }
        save_tensors(tensors, path, metadata={"format": _KIND, "format_version": _VERSION})

    def _numbers(self) -> dict[str, array[int]]:
        return {"ends": self.names.ends, "sizes": self.sizes, "times": self.times}

    @classmethod
    def load(cls, path: Path) -> Listing:
        """Read what `save` wrote."""
        tensors, marks = load_tensors(path)
        check_format(path, marks, _KIND, _VERSION)
        ends, sizes, times = (
            array("q", tensors[k].numpy().tobytes()) for k in ("ends", "sizes", "times")
        )
        return cls(Names(tensors["content"].numpy().tobytes(), ends), sizes, times)


def as_tensor(numbers: array[int]) -> Tensor:
    """Whole numbers as a tensor, to be written."""
    return torch.tensor(numbers, dtype=torch.int64, device=CPU)


def is_glob(path: Where) -> bool:
    """Whether a name is a pattern; a file or folder of that very name is none."""
    return bool(MAGIC.search(str(path))) and not path.exists()


def list_folder(folder: Where) -> Iterator[FileFacts]:
    """List what is below a folder, at any depth, but for names that begin with a dot."""
    if isinstance(folder, Path):
        yield from _walk(str(folder), "")
        return
    for file in folder.list():
        if not file.name.rpartition("/")[2].startswith("."):
            yield file


def _walk(folder: str, prefix: str) -> Iterator[FileFacts]:
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        if not prefix:
            raise FileFormatError(f"{folder}: cannot be read ({error.strerror}).") from error
        return  # as a file that cannot be read costs only itself
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, f"{prefix}{entry.name}/")
        if not entry.name.startswith("."):
            yield _facts(entry, prefix)


def _facts(entry: os.DirEntry[str], prefix: str) -> FileFacts:
    name = f"{prefix}{entry.name}"
    try:
        found = entry.stat()
    except OSError:  # a link to nothing
        return FileFacts(name, -1, 0)
    return FileFacts(name, found.st_size, found.st_mtime_ns)


def root_of(pattern: Where) -> tuple[Where, re.Pattern[str]]:
    """Return the folder in which a pattern begins, and what names below it must fit."""
    parts, root = [], pattern
    while MAGIC.search(str(root)):
        parts.append(root.name)
        root = root.parent
    return root, _expression("/".join(reversed(parts)))


def expand(pattern: Where) -> tuple[Where, list[FileFacts]]:
    """Return the folder in which a pattern begins, and the files that it matches."""
    root, fits = root_of(pattern)
    if not (isinstance(pattern, Path) and isinstance(root, Path)):
        return root, [file for file in list_folder(root) if fits.fullmatch(file.name)]
    inner, found = str(pattern.relative_to(root)), []
    for name in set(glob.iglob(inner, root_dir=root, recursive=True)):  # noqa: PTH207  # hides dots
        path = root / name
        if path.is_file():
            facts = path.stat()
            found.append(FileFacts(Path(name).as_posix(), facts.st_size, facts.st_mtime_ns))
    return root, found


def _expression(pattern: str) -> re.Pattern[str]:
    """The regular expression of a pattern, as `glob` reads it: `**` alone is any folders."""
    *folders, last = pattern.split("/")
    inner = "".join(_ANY_FOLDERS if part == "**" else f"{_of_part(part)}/" for part in folders)
    ending = rf"{_ANY_FOLDERS}(?!\.)[^/]+" if last == "**" else _of_part(last)
    return re.compile(inner + ending, re.DOTALL)


_ANY_FOLDERS = r"(?:(?!\.)[^/]+/)*"


def _of_part(pattern: str) -> str:
    """The expression of a name between slashes; only a dot fits names that begin with one."""
    found, n = "" if pattern.startswith(".") else r"(?!\.)", 0
    while n < len(pattern):
        if pattern[n] == "[" and "]" in pattern[n + 2 :]:
            end = pattern.index("]", n + 2)
            inner = pattern[n + 1 : end].replace("\\", r"\\")
            found += f"[{'^' + inner[1:] if inner.startswith('!') else inner}]"
            n = end + 1
        else:
            found += {"*": "[^/]*", "?": "[^/]"}.get(pattern[n], re.escape(pattern[n]))
            n += 1
    return found
