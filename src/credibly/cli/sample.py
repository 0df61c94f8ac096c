"""`credibly sample`: the embedded images as a file, to try the other commands on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from credibly.cli import options as o
from credibly.cli.console import print_text
from credibly.errors import OutputError


def sample(
    *,
    out: Annotated[Path, typer.Option(help="The .npz file to write.")] = Path("sample.npz"),
    images: Annotated[int, typer.Option(min=1, max=1000, help="How many images.")] = 1000,
    overwrite: o.Overwrite = False,
) -> None:
    """Write embedded Fashion-MNIST images to a file, to try `inspect` and `score` on."""
    from credibly.data.sample import write_images
    from credibly.io.files import writing

    if out.suffix != ".npz":
        raise OutputError(f"{out} does not end in .npz", remedy="Name it sample.npz.")
    o.check_free(out, overwrite=overwrite)
    with writing(out, "Choose another place."):
        write_images(out, images=images)
    print_text(f"{images} images and labels: {out}\ntheir model: credibly.data.sample:classifier")
