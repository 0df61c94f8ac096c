"""Lists of Debian packages: short sentences with a section each, and what depends on what.

`apt-cache dumpavail > FILE` writes such a list, about 60,000 packages. Every record has fields such
as Package, Section, Description and Depends, and an empty line ends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

_WORD = re.compile(r"[a-z]+")
_EMPTY = re.compile(r"transitional|dummy|metapackage|meta-package")
_SAME = {"description-en": "description"}
_RELATION = re.compile(r"\s*([a-z0-9][a-z0-9+.\-]*)")


@dataclass(frozen=True, eq=False)
class Packages:
    """A list of packages; all lists have the same order.

    Attributes:
        names: without repetitions.
        sections: such as "games"; of "contrib/games" the last part.
        descriptions: one line each.
        depends: names of the packages that each one needs; of alternatives the first.
        sources: the source package that each was built from. Several packages may share one.
    """

    names: list[str]
    sections: list[str]
    descriptions: list[str]
    depends: list[list[str]]
    sources: list[str]

    def __len__(self) -> int:
        return len(self.names)


def read_packages(path: Path) -> Packages:
    """Read a list as `apt-cache dumpavail` prints it. Broken bytes become question marks."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return parse_packages(file)


def parse_packages(lines: Iterable[str]) -> Packages:
    """Make a list of its lines.

    Records without a name, section or description are left out, and so is all but the first record
    of a name.
    """
    found = Packages([], [], [], [], [])
    known: set[str] = set()
    for record in _records(lines):
        name, section, about = (record.get(k, "") for k in ("package", "section", "description"))
        if not (name and section and about) or name in known:
            continue
        known.add(name)
        found.names.append(name)
        found.sections.append(section.split("/")[-1])
        found.descriptions.append(about.splitlines()[0].strip())
        found.depends.append(_names(record.get("depends", "")))
        found.sources.append(record.get("source", name).split()[0])
    return found


def _records(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """The fields of each record, in lower case; continued lines stay lines of their field."""
    record: dict[str, str] = {}
    last = ""
    for raw in lines:
        line = raw.rstrip("\r\n")
        if not line.strip():
            if record:
                yield record
            record, last = {}, ""
        elif line[0] in " \t":
            if last:
                record[last] += "\n" + line.strip()
        else:
            key, colon, value = line.partition(":")
            last = _SAME.get(key.lower(), key.lower()) if colon else ""
            if last:
                record[last] = value.strip()
    if record:
        yield record


def _names(relations: str) -> list[str]:
    """Names of "a (>= 1), b | c, d:any": a, b and d."""
    found = (_RELATION.match(part) for part in relations.replace("\n", " ").split(","))
    return list(dict.fromkeys(match[1] for match in found if match))


def words_of(text: str) -> list[str]:
    """The words of a text: runs of letters a to z, in lower case."""
    return _WORD.findall(text.lower())


def rows_of(packages: Packages, sections: Iterable[str], most: int, seed: int) -> list[int]:
    """Rows of these sections in random order, at most so many of each.

    Every source package and every sentence comes once. Else the library and the data of one program
    would be trained on and tested. Packages that only point at others are left out. The rows are
    mixed at the end: large sections reach `most` early, so the first rows would hold more of them.
    """
    draw = np.random.default_rng(seed)
    left = dict.fromkeys(sections, most)
    rows: list[int] = []
    known: set[str | tuple[str, ...]] = set()
    for row in draw.permutation(len(packages)).tolist():
        words = tuple(words_of(packages.descriptions[row]))
        keys = {packages.sources[row], words}
        empty = len(words) < 2 or _EMPTY.search(packages.descriptions[row].lower())
        if left.get(packages.sections[row], 0) and not empty and not known & keys:
            left[packages.sections[row]] -= 1
            known |= keys
            rows.append(row)
    return [rows[k] for k in draw.permutation(len(rows))]


def sentences_of(packages: Packages, rows: list[int]) -> list[list[str]]:
    """The words of the descriptions of these rows."""
    return [words_of(packages.descriptions[row]) for row in rows]


def dropped(words: list[str], draw: np.random.Generator) -> list[str]:
    """A sentence without 30 % of its words, at least one; one word is left."""
    kept = len(words) - max(1, round(0.3 * len(words)))
    places = np.sort(draw.choice(len(words), max(1, kept), replace=False))
    return [words[k] for k in places]


def dependency_lines(
    packages: Packages, count: int, most: int, draw: np.random.Generator
) -> list[list[str]]:
    """Names of the packages that some package needs, `most` words, in the place of a sentence."""
    lines = [words_of(" ".join(names)) for names in packages.depends if len(names) >= 3]
    return [lines[k][:most] for k in draw.permutation(len(lines))[:count]]


def hashed(sentences: list[list[str]], columns: int) -> Tensor:
    """How often each word occurs (n, columns). The checksum of a word is its column."""
    counts = torch.zeros(len(sentences), columns)
    for row, words in enumerate(sentences):
        for word in words:
            counts[row, crc32(word.encode()) % columns] += 1
    return counts


def neighbour_means(packages: Packages, features: Tensor) -> Tensor:
    """Mean features of the packages that each one needs, and of those that need it.

    A package without neighbours has zeros.
    """
    number = {name: row for row, name in enumerate(packages.names)}
    pairs = [
        (row, number[name])
        for row, names in enumerate(packages.depends)
        for name in names
        if name in number and number[name] != row
    ]
    edges = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
    edges = torch.cat([edges, edges.flip(1)]).unique(dim=0)  # messages go both ways
    sums = torch.zeros_like(features).index_add(0, edges[:, 0], features[edges[:, 1]])
    degrees = edges[:, 0].bincount(minlength=len(packages)).clamp(min=1)
    return sums / degrees[:, None]


def made_up_packages(sections: Iterable[str], each: int, seed: int = 0) -> Packages:
    """A list in which every section has a few words of its own, for tests without a real one."""
    draw = np.random.default_rng(seed)
    names = list(sections)
    common = [_made_up_word(draw) for _ in range(40)]
    found = Packages([], [], [], [], [])
    for section in names:
        own = [_made_up_word(draw) for _ in range(12)]
        for k in range(each):
            words = [*draw.choice(own, 3), *draw.choice(common, draw.integers(2, 6))]
            found.names.append(f"{section}-{k}")
            found.sections.append(section)
            found.descriptions.append(" ".join(draw.permutation(words)))
            near = [f"{section}-{n}" for n in draw.integers(each, size=3) if n != k]
            found.depends.append([*near, f"{draw.choice(names)}-{draw.integers(each)}"])
            found.sources.append(f"{section}-{k}")
    return found


def _made_up_word(draw: np.random.Generator) -> str:
    return "".join(draw.choice(list("abcdefghijklmnopqrstuvwxyz"), 6))
