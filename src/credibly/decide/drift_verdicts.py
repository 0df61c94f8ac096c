"""Files of verdicts as streams: what a `DriftWatch` needs of them, without the model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from credibly._extras import require_table_extra
from credibly._validation import require, whole
from credibly.decide.drift_bets import Numbers
from credibly.decide.drift_engine import Integers
from credibly.errors import FileFormatError, InvalidArgumentError
from credibly.io.files import read_json
from credibly.io.fingerprints import in_words

FORMAT = "credibly.verdicts"
LIST, _PART = "_manifest.json", re.compile(r"part-\d{6,}\.parquet")
"""Of a folder that `credibly judge --folder` wrote: the list of its files, and their names."""

ROWS = 65_536
"""Rows read at a time."""


@dataclass(frozen=True)
class Verdicts:
    """A file, or a folder of files, that `credibly judge` wrote.

    Attributes:
        path: of the file or the folder.
        files: in the order of the stream.
        judge: digest of the Judge.
        ordinary: inputs that the Judge was fitted on.
        classes: how many there are.
        names: of the classes, if known.
        rows: in all files.
    """

    path: Path
    files: tuple[Path, ...]
    judge: str
    ordinary: int
    classes: int
    names: tuple[str, ...] | None
    rows: int

    def parts(self) -> Iterator[tuple[Numbers, Integers]]:
        """P-values (n,), NaN where there is none, and predicted classes (n,), -1 likewise."""
        for file in self.files:
            with _reading(file) as found:
                for batch in found.iter_batches(ROWS, columns=["p_ordinary", "predicted"]):
                    p = batch.column(0).to_numpy(zero_copy_only=False).astype(np.float64)
                    yield p, self._numbers(file, batch.column(1))

    def _numbers(self, file: Path, words: Any) -> Integers:
        coded = words.dictionary_encode()
        known = [self._number(file, name) for name in coded.dictionary.to_pylist()]
        places = coded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
        found: Integers = np.array([*known, -1], np.int64)[places]
        return found

    def _number(self, file: Path, name: str) -> int:
        names = self.names
        if names is not None and name in names:
            return names.index(name)
        if names is None and name.isdecimal() and int(name) < self.classes:
            return int(name)
        raise FileFormatError(
            f"{file}: the class {name!r} is not one of the Judge's {self.classes}"
            + ("; the file does not name them: judge again with this version." * (names is None))
        )

    def check_judge(self, argument: str, judge: str, whose: str) -> None:
        """Refuse verdicts of another Judge."""
        require(
            self.judge == judge,
            argument,
            f"verdicts by the Judge of {whose}, {in_words(judge)}",
            f"those in {self.path} by {in_words(self.judge)}",
            "Judge both files with the same Judge.",
        )


def open_verdicts(path: str | Path) -> Verdicts:
    """Read what a file, or every Parquet file in a folder by name, says of its Judge."""
    place = Path(path)
    files = files_of(place)
    heads = [_head(file) for file in files]
    first = heads[0][0]
    if any(head != first for head, _ in heads):
        raise FileFormatError(f"{place}: its files are not all by the same Judge.")
    judge, ordinary, classes, names = first
    return Verdicts(
        place, tuple(files), judge, ordinary, classes, names, sum(rows for _, rows in heads)
    )


def files_of(place: Path) -> list[Path]:
    """A file, or every Parquet file in a folder by name; none that a run listed may be missing."""
    files = sorted(place.glob("*.parquet")) if place.is_dir() else [place]
    if not files or not files[0].is_file():
        raise FileFormatError(f"{place}: no such file. Write one with: credibly judge ... --out.")
    here, listed, gone = {file.name for file in files}, place / LIST, ""
    if listed.is_file():
        with _reading_list(listed) as found:
            names = [str(one["name"]) for one in found["files"]]
        gone = next((name for name in names if name not in here), "")
    elif place.is_dir() and any(map(_PART.fullmatch, here)):
        gone = LIST
    if gone:
        raise FileFormatError(
            f"{place}: {gone} is missing, so that it is not a whole stream. "
            f"`credibly verify {place}` says what to do."
        )
    return files


Head = tuple[str, int, int, Sequence[str] | None]


def _head(file: Path) -> tuple[Any, int]:
    with _reading(file) as found:
        marks = found.schema_arrow.metadata or {}
        if marks.get(b"format") != FORMAT.encode():
            raise FileFormatError(
                f"{file}: not a file of verdicts. `credibly judge` writes such files."
            )
        facts = json.loads(marks[b"judge"])
        names = json.loads(marks.get(b"classes", b"null"))
        judge = str(json.loads(marks[b"settings"])["settings"]["judge"])
        head = (
            judge,
            whole("samples", facts["samples"]),
            whole("classes", facts["classes"], least=2),
            None if names is None else tuple(map(str, names)),
        )
        return head, found.metadata.num_rows


@contextmanager
def _reading_list(path: Path) -> Iterator[dict[str, Any]]:
    try:
        yield read_json(path, f"{FORMAT}-folder", 1)
    except (LookupError, TypeError) as error:
        raise FileFormatError(f"{path}: not a list of files.") from error


@contextmanager
def _reading(file: Path) -> Iterator[Any]:
    """A Parquet file; whatever is wrong in it becomes a `FileFormatError` that names it."""
    require_table_extra("A file of verdicts", pandas=False)
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(file, page_checksum_verification=True) as found:
            yield found
    except (OSError, LookupError, TypeError, ValueError, InvalidArgumentError) as error:
        if isinstance(error, FileFormatError):
            raise
        reason = " ".join(str(error).split())[:200]
        raise FileFormatError(f"{file}: cannot be read as verdicts ({reason}).") from error
