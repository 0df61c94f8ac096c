"""The command line of the reproduction."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from credibly.errors import CrediblyError, InvalidArgumentError, OutputError
from experiments.made_with import stamp
from experiments.paper import adaptive, claims, settings
from experiments.paper.adaptive import Table
from experiments.paper.cache import Cache, say
from experiments.paper.claims import is_small
from experiments.paper.files import read_figure, write_json
from experiments.paper.kinds import measured
from experiments.paper.settings import SPACES, Figure
from experiments.paper.world import World

PICTURES = (".svg", ".png")
FULL, SMALL = Path("results/paper"), Path(".cache/paper-small")
"""The default folders of figures."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make every possible figure; return 1 if a named one could not be made, or none at all."""
    given = parsed(arguments)
    try:
        if given.draw:
            return 0 if draw_all(given.out, given.figure) else 1
        return run(given)
    except CrediblyError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("\nstopped; the same command continues with what is in the cache")
        return 130


def run(given: argparse.Namespace) -> int:
    """Compute, write, draw and judge."""
    if given.small:
        refuse_full(given.out)
    for folder in (given.out, given.cache):
        require_writable(folder)
    world = World(
        given.checkpoints,
        {"cifar10": given.cifar10, "fashion-mnist": given.fashion_mnist},
        given.device,
    )
    cache = Cache(given.cache, stamp(given.device))
    tables = adaptive.read_tables(adaptive.found_files(given.adaptive))
    skipped = []
    for name in given.figure or settings.names():
        figure = settings.load(name, small=given.small)
        if not make_figure(world, cache, figure, given, tables):
            skipped.append(name)
    nothing = len(skipped) == len(given.figure or settings.names())
    if not nothing:  # verdicts on older figures would look like those of this run
        claims.write(given.out)
    if skipped:
        say(f"not made: {', '.join(skipped)}")
    return 1 if nothing or (skipped and given.figure) else 0


def refuse_full(out: Path) -> None:
    """Refuse to replace figures and claims of the full scale by small ones."""
    there = [name for name in settings.all_names() if (out / f"{name}.json").exists()]
    full = [name for name in there if not is_small(read_figure(out / f"{name}.json"))]
    if full:
        raise InvalidArgumentError(
            "--out",
            expected="with --small, a folder without figures of the full scale",
            got=f"{out}, with {', '.join(full)}",
            remedy=f"Leave out --out (then it is {SMALL}), or choose another folder.",
        )


