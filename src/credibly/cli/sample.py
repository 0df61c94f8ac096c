"""`credibly sample`: the embedded images as a file, for a first try of the other commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from credibly.errors import OutputError


def sample(
    *,
    out: Annotated[Path, typer.Option(help="The .npz file to write.")] = Path("sample.npz"),
    images: Annotated[int, typer.Option(min=1, max=1000, help="How many images.")] = 1000,
) -> None:
    """Write embedded Fashion-MNIST images to a file, to try `inspect` and `score` on."""
    from credibly.data.sample import write_images

    if out.suffix != ".npz":
        raise OutputError(f"{out} does not end in .npz", remedy="Name it sample.npz.")
    try:
        write_images(out, images=images)
    except OSError as error:
        raise OutputError(
            f"{out} cannot be written: {error.strerror}", remedy="Choose another place."
        ) from error
    Console(highlight=False).print(
        f"{images} images and labels: {out}\ntheir model: credibly.data.sample:classifier",
        markup=False,
        soft_wrap=True,
    )
