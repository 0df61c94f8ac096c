"""`open_source`: files of inputs, read in pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from credibly._validation import choice, positive, require, whole
from credibly.errors import FileFormatError
from credibly.io.arrays import ArraySource
from credibly.io.images import ImageFolder, Mode
from credibly.io.source import ARRAYS, TABLES, Source
from credibly.io.tables import Table

__all__ = ["Source", "open_source"]


def open_source(
    path: str | Path,
    *,
    key: str | None = None,
    columns: Sequence[str] | None = None,
    id_column: str | None = None,
    drop: Sequence[str] = (),
    size: int | tuple[int, int] | None = None,
    mode: Mode | None = None,
    scale: float | None = None,
    limit: int | None = None,
) -> Source:
    """Open a file or folder of inputs; nothing in it is executed.

    Args:
        path: `.npy`, `.npz`, `.safetensors`, `.csv`, `.tsv`, `.parquet`, or a folder of images.
        key: which array of an `.npz` or `.safetensors` file; not needed for a single floating one.
        columns: the numeric columns of a table that are the features, in the model's order. By
            default all but the id column and the dropped ones. A model that was fitted on a table,
            or whose `Space` names its columns, takes them by name, in any order.
        id_column: column of a table that names the rows; by default they are numbered from 0.
        drop: columns of a table that are not features, such as the label.
        size: (height, width) to which images are resized, or one number for squares.
        mode: 'grey' or 'rgb' for images; by default as the files are.
        scale: numbers in arrays are divided by it. Arrays of whole numbers need it (255 for bytes,
            1 to take them as they are): it is never guessed. Images are always divided by what
            their files call white.
        limit: at most this many rows, from the start.

    Example:
        >>> import tempfile, numpy as np, credibly as cr
        >>> path = tempfile.mkdtemp() + "/x.npy"
        >>> np.save(path, np.eye(3))
        >>> ids, x = cr.open_source(path).read(0, 2)
        >>> ids, tuple(x.shape)
        ([0, 1], (2, 3))
    """
    path = Path(path)
    if scale is not None:
        positive("scale", scale, "Values are divided by it: pass 255 for bytes in [0, 255].")
    if limit is not None:
        whole("limit", limit, remedy="Leave it out for all.")
    if mode is not None:
        choice("mode", mode, ("grey", "rgb"), "Leave it out to keep the images as they are.")
    given = {
        "key": key, "columns": columns, "id_column": id_column, "drop": drop or None,
        "size": size, "mode": mode, "scale": scale,
    }  # fmt: skip
    suffix = path.suffix.lower()
    if path.is_dir():
        _refuse_others(given, ("mode", "size"), "a folder of images")
        return ImageFolder(path, size=size, mode=mode, limit=limit)
    if not path.is_file():
        raise FileFormatError(f"{path}: no such file or folder.")
    if suffix in TABLES:
        _refuse_others(given, ("columns", "drop", "id_column"), "a table")
        return Table(path, columns=columns, id_column=id_column, drop=drop, limit=limit)
    if suffix in ARRAYS:
        allowed = ("scale",) if suffix == ".npy" else ("key", "scale")
        _refuse_others(given, allowed, f"a file of the format {suffix}")
        return ArraySource(path, key=key, scale=scale, limit=limit)
    raise FileFormatError(
        f"{path}: unknown format {suffix or 'without an ending'!r}; credibly reads "
        f"{', '.join((*ARRAYS, *TABLES))} and folders of images."
    )


def _refuse_others(given: Mapping[str, object], allowed: Sequence[str], what: str) -> None:
    """Refuse an option that would be ignored."""
    for name, value in given.items():
        expected = f"only {', '.join(allowed)} with {what}"
        require(value is None or name in allowed, name, expected, repr(value), "Leave it out.")
