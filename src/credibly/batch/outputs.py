"""Outputs that cannot or must not be written are refused before anything is done."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from pathlib import Path

from credibly.batch.parts import PARTS
from credibly.batch.shards import FOLDER, Shards
from credibly.errors import OutputError
from credibly.io.files import TEMPORARY
from credibly.io.sources import Source

OTHER_FORMATS = frozenset({".csv", ".tsv", ".txt", ".json", ".npz", ".npy", ".xlsx", ".feather"})
"""Names that would promise something else than Parquet."""

_REPLACE = "Choose another name, or replace it with overwrite=True (--overwrite)."

Problem = tuple[bool, str, str]
"""Whether it holds, what it is, and what to do."""


def check_output(shards: Shards, source: Source, *, overwrite: bool) -> None:
    """Refuse an output that cannot or must not be written; the first reason is named."""
    find = _problems_of_a_folder if shards.in_folder else _problems_of_a_file
    for holds, problem, remedy in find(shards, source, overwrite=overwrite):
        if holds:
            raise OutputError(f"{shards.out}{problem}", remedy=remedy)


def _problems_of_a_file(shards: Shards, source: Source, *, overwrite: bool) -> Iterator[Problem]:
    name_a_file, out = shards.format.remedy, shards.out
    regular = shards.output.facts() is not None
    if isinstance(out, Path):
        yield not out.parent.is_dir(), f": the folder {out.parent} does not exist", "Make it first."
        yield out.is_dir(), " is a folder", name_a_file
        yield out.exists() and not regular, " is not a plain file", name_a_file
    yield (
        shards.output.suffix in OTHER_FORMATS,
        ": the result is always a Parquet file",
        "Name it .parquet; pandas.read_parquet(...).to_csv(...) converts it.",
    )
    if isinstance(out, Path):
        yield regular and source.reads(out), " is the file to be read", "Choose another name."
        linked = out.is_symlink()
        yield (
            linked,
            f" is a link to {out.resolve() if linked else ''}",
            "Name the file itself, or another one.",
        )
    yield regular and not overwrite, " exists already", _REPLACE


def _problems_of_a_folder(shards: Shards, source: Source, *, overwrite: bool) -> Iterator[Problem]:
    out = shards.out
    yield shards.output.facts() is not None, " is a file", "Choose another name for the folder."
    if isinstance(out, Path):
        yield not out.parent.is_dir(), f": the folder {out.parent} does not exist", "Make it first."
        yield (
            out.is_dir() and source.reads(out),
            " is the folder to be read",
            "Choose another name.",
        )
    names = shards.listing()
    others = [name for name in names if not _is_ours(name)]
    yield (
        bool(others),
        f" holds other files, such as {others[0] if others else ''}",
        "Name a new folder, or an empty one.",
    )
    yield FOLDER in names and not overwrite, " exists already", _REPLACE
    lost = bool(names) and FOLDER not in names and not shards.exists()
    yield (
        lost and not overwrite,
        f" holds parts of a run of which nothing is known ({shards.home} is gone)",
        _REPLACE,
    )


def _is_ours(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, known) for known in (PARTS, FOLDER, TEMPORARY))
