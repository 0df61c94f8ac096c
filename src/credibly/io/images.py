"""Folders of images: sorted, channels first, in [0, 1]; a broken one becomes a row of NaN."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor

from credibly._extras import load_extra
from credibly._validation import require
from credibly.errors import FileFormatError
from credibly.io.file_set import each
from credibly.io.fingerprints import digest_of_file, digest_of_parts
from credibly.io.listing import Listing, list_folder, printable
from credibly.io.pixels import Mode, Shape, is_plain, pixels_of, shape_of, size_pair
from credibly.io.source import Ids, Source, Stamp, Where, stamp_of
from credibly.types import CPU

ENDINGS = (
    ".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm",
)  # fmt: skip
INDEX = "inputs.safetensors"
"""The list of images, for other processes."""


class ImageFolder(Source):
    """All images below a folder, in the order of their paths, which are their ids.

    The folder is listed once. Later images are not read, and one that is gone is a row of NaN.
    """

    id_type: Literal["int64", "string"] = "string"
    files = True

    def __init__(
        self,
        path: Where,
        *,
        root: Where | None = None,
        size: int | tuple[int, int] | None = None,
        mode: Mode | None = None,
        label: str | None = None,
        limit: int | None = None,
        known: Mapping[str, Any] = MappingProxyType({}),
        listing: Listing | None = None,
    ) -> None:
        load_extra("PIL.Image", extra="images", purpose="A folder of images")
        self.path, self.kind, self.mode = path, "images", mode
        self._root = root or path
        self.label = check_folder_label(label)
        self.size = size_pair(size)
        if "index" in known:
            listing = Listing.load(Path(known["index"]))
        if listing is None:
            listing = Listing.of(file for file in list_folder(self._root) if is_image(file.name))
        self._listing = listing
        self._names = self._listing.names
        if not self._names:
            raise FileFormatError(f"{path}: no images in this folder ({', '.join(ENDINGS)}).")
        self._limit(len(self._names), limit)
        if label is not None and "index" not in known:
            for name in self._some():  # before any work is done
                class_of(path, name)
        self.shape = tuple(known.get("shape") or self._common_shape())

    def options(self) -> dict[str, object]:
        return {"size": None if self.size is None else list(self.size), "mode": self.mode}

    def reopen_spec(self, folder: Path | None = None) -> dict[str, Any]:
        """See `Source.reopen_spec`; with a folder the list of images is written into it."""
        spec = super().reopen_spec(folder)
        if folder is not None:
            self._listing.save(folder / INDEX)
            spec["known"]["kind of files"] = "images"
            spec["known"]["index"] = str((folder / INDEX).absolute())
        return spec

    def _known(self) -> dict[str, Any]:
        return {"shape": list(self.shape)}

    def _labels(self, start: int, stop: int) -> list[Any]:
        return [class_of(self.path, self._names[n]) for n in range(start, stop)]

    def fingerprint(self) -> str:
        """Return the SHA-256 over the paths and contents of all images; in a store, of sizes."""
        folder = self._root
        if not isinstance(folder, Path):
            facts = {f.name: f for f in list_folder(folder)}
            found = ((name, facts.get(name)) for name in self._some())
            return digest_of_parts((name, repr(f and (f.size, f.changed))) for name, f in found)
        return digest_of_parts((n, _digest(folder / n)) for n in self._some())

    def stamp(self, start: int = 0, stop: int | None = None) -> Stamp:
        """Return a digest of the stamp of every image, since there may be millions of them."""
        if not isinstance(self.path, Path) and stop is None:
            facts = {f.name: hash((f.size, f.changed)) for f in list_folder(self._root)}
            return array("q", (facts.get(name, 0) for name in self._some(start)))
        return array("q", each(self._stamp, self._some(start, stop), afar=self.is_afar))

    def stamped(self, start: int, stop: int) -> slice:
        return slice(start, stop)

    def _places(self) -> Iterator[Where]:
        yield self._root  # millions of names are not followed one by one

    def _stamp(self, name: str) -> int:
        try:
            return hash(tuple(stamp_of(self._root / name)))
        except (OSError, FileFormatError):  # a link to nothing, or in a folder without permission
            return 0

    def _some(self, start: int = 0, stop: int | None = None) -> Iterator[str]:
        end = len(self) if stop is None else min(stop, len(self))
        return map(self._names.__getitem__, range(start, end))

    def _take(self, start: int, stop: int) -> tuple[Ids, Tensor]:
        names = list(self._some(start, stop))
        rows = torch.full((len(names), *self.shape), torch.nan, device=CPU)
        for row, pixels in zip(rows, each(self._pixels, names, afar=self.is_afar), strict=True):
            if pixels is not None and pixels.shape == row.shape:
                row.copy_(pixels)
        return [printable(name) for name in names], rows

    def _pixels(self, name: str) -> Tensor | None:
        return pixels_of(self._root / name, self.mode, self.size)

    def _common_shape(self) -> Shape:
        """Return the shape of every image, from the headers alone; broken ones are skipped."""
        if self.size is not None and self.mode is not None:
            return (1 if self.mode == "grey" else 3, *self.size)
        shapes = each(lambda name: (name, self._shape(name)), self._some(), afar=self.is_afar)
        return common_shape(self.path, shapes)

    def _shape(self, name: str) -> Shape | None:
        return shape_of(self._root / name, self.mode, self.size)


def common_shape(path: Where, shapes: Iterable[tuple[str, Shape | None]]) -> Shape:
    """The one shape that all images have; those that cannot be read have none."""
    count, first = 0, None
    for name, shape in shapes:
        count += 1
        if first is not None and shape not in (None, first[1]):
            raise FileFormatError(
                f"{path}: the images differ: {printable(first[0])} is {first[1]}, "
                f"{printable(name)} is {shape} (channels, height, width). Pass size=(height, "
                "width) (--size HEIGHTxWIDTH) and mode='grey' (--mode grey), or 'rgb'."
            )
        if shape is not None:
            first = first or (name, shape)
    if first is None:
        raise FileFormatError(f"{path}: none of {count} images can be read.")
    return first[1]


def is_image(name: str) -> bool:
    """Whether it is named like an image; whether it is one is seen when it is read."""
    return name.lower().endswith(ENDINGS)


def check_folder_label(label: str | None) -> str | None:
    """The only name that labels of images have: the folder they are in."""
    remedy = "Images in a folder for each class: cat/001.png is a 'cat'."
    require(label in (None, "folder"), "label", "'folder', for images", repr(label), remedy)
    return label


def class_of(folder: object, name: str) -> str:
    """The first folder that an image is in."""
    found, slash, _ = name.partition("/")
    if not slash:
        raise FileFormatError(
            f"{folder}: {printable(name)} is in no folder that could name its class. Leave out "
            "the label, or move it into one."
        )
    return printable(found)


def _digest(path: Path) -> str:
    """Return the digest of a file, or a word where there is nothing to read."""
    try:
        return digest_of_file(path) if is_plain(path) else "no file"
    except FileFormatError:
        return "unreadable"
