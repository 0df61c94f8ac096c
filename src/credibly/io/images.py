"""Folders of images: sorted, channels first, in [0, 1]; a broken one becomes a row of NaN."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from credibly.errors import FileFormatError, InvalidArgumentError, MissingExtraError
from credibly.io.fingerprints import digest_of_file, digest_of_parts
from credibly.io.sources import Ids, Mode, Source
from credibly.types import whole_number

if TYPE_CHECKING:
    from PIL.Image import Image

ENDINGS = (
    ".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm",
)  # fmt: skip
_GREY = ("1", "L", "LA", "La", "I;16", "I;16B", "I;16L")


class ImageFolder(Source):
    """All images below a folder, in the order of their paths, which are their ids."""

    id_type: Literal["int64", "string"] = "string"
    files = True

    def __init__(
        self,
        path: Path,
        *,
        size: int | tuple[int, int] | None,
        mode: Mode | None,
        limit: int | None,
    ) -> None:
        _pillow()
        self.path, self.kind, self.mode = path, "images", mode
        self.size = _size(size)
        self._names = sorted(
            found.relative_to(path).as_posix()
            for found in path.rglob("*")
            if found.suffix.lower() in ENDINGS and not found.name.startswith(".")
        )
        if not self._names:
            raise FileFormatError(f"{path}: no images in this folder ({', '.join(ENDINGS)}).")
        self._limit(len(self._names), limit)
        self.shape = self._common_shape()

    def options(self) -> dict[str, object]:
        return {"size": None if self.size is None else list(self.size), "mode": self.mode}

    def fingerprint(self) -> str:
        """SHA-256 over the paths and contents of all images."""
        names = self._names[: len(self)]
        return digest_of_parts((name, digest_of_file(self.path / name)) for name in names)

    def _take(self, start: int, stop: int) -> tuple[Ids, Tensor]:
        names = self._names[start:stop]
        rows = torch.full((len(names), *self.shape), torch.nan)
        for row, name in zip(rows, names, strict=True):
            pixels = self._pixels(name)
            if pixels is not None and pixels.shape == row.shape:
                row.copy_(pixels)
        return names, rows

    def _pixels(self, name: str) -> Tensor | None:
        with _opened(self.path / name) as image:
            if image is not None:
                return _channels_first(image, self.mode or _own_mode(image), self.size)
        return None

    def _common_shape(self) -> tuple[int, ...]:
        """Shape of every image, from the headers alone; broken ones have no say."""
        if self.size is not None and self.mode is not None:
            return (1 if self.mode == "grey" else 3, *self.size)
        first: tuple[str, tuple[int, ...]] | None = None
        for name in self._names[: len(self)]:
            shape = self._header_shape(name)
            if first is None and shape is not None:
                first = (name, shape)
            if first is not None and shape is not None and shape != first[1]:
                raise FileFormatError(
                    f"{self.path}: the images differ: {first[0]} is {first[1]}, {name} is {shape} "
                    "(channels, height, width). Pass size=(height, width) (--size HEIGHTxWIDTH) "
                    "and mode='grey' (--mode grey), or 'rgb'."
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


def _pillow() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            package="pillow", extra="images", purpose="A folder of images"
        ) from error


@contextmanager
def _opened(path: Path) -> Iterator[Image | None]:
    """The image, or None where it cannot be read; errors while it is decoded end here, too."""
    from PIL import Image

    try:
        image = Image.open(path)
    except Exception:  # noqa: BLE001  # decoders raise whatever a broken file makes them raise
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

    if image.mode.startswith("I;16"):
        grey = pil.fromarray(np.asarray(image).astype(np.float32) / 65535)
        if size is not None:
            grey = grey.resize((size[1], size[0]), pil.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(grey)).unsqueeze(0)
        return pixels if mode == "grey" else pixels.expand(3, -1, -1)
    converted = image.convert("L" if mode == "grey" else "RGB")
    if size is not None:
        converted = converted.resize((size[1], size[0]), pil.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.array(converted)).float() / 255
    return pixels.unsqueeze(0) if mode == "grey" else pixels.permute(2, 0, 1)


def _size(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if size is None:
        return None
    pair = tuple(size) if isinstance(size, tuple | list) else (size, size)
    numbers = [whole_number(value) for value in pair]
    if len(numbers) != 2 or any(number is None or number < 1 for number in numbers):
        raise InvalidArgumentError(
            "size",
            expected="(height, width) in pixels, or one number for squares",
            got=repr(size),
            remedy="Pass what the model was trained on, for example size=224.",
        )
    return int(pair[0]), int(pair[1])
