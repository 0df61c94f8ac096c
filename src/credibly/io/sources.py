"""`open_source`: files of inputs, read in pieces, from a disk or a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from credibly._validation import choice, positive, require, whole
from credibly.errors import FileFormatError
from credibly.io.kinds import open_many, open_one, refuse_others
from credibly.io.listing import expand, is_glob
from credibly.io.pixels import Mode
from credibly.io.places import LocalPlace, Place
from credibly.io.saved_dataset import SavedDataset, is_saved_dataset
from credibly.io.source import Source, Where
from credibly.io.stores import place_of

_OF_DATASETS = ("columns", "drop", "id_column", "key", "label", "mode", "scale", "size")

__all__ = ["Source", "open_source", "reopen_source"]


def open_source(
    path: str | Path,
    *,
    key: str | None = None,
    columns: Sequence[str] | None = None,
    id_column: str | None = None,
    label: str | None = None,
    drop: Sequence[str] = (),
    size: int | tuple[int, int] | None = None,
    mode: Mode | None = None,
    scale: float | None = None,
    limit: int | None = None,
) -> Source:
    """Open a file or folder of inputs; nothing in it is executed.

    Args:
        path: `.npy`, `.npz`, `.safetensors`, `.csv`, `.tsv`, `.parquet`; a folder of images, of
            Parquet files, of WebDataset shards (`.tar`), or one that `datasets.save_to_disk` wrote;
            or a pattern, such as `data/*.parquet` (`**` is any folders). All of these may be in a
            store: `s3://bucket/data/*.parquet`.
        key: which array of an `.npz` or `.safetensors` file, or column of a saved dataset; not
            needed for a single one.
        columns: the numeric columns of a table that are the features, in the model's order. By
            default all but the id column, the label and the dropped ones. A model that was fitted
            on a table, or whose `Space` names its columns, takes them by name, in any order.
        id_column: column of a table that names the rows; by default they are numbered from 0.
        label: the column, or array beside the inputs, of the true classes. They are no features;
            they are carried along, into the column `label` of what `score` and `judge_file` write.
            For images 'folder': the name of the first folder that an image is in.
        drop: columns of a table that are not features.
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
    remedy = "Name a file, a folder or a pattern."
    require(str(path) != "", "path", "the name of inputs", "an empty name", remedy)
    if scale is not None:
        positive("scale", scale, "Values are divided by it: pass 255 for bytes in [0, 255].")
    if limit is not None:
        whole("limit", limit, remedy="Leave it out for all.")
    if mode is not None:
        choice("mode", mode, ("grey", "rgb"), "Leave it out to keep the images as they are.")
    given = {
        "key": key, "columns": columns and list(columns), "id_column": id_column, "label": label,
        "drop": list(drop) or None, "size": size, "mode": mode, "scale": scale,
    }  # fmt: skip
    return _open(str(path), {k: v for k, v in given.items() if v is not None}, limit, {})


def reopen_source(spec: Mapping[str, Any]) -> Source:
    """Open what `Source.reopen_spec` describes; rows are not counted and checked again.

    A file that has changed since may give an error or other rows: a `Watch` notices.

    Example:
        >>> import tempfile, numpy as np, credibly as cr
        >>> from credibly.io.sources import reopen_source
        >>> path = tempfile.mkdtemp() + "/x.npy"
        >>> np.save(path, np.eye(3))
        >>> len(reopen_source(cr.open_source(path).reopen_spec()))
        3
    """
    options = dict(spec["options"])
    path, limit = options.pop("path"), options.pop("limit", None)
    return _open(path, options, limit, spec["known"])


def _open(
    path: str, given: Mapping[str, Any], limit: int | None, known: Mapping[str, Any]
) -> Source:
    place = place_of(path)
    where: Where = place.path if isinstance(place, LocalPlace) else place
    source = _opened(place, where, given, limit, known)
    named = str(Path(where).absolute()) if isinstance(where, Path) else path
    source.spec = {"path": named, **given, **({} if limit is None else {"limit": limit})}
    return source


def _opened(
    place: Place,
    where: Where,
    given: Mapping[str, Any],
    limit: int | None,
    known: Mapping[str, Any],
) -> Source:
    if is_glob(where):
        root, found = expand(where)
        return open_many(where, root, found, given, limit=limit, known=known)
    if place.is_folder() and is_saved_dataset(where):
        refuse_others(given, _OF_DATASETS, "a saved dataset")
        return SavedDataset(where, **given, limit=limit)
    if place.is_folder():
        return open_many(where, where, None, given, limit=limit, known=known)
    if place.facts() is None:
        raise FileFormatError(f"{place}: no such file or folder.")
    return open_one(where, given, limit=limit, known=known)
