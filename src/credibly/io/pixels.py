"""Pixels of an image file: channels first, in [0, 1]; a broken image gives none."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from credibly._validation import require, whole_number
from credibly.io.places import Place
from credibly.io.source import Where

if TYPE_CHECKING:
    from PIL.Image import Image

Mode = Literal["grey", "rgb"]
Pair = tuple[int, int]
Shape = tuple[int, ...]
_GREY = ("1", "L", "LA", "La", "I;16", "I;16B", "I;16L")

MOST = 1 << 28
"""Bytes of the largest image that is read into memory as it is."""


def is_plain(path: Path) -> bool:
    """Whether it can be read: not a folder, a link to nothing, or a pipe, which may never end."""
    try:
        return path.is_file()
    except OSError:  # in a folder without permission
        return False


@contextmanager
def opened_image(path: Where | bytes) -> Iterator[Image | None]:
    """Open an image, or give None if it cannot be read; errors of decoding end here, too."""
    from PIL import Image

    if isinstance(path, Path) and not is_plain(path):
        yield None
        return
    content = path if isinstance(path, Path | bytes) else _read(path)  # a store may not answer
    try:
        image = Image.open(io.BytesIO(content) if isinstance(content, bytes) else content)
    except Exception:  # noqa: BLE001  # decoders may raise anything
        yield None
        return
    try:
        with image:
            yield image
    except Exception:  # noqa: BLE001, S110  # the caller then has no pixels: a row of NaN
        pass


def _read(place: Place) -> bytes:
    """Read an image of a store whole: it is small, and every request costs time."""
    with place.open_input() as file:
        found = file.read(MOST + 1)
    return found if len(found) <= MOST else b""


def own_mode(image: Image) -> Mode:
    """Whether an image has colours."""
    return "grey" if image.mode in _GREY else "rgb"


def channels_first(image: Image, mode: Mode, size: Pair | None) -> Tensor:
    """The pixels of an image, (1 or 3, height, width) in [0, 1]."""
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


def shape_of(content: Where | bytes, mode: Mode | None, size: Pair | None) -> Shape | None:
    """The shape that an image will have, from its header alone; None if it cannot be read."""
    with opened_image(content) as image:
        if image is None:
            return None
        channels = 1 if (mode or own_mode(image)) == "grey" else 3
        return (channels, *(size or (image.height, image.width)))


def pixels_of(content: Where | bytes, mode: Mode | None, size: Pair | None) -> Tensor | None:
    """The pixels of an image, or None if it cannot be read."""
    with opened_image(content) as image:
        if image is not None:
            return channels_first(image, mode or own_mode(image), size)
    return None


def size_pair(size: int | tuple[int, int] | None) -> Pair | None:
    """Check the size that images get: (height, width), or one number for squares."""
    if size is None:
        return None
    pair = tuple(size) if isinstance(size, tuple | list) else (size, size)
    numbers = [whole_number(value) for value in pair]
    good = len(numbers) == 2 and all(number is not None and number > 0 for number in numbers)
    expected = "(height, width) in pixels, or one number for squares"
    remedy = "Pass what the model was trained on, for example size=224."
    require(good, "size", expected, repr(size), remedy)
    return int(pair[0]), int(pair[1])