def require_writable(folder: Path) -> None:
    """Check before hours of computing whether the results can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        problem = f"cannot write to {folder} ({error.strerror})"
        remedy = "Choose other folders for --out and --cache."
        raise OutputError(problem, remedy=remedy) from error


def make_figure(
    world: World,
    cache: Cache,
    figure: Figure,
    given: argparse.Namespace,
    tables: Sequence[Table] = (),
) -> bool:
    """Make one figure; return False, with a printed line, if something is missing."""
    begin = time.perf_counter()
    missing = [name for name in figure.networks if not world.has(name)]
    if missing:
        where = given.checkpoints or "--checkpoints, which was not given"
        say(f"{figure.name}: skipped, {', '.join(missing)}.safetensors not in {where}")
        return False
    try:
        world.images(figure.dataset)
        for network in figure.networks:
            world.network(network)
    except (CrediblyError, FileNotFoundError, ValueError) as error:
        say(f"{figure.name}: skipped, {error}")
        return False
    say(f"{figure.name}")
    chosen = [space for space in figure.spaces if space in given.spaces]
    found = {space: cache.load(measured(world, cache, figure, space)).facts for space in chosen}
    if set(chosen) != set(figure.spaces):
        say(f"{figure.name}: {', '.join(chosen)} only: filled the cache, nothing written")
        return True
    record = assembled(figure, found, world, tables, small=given.small)
    changed = write_json(given.out / f"{figure.name}.json", record)
    if changed or not all((given.out / f"{figure.name}{end}").exists() for end in PICTURES):
        draw_all(given.out, [figure.name])
    say(f"{figure.name}: {time.perf_counter() - begin:.1f} s")
    return True


def assembled(
    figure: Figure,
    found: dict[str, Any],
    world: World,
    tables: Sequence[Table] = (),
    *,
    small: bool,
) -> dict[str, Any]:
    """Return the record of a figure, without the names of local folders."""
    cost: dict[str, list[float]] = {}
    for facts in found.values():
        cost |= facts["cost"]
    stamps = sorted({json.dumps(s, sort_keys=True) for f in found.values() for s in f["stamps"]})
    results = {space: facts["numbers"] for space, facts in found.items()}
    if figure.kind in adaptive.KINDS:
        sha256 = world.network_sha256(figure.networks[0])
        results["adaptive"] = adaptive.accuracies(tables, figure, sha256)
    return {
        "figure": figure.name,
        "kind": figure.kind,
        "command": exact_command(figure, stamps, small=small),
        "settings": figure.record(),
        "networks": {name: world.network_sha256(name) for name in figure.networks},
        "parameters": {name: world.parameters(name) for name in figure.networks},
        "data_sha256": world.images_sha256(figure.dataset),
        "made_with": [json.loads(text) for text in stamps],
        "seconds": round(sum(seconds for seconds, _ in cost.values()), 1),
        "passes": round(sum(passes for _, passes in cost.values())),
        "results": results,
    }


def exact_command(figure: Figure, stamps: Sequence[str], *, small: bool) -> str:
    """Return the command that makes the figure, without the names of local folders."""
    start = f"python -m experiments.paper --figure {figure.name}"
    device = "" if all(json.loads(text)["device"] == "CPU" for text in stamps) else " --device cuda"
    folders = " --small" if small else f" --checkpoints FOLDER --{figure.dataset} FOLDER"
    return start + folders + device


def draw_all(out: Path, names: Sequence[str] | None) -> bool:
    """Draw pictures from JSON alone; return whether all that were asked for could be drawn."""
    try:
        from experiments.paper import draw
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "matplotlib":
            raise
        say("no pictures: matplotlib is not installed; draw them later with --draw")
        return False
    there = [n for n in names or settings.all_names() if (out / f"{n}.json").exists()]
    for name in there:
        draw.picture(read_figure(out / f"{name}.json"), out)
    missing = [name for name in names or () if name not in there]
    for name in missing:
        say(f"{out / name}.json is not there: make it first, without --draw")
    if not there and not missing:
        say(f"no figure's JSON is in {out}: make them first, without --draw")
    return bool(there) and not missing


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="experiments.paper", description=__doc__)
    parser.add_argument("--checkpoints", type=Path, help="folder of NAME.safetensors")
    parser.add_argument("--cifar10", type=Path, help="folder of CIFAR-10")
    parser.add_argument("--fashion-mnist", type=Path, help="folder of Fashion-MNIST")
    parser.add_argument("--figure", nargs="+", choices=settings.all_names(),
                        help="only these; also figures beyond the paper's")  # fmt: skip
    parser.add_argument("--spaces", nargs="+", choices=SPACES, default=list(SPACES),
                        help="only these: fills the cache and writes nothing")  # fmt: skip
    parser.add_argument(
        "--small", action="store_true", help="the embedded network and 200 images, in minutes"
    )
    parser.add_argument("--device", default="cpu", help="default %(default)s")
    parser.add_argument("--cache", type=Path, default=Path(".cache/paper"),
                        help="finished stages, from any device and version; choose another "
                        "folder to compute them again; default %(default)s")  # fmt: skip
    parser.add_argument("--out", type=Path, help=f"default {FULL}, with --small {SMALL}")
    parser.add_argument("--adaptive", type=Path, nargs="*", metavar="FOLDER_OR_FILE",
                        help="tables of experiments.adaptive to show with the figures; default "
                        f"results/{adaptive.PATTERN}")  # fmt: skip
    parser.add_argument("--draw", action="store_true", help="only draw, from the JSON in --out")
    given = parser.parse_args(arguments)
    if given.out is None:
        given.out = SMALL if given.small else FULL
    return given
