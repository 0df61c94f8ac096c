"""Safetensors files with the permissions of any other file."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from credibly.errors import InvalidArgumentError


def save_tensors(
    tensors: Mapping[str, Tensor], path: str | Path, *, metadata: dict[str, str]
) -> None:
    """Write a file that whoever the umask allows can read; one that is there keeps its mode.

    safetensors writes under another name, for the owner alone, and renames. The mode is therefore
    that of a file which the system made here before.
    """
    place = Path(path)
    fresh = not place.exists()
    if not fresh and not place.is_file():
        raise InvalidArgumentError(
            "path",
            expected="the name of a file to write",
            got=f"{str(place)!r}, which is no plain file and would be replaced by one",
            remedy="Name a file of your own.",
        )
    place.touch()
    mode = stat.S_IMODE(place.stat().st_mode)
    try:
        save_file(dict(tensors), place, metadata=metadata)
    except BaseException:
        if fresh:
            place.unlink(missing_ok=True)
        raise
    place.chmod(mode)
