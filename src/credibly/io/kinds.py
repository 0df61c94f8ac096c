"""Which reader a file, or many files, need; options that it would ignore are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from credibly._validation import require
from credibly.errors import FileFormatError
from credibly.io.arrays import ArraySource
from credibly.io.images import ENDINGS, ImageFolder
from credibly.io.listing import Listing, is_glob, list_folder, root_of
from credibly.io.parts import Parts
from credibly.io.places import FileFacts, full_name, is_below
from credibly.io.saved_dataset import is_saved_dataset
from credibly.io.source import ARRAYS, TABLES, Source, Where
from credibly.io.tables import Table
from credibly.io.tars import TarShards

_ONLY_NAMED = frozenset({*ARRAYS, *TABLES}) - {".parquet"}
"""Kinds that are read from a folder only if a pattern names them: they may be notes of it."""

_OF_TABLES = ("columns", "drop", "id_column", "label")
_OF_IMAGES = ("label", "mode", "size")
_OF_TARS = ("key", "label", "mode", "scale", "size")


def open_one(
    where: Where, given: Mapping[str, Any], *, limit: int | None, known: Mapping[str, Any]
) -> Source:
    """Open a file that exists."""
    suffix = where.suffix.lower()
    if suffix in TABLES:
        refuse_others(given, _OF_TABLES, "a table")
        return Table(where, **given, limit=limit, known=known)
    if suffix in ARRAYS:
        refuse_others(given, _of_arrays(suffix), f"a file of the format {suffix}")
        return ArraySource(where, **given, limit=limit)
    if suffix == ".tar":
        refuse_others(given, _OF_TARS, "tar files")
        return TarShards(where, where.parent, [where.name], **given, limit=limit, known=known)
    raise FileFormatError(
        f"{where}: unknown format {suffix or 'without an ending'!r}; credibly reads "
        f"{', '.join((*ARRAYS, *TABLES))}, .tar and folders of images."
    )


def open_many(
    where: Where,
    root: Where,
    matched: Sequence[FileFacts] | None,
    given: Mapping[str, Any],
    *,
    limit: int | None,
    known: Mapping[str, Any],
) -> Source:
    """Open all files of a folder, or those that a pattern has matched below it."""
    listing = None
    if "index" in known or "parts" in known:
        kind = known["kind of files"]
    else:
        listing = _listed(root, matched)
        kind = _kind_of(where, listing, named=matched is not None)
    if kind == "images":
        refuse_others(given, _OF_IMAGES, "a folder of images")
        return ImageFolder(where, root=root, listing=listing, **given, limit=limit, known=known)
    names = list(listing.names) if listing is not None else []
    if kind == ".tar":
        refuse_others(given, _OF_TARS, "tar files")
        return TarShards(where, root, names, **given, limit=limit, known=known)
    options = _OF_TABLES if kind in TABLES else _of_arrays(kind)
    refuse_others(given, options, f"{kind} files")
    reader: Any = Table if kind in TABLES else ArraySource
    return Parts(where, root, names, reader, limit=limit, known=known, **given)


def _listed(root: Where, matched: Iterable[FileFacts] | None) -> Listing:
    """The files of kinds that are read."""
    if matched is None:
        skipped = _ONLY_NAMED
        found = list_folder(root)
    else:
        skipped, found = frozenset(), iter(matched)
    return Listing.of(file for file in found if (kind := _kind(file.name)) and kind not in skipped)


def _kind(name: str) -> str | None:
    """What a file is named like; files of Spark and others that begin with '_' are notes."""
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in ENDINGS:
        return "images"
    known = suffix in (*ARRAYS, *TABLES, ".tar")
    hidden = any(part.startswith(("_", ".")) for part in name.split("/"))
    return suffix if known and not hidden else None


def _kind_of(where: Where, listing: Listing, *, named: bool) -> str:
    kinds = Counter(_kind(name) for name in listing.names)
    if len(kinds) == 1:
        return str(next(iter(kinds)))
    if not kinds and named:
        raise FileFormatError(
            f"{where}: no file of a known kind matches this pattern. Quote it, so that the shell "
            "does not replace it, and check the folder; ** means folders at any depth."
        )
    if not kinds:
        raise FileFormatError(
            f"{where}: no images in this folder ({', '.join(ENDINGS)}), and no Parquet or tar "
            f"files. Files of another kind are named by a pattern, such as {where}/*.csv."
        )
    counted = " and ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    raise FileFormatError(
        f"{where}: holds files of several kinds ({counted}). Name those of one kind by a pattern, "
        f"such as {where if not named else 'data'}/**/*.parquet."
    )


def _of_arrays(suffix: str) -> tuple[str, ...]:
    return ("scale",) if suffix == ".npy" else ("key", "label", "scale")


def would_read(path: Where, new: Where) -> bool:
    """Whether a folder, or a pattern, would mean a new file of this name as well."""
    pattern, skipped = None, _ONLY_NAMED
    if is_glob(path):
        root, pattern = root_of(path)
        skipped = frozenset()
    elif (path.is_dir() if isinstance(path, Path) else path.is_folder()) and not is_saved_dataset(
        path
    ):
        root = path
    else:
        return False
    folder, name = full_name(root), full_name(new)
    inner = name.removeprefix(f"{folder}/")
    if not is_below(folder, name) or (pattern is not None and not pattern.fullmatch(inner)):
        return False
    kind = _kind(inner)
    return kind is not None and kind not in skipped


def refuse_others(given: Mapping[str, object], allowed: Sequence[str], what: str) -> None:
    """Refuse an option that would be ignored."""
    for name, value in given.items():
        expected = f"only {', '.join(allowed)} with {what}"
        require(name in allowed, name, expected, repr(value), "Leave it out.")
