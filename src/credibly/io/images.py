"""Folders of images: sorted, channels first, in [0, 1]; a broken one becomes a row of NaN."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from credibly._extras import load_extra
from credibly._validation import require, whole_number
from credibly.errors import FileFormatError
from credibly.io.fingerprints import digest_of_file, digest_of_parts
from credibly.io.source import Ids, Source, Stamp, stamp_of
from credibly.types import CPU

if TYPE_CHECKING:
    from PIL.Image import Image

ENDINGS = (
    ".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm",
)  # fmt: skip
Mode = Literal["grey", "rgb"]
_GREY = ("1", "L", "LA", "La", "I;16", "I;16B", "I;16L")


class ImageFolder(Source):
    """All images below a folder, in the order of their paths, which are their ids."""

    path: Path
    id_type: Literal["int64", "string"] = "string"
    files = True

    def __init__(
        self,
        path: Path,
        *,
        size: int | tuple[int, int] | None = None,
        mode: Mode | None = None,
        label: str | None = None,
        limit: int | None = None,
        known: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        load_extra("PIL.Image", extra="images", purpose="A folder of images")
        self.path, self.kind, self.mode = path, "images", mode
        self.label = check_folder_label(label)
        self.size = _size(size)
        self._names = _list_images(path)
        if not self._names:
            raise FileFormatError(f"{path}: no images in this folder ({', '.join(ENDINGS)}).")
        self._limit(len(self._names), limit)
        self.shape = tuple(known.get("shape") or self._common_shape())

    def options(self) -> dict[str, object]:
        return {"size": None if self.size is None else list(self.size), "mode": self.mode}

    def _known(self) -> dict[str, Any]:
        return {"shape": list(self.shape)}

    def _labels(self, start: int, stop: int) -> list[Any]:
        return [class_of(self.path, name) for name in self._names[start:stop]]

    def fingerprint(self) -> str:
        """Return the SHA-256 over the paths and contents of all images."""
        names = self._names[: len(self)]
        return digest_of_parts((_printable(name), _digest(self.path / name)) for name in names)

    def stamp(self, start: int = 0, stop: int | None = None) -> Stamp:
        """Return a digest of the stamp of every image, since there may be millions of them."""
        return array("q", (_stamp(self.path / name) for name in self._names[start:stop]))

    def stamped(self, start: int, stop: int) -> slice:
        return slice(start, stop)

    def _take(self, start: int, stop: int) -> tuple[Ids, Tensor]:
        names = self._names[start:stop]
        rows = torch.full((len(names), *self.shape), torch.nan, device=CPU)
        for row, name in zip(rows, names, strict=True):
            pixels = self._pixels(name)
            if pixels is not None and pixels.shape == row.shape:
                row.copy_(pixels)
        return [_printable(name) for name in names], rows

    def _pixels(self, name: str) -> Tensor | None:
        with _opened(self.path / name) as image:
            if image is not None:
                return _channels_first(image, self.mode or _own_mode(image), self.size)
        return None

    def _common_shape(self) -> tuple[int, ...]:
        """Return the shape of every image, from the headers alone; broken ones are skipped."""
        if self.size is not None and self.mode is not None:
            return (1 if self.mode == "grey" else 3, *self.size)
        shapes = ((name, self._header_shape(name)) for name in self._names[: len(self)])
        found = ((name, shape) for name, shape in shapes if shape is not None)
        first = next(found, None)
        for name, shape in found:
            if first is not None and shape != first[1]:
                raise FileFormatError(
                    f"{self.path}: the images differ: {_printable(first[0])} is {first[1]}, "
                    f"{_printable(name)} is {shape} (channels, height, width). Pass size=(height, "
                    "width) (--size HEIGHTxWIDTH) and mode='grey' (--mode grey), or 'rgb'."
                )
        if first is None:
            raise FileFormatError(f"{self.path}: none of {len(self)} images can be read.")
        return first[1]

    def _header_shape(self, name: str) -> tuple[int, ...] | None:
        with _opened(self.path / name) as image:
            if image is None:
                return None
            channels = 1 if (self.mode or _own_mode(image)) == "grey" else 3
            return (channels, *(self.size or (image.height, image.width)))


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
            f"{folder}: {_printable(name)} is in no folder that could name its class. Leave out "
            "the label, or move it into one."
        )
    return _printable(found)


def _list_images(folder: Path) -> list[str]:
    """List what is named like an image; whether it is one is seen when it is read."""
    return sorted(
        found.relative_to(folder).as_posix()
        for found in folder.rglob("*")
        if found.suffix.lower() in ENDINGS and not found.name.startswith(".")
    )


def _printable(name: str) -> str:
    """Return a name that is text; bytes that are not UTF-8 are written in hex."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _is_plain(path: Path) -> bool:
    """Whether it can be read: not a folder, a link to nothing, or a pipe, which may never end."""
    try:
        return path.is_file()
    except OSError:  # in a folder without permission
        return False


def _stamp(path: Path) -> int:
    try:
        return hash(stamp_of(path))
    except OSError:  # a link to nothing, or in a folder without permission
        return 0


def _digest(path: Path) -> str:
    """Return the digest of a file, or a word where there is nothing to read."""
    try:
        return digest_of_file(path) if _is_plain(path) else "no file"
    except FileFormatError:
        return "unreadable"


@contextmanager
def _opened(path: Path) -> Iterator[Image | None]:
    """Open an image, or give None if it cannot be read; errors of decoding end here, too."""
    from PIL import Image

    if not _is_plain(path):
        yield None
        return
    try:
        image = Image.open(path)
    except Exception:  # noqa: BLE001  # decoders may raise anything
        yield None
        return
    try:
        with image:
            yield image
    except Exception:  # noqa: BLE001, S110  # the caller then has no pixels: a row of NaN
        pass


def _own_mode(image: Image) -> Mode:
    return "grey" if image.mode in _GREY else "rgb"


def _channels_first(image: Image, mode: Mode, size: tuple[int, int] | None) -> Tensor:
    from PIL import Image as pil  # noqa: N813

    deep = image.mode.startswith("I;16")
    if deep:
        image = pil.fromarray(np.asarray(image).astype(np.float32) / 65535)
    else:
        image = image.convert("L" if mode == "grey" else "RGB")
    if size is not None:
        image = image.resize((size[1], size[0]), pil.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.array(image)).float() / (1 if deep else 255)
    if pixels.dim() == 3:
        return pixels.permute(2, 0, 1)
    return pixels.unsqueeze(0) if mode == "grey" else pixels.expand(3, -1, -1)


def _size(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if size is None:
        return None
    pair = tuple(size) if isinstance(size, tuple | list) else (size, size)
    numbers = [whole_number(value) for value in pair]
    good = len(numbers) == 2 and all(number is not None and number > 0 for number in numbers)
    expected = "(height, width) in pixels, or one number for squares"
    remedy = "Pass what the model was trained on, for example size=224."
    require(good, "size", expected, repr(size), remedy)
    return int(pair[0]), int(pair[1])
