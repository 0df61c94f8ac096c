"""Outputs that cannot or must not be written are refused before anything is done."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from credibly._validation import require
from credibly.batch.formats import FOLDER, KINDS, PART, part_name
from credibly.batch.manifests import is_ours, listing_at, marks_of
from credibly.batch.progress import FORMAT
from credibly.batch.shards import Shards
from credibly.errors import CrediblyError, OutputError
from credibly.io.images import INDEX
from credibly.io.kinds import would_read
from credibly.io.places import Place, full_name, is_below
from credibly.io.sources import Source
from credibly.io.store_folder import AT_ONCE
from credibly.io.stores import place_of

OTHER_FORMATS = frozenset({".csv", ".tsv", ".txt", ".json", ".npz", ".npy", ".xlsx", ".feather"})
"""Names that would promise something else than Parquet."""

_REPLACE = "Choose another name, or replace it with overwrite=True (--overwrite)."

_WRITTEN = re.compile(rf"({PART.pattern}|{re.escape(FOLDER)})(\.\d+-\d+\.tmp)?")
"""The names that a run gives to files in the folder that is its output."""

_LARGEST_STATUS = 1 << 16
"""Bytes of the largest file that is read to see whether it is a status file."""

Problem = tuple[bool, str, str]
"""Whether it holds, what it is, and what to do."""


def check_output(shards: Shards, source: Source, *, overwrite: bool) -> None:
    """Refuse an output that cannot or must not be written; the first reason is named."""
    find = _problems_of_a_folder if shards.in_folder else _problems_of_a_file
    problems = chain(_problems_with(source, shards), find(shards, overwrite=overwrite))
    for holds, problem, remedy in problems:
        if holds:
            raise OutputError(f"{shards.out}{problem}", remedy=remedy)


def _problems_with(source: Source, shards: Shards) -> Iterator[Problem]:
    out, home, away = shards.output, shards.home, "Choose another name."
    if shards.in_folder:
        yield (
            out.is_folder() and source.reads(out),
            " is the folder to be read, or holds what is",
            away,
        )
    else:
        yield out.facts() is not None and source.reads(out), " is the file to be read", away
    yield shards.exists() and source.reads(home), f": its parts in {home} are to be read", away
    part = part_name(0)
    written = [out / part] if shards.in_folder else [out, home / part]
    yield (
        any(would_read(source.path, place) for place in (*written, home / INDEX)),
        f", or its parts in {home.name}, would be read as inputs in {source.path}",
        "Choose a place outside of it.",
    )


def _problems_of_a_file(shards: Shards, *, overwrite: bool) -> Iterator[Problem]:
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
        linked = out.is_symlink()
        yield (
            linked,
            f" is a link to {out.resolve() if linked else ''}",
            "Name the file itself, or another one.",
        )
    yield regular and not overwrite, " exists already", _REPLACE


def _problems_of_a_folder(shards: Shards, *, overwrite: bool) -> Iterator[Problem]:
    out = shards.out
    yield shards.output.facts() is not None, " is a file", "Choose another name for the folder."
    if isinstance(out, Path):
        yield not out.parent.is_dir(), f": the folder {out.parent} does not exist", "Make it first."
    names, begun = shards.listing(), shards.is_begun_here()
    others = _written_by_others(shards, names, begun=begun)
    yield (
        bool(others),
        f" holds files that no run wrote, or damaged ones: {', '.join(others[:3])}",
        "Name a new folder, or an empty one.",
    )
    yield FOLDER in names and not overwrite, " exists already", _REPLACE
    yield (
        bool(names) and FOLDER not in names and not begun and not overwrite,
        f" holds parts of a run of which nothing is known (no manifest in {shards.home})",
        f"`credibly verify {out}` says what there is. {_REPLACE}",
    )


def _written_by_others(shards: Shards, names: list[str], *, begun: bool) -> list[str]:
    """The files of the folder that no run wrote: by their names, the list, or what they hold."""
    own = [name for name in names if _WRITTEN.fullmatch(name)]
    others = [name for name in names if not _WRITTEN.fullmatch(name)]
    if begun:
        return others
    listed = listing_at(shards.output)
    known = set() if listed is None else {FOLDER, *(file["name"] for file in listed[1]["files"])}
    unknown = [name for name in own if name not in known and not name.endswith(".tmp")]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        ours = pool.map(lambda name: _is_ours(shards.output / name), unknown)
        return others + [name for name, own in zip(unknown, ours, strict=True) if not own]


def _is_ours(place: Place) -> bool:
    """Whether a file holds what a run writes; a list that is damaged may be one of ours."""
    if place.name != FOLDER:
        return is_ours(marks_of(place))
    try:
        found = json.loads(place.read_whole())
    except ValueError:  # FileFormatError is one
        return True
    folders = [kind.folder for kind in KINDS.values()]
    return isinstance(found, dict) and found.get("format") in folders


def check_status(shards: Shards, source: Source, status: str | Path | None) -> None:
    """Refuse a status file in the place of another file."""
    if status is None:
        return
    place = place_of(status)
    name, own = full_name(place), (shards.output, shards.home)
    problems = (
        (any(is_below(full_name(o), name) for o in own), "which belongs to the output"),
        (place.is_folder(), "which is a folder"),
        (source.reads(place) or would_read(source.path, place), "which is to be read"),
        (place.exists() and not _is_status(place), "which is another file"),
    )
    got = next((why for holds, why in problems if holds), None)
    wanted = "a new file, or one that another run kept as its status"
    require(got is None, "status", wanted, f"{str(status)!r}, {got}", "Choose another name.")


def _is_status(place: Place) -> bool:
    try:
        found = json.loads(place.read_whole()) if place.size() <= _LARGEST_STATUS else None
    except (ValueError, OSError, CrediblyError):
        return False
    return isinstance(found, dict) and found.get("format") == FORMAT
