"""What a run notes about itself, read again: its settings, the list of its files, their marks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from credibly.batch.formats import FOLDER, KINDS, Format, Record
from credibly.batch.work import Plan
from credibly.errors import CrediblyError
from credibly.io.files import check_format
from credibly.io.places import Place
from credibly.io.run_folder import is_intact
from credibly.io.store_folder import AT_ONCE

_FIELDS = {"name": str, "first": int, "rows": int, "bytes": int, "sha256": str}
"""What the list of a finished folder holds of each file."""


def plan_of(settings: Mapping[str, Any]) -> Plan:
    """Return the shards of a run with these settings."""
    return Plan(*(int(settings[name]) for name in ("data rows", "shard_size", "chunk_size")))


def run_of(content: bytes | str) -> dict[str, Any] | None:
    """Return the manifest of a run: `settings` and `resolved`; None if it is none, or damaged."""
    try:
        run = dict(json.loads(content))
        plan = plan_of(run["settings"])
        whole = run["format"] in KINDS and is_intact(run) and min(vars(plan).values()) > 0
    except (ValueError, KeyError, TypeError):
        return None
    return run if whole else None


def listing_at(folder: Place) -> tuple[Format, dict[str, Any]] | None:
    """Return the kind of a finished folder and the list of its files; None if that is damaged."""
    place = folder / FOLDER
    if place.facts() is None:
        return None
    try:
        found = dict(json.loads(place.read_whole()))
    except (ValueError, TypeError):  # FileFormatError is a ValueError
        return None
    kind = next((kind for kind in KINDS.values() if kind.folder == found.get("format")), None)
    if kind is None:
        return None
    check_format(str(place), found, kind.folder, kind.version)
    files = found.get("files")
    whole = isinstance(files, list) and all(map(_is_listed, files))
    return (kind, found) if whole and run_of(str(found.get("run"))) else None


def _is_listed(file: object) -> bool:
    return isinstance(file, dict) and all(isinstance(file.get(k), t) for k, t in _FIELDS.items())


def marks_of(place: Place) -> Mapping[bytes, bytes] | None:
    """Return the metadata of a Parquet file; None where it cannot be read as one."""
    from pyarrow import parquet

    try:
        with place.open_input() as file:
            return dict(parquet.read_schema(file).metadata or {})
    except Exception:  # noqa: BLE001  # a file of somebody else may hold anything
        return None


def is_ours(marks: Mapping[bytes, bytes] | None) -> bool:
    """Whether a run wrote a file with this metadata."""
    return marks is not None and marks.get(b"format", b"").decode("utf-8", "replace") in KINDS


def find_damaged(
    folder: Place,
    files: Sequence[Record],
    there: Mapping[str, int],
    tick: Callable[[float], object] = lambda _: None,
) -> dict[str, str]:
    """Read all bytes of the files of a list; return what is wrong, by name."""
    found: dict[str, str] = {}
    with ThreadPoolExecutor(1 if folder.is_local else AT_ONCE) as pool:
        looks = pool.map(partial(_look_at, folder, there), files)
        for number, (file, problem) in enumerate(zip(files, looks, strict=True), start=1):
            if problem is not None:
                found[file["name"]] = problem
            tick(number / len(files))
    return found


def _look_at(folder: Place, there: Mapping[str, int], file: Record) -> str | None:
    size = there.get(file["name"])
    if size is None:
        return "is missing"
    if size != file["bytes"]:
        return f"has {size} bytes instead of {file['bytes']}"
    try:
        same = (folder / file["name"]).checksum() == file["sha256"]
    except (CrediblyError, OSError) as error:
        return f"cannot be read ({error})"
    return None if same else "its bytes are not those that were written"
