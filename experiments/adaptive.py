"""Adaptive attacks: A0 to A8 on a bare network and on three systems.

    python -m experiments.adaptive --out FOLDER                 # the embedded network, minutes
    python -m experiments.adaptive --model FILE --test TEST.npz --held-out HELD.npz \
        --transfer-model OTHER --images 200 --norm linf l2 --device cuda --processes 8 --out FOLDER
    python -m experiments.adaptive --model FILE --test TEST.npz --systems B --gamma 200 \
        --space normalised --out FOLDER                         # eps and gamma in that space
    python -m experiments.adaptive --tables FOLDER --json results/adaptive-NAME.json

b: the model's class. B: the most credible class. A: the model's class, answered at 90 % coverage.
T: the model's class, unless it is flagged as tampered with, at 95 % coverage. Scores and thresholds
come from held-out images, never from those that are attacked. A cell is the share of images on
which the attack succeeds: the class is wrong, and for A and T also answered.

Cells that are in the folder are not computed again. Any number of processes may work on one folder,
with the same or with different --systems, --norm and --attacks; --processes starts several.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

import credibly as cr
from credibly.decide.thresholds import for_coverage
from credibly.decide.trust_scores import score_from_json
from credibly.errors import InvalidArgumentError
from credibly.io.files import write_json
from credibly.io.fingerprints import digest_of_file, digest_of_module, digest_of_tensor
from experiments import networks
from experiments.adaptive_attacks import RADII, SYSTEMS, Subject, jobs, ranks
from experiments.adaptive_images import load_images
from experiments.adaptive_inputs import Counted
from experiments.adaptive_tables import print_tables
from experiments.adaptive_work import Folder, work
from experiments.images import left_out
from experiments.networks import Affine, Trained
from experiments.paper.settings import SPACES
from experiments.paper.world import World

COVERAGE = {"A": 0.9, "T": 0.95}


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute what is missing, print the tables, and return how many jobs were done here."""
    given = parsed(arguments)
    if given.tables is not None:
        return _tables(given.tables, given.json)
    if given.processes > 1:
        return _together(list(sys.argv[1:] if arguments is None else arguments), given)
    folder = Folder(given.out, given.inputs or given.out / "inputs")
    folder.note(exact_command(list(sys.argv[1:] if arguments is None else arguments)))
    subject = prepare(given, folder)
    done = work(subject, jobs(subject, given), folder)
    if not given.quiet:
        _tables(given.out, given.json)
    return done


def exact_command(arguments: Sequence[str]) -> str:
    """Return the command without the names of files and folders of this machine."""
    own = {"--out": "OUT", "--inputs": None, "--json": None, "--processes": None}
    own |= dict.fromkeys(("--model", "--transfer-model", "--test", "--held-out"), "FILE")
    own["--data"] = "FOLDER"
    words, rest = ["python -m experiments.adaptive"], iter(arguments)
    for word in rest:
        name, joined, value = word.partition("=")
        if name in own:
            value = value if joined else next(rest, "")
            words += [] if own[name] is None else [f"{name} {own[name]}"]
        elif word != "--quiet":
            words.append(word)
    return " ".join(words)


def prepare(given: argparse.Namespace, folder: Folder) -> Subject:
    """Load everything, and set up the systems on held-out images, once for a folder."""
    trained, sha256 = _network(given)
    test, held = (part.to(given.device) for part in load_images(given, trained.facts))
    refuse_common(test.pixels, held.pixels)
    other = _other(given, trained)
    net = trained.in_space(given.space)
    clf = cr.Classifier(Counted(net.to(given.device).eval().requires_grad_(False)))
    x, ordinary = (trained.to_space(given.space, part.pixels) for part in (test, held))
    settings = {
        "network": trained.name, "network SHA-256": sha256, "space": given.space,
        "weights": digest_of_module(net),
        "images": len(x), "of the images": digest_of_tensor(x),
        "of the labels": digest_of_tensor(test.labels),
        "held-out images": len(ordinary), "of the held-out images": digest_of_tensor(ordinary),
        "gamma": given.gamma or "auto", "effort": given.effort, "seed": given.seed,
        "precision": str(x.dtype),
    }  # fmt: skip
    found = folder.begin(settings, lambda: choose_gamma(clf, ordinary, given))
    if ranks(given.systems):
        found |= folder.once("systems.json", lambda: calibration(clf, ordinary, found, given))
    box = trained.box(given.space)
    other_sha256 = None if other is None else digest_of_file(given.transfer_model)
    return Subject(clf, x, test.labels, systems(found, given), sha256, other, box, other_sha256)


def choose_gamma(clf: cr.Classifier, held: Tensor, given: argparse.Namespace) -> dict[str, Any]:
    """Return gamma, from held-out images if it was not given, and the deployed solver."""
    gamma = cr.auto_gamma(clf, held) if given.gamma is None else given.gamma
    return {"gamma": gamma, "solver": repr(cr.solvers.Hybrid(effort=given.effort))}


def calibration(
    clf: cr.Classifier, held: Tensor, found: dict[str, Any], given: argparse.Namespace
) -> dict[str, Any]:
    """Return scores and thresholds, from one solve of the held-out images."""
    profile = cr.credibility(
        clf, held, gamma=found["gamma"], solver=cr.solvers.Hybrid(effort=given.effort),
        chunk_size=given.chunk_size, progress=False,
    )  # fmt: skip
    scores = {"A": cr.scores.failure_score(profile), "T": cr.scores.tamper_score(profile)}
    thresholds = {
        letter: for_coverage(score(profile), COVERAGE[letter]) for letter, score in scores.items()
    }
    named = {letter: score.as_json() for letter, score in scores.items()}
    return {**found, "coverage": COVERAGE, "thresholds": thresholds, "scores": named}


def systems(found: dict[str, Any], given: argparse.Namespace) -> dict[str, cr.attacks.System]:
    """Return the four systems, with one gamma and one solver, so that they can share profiles."""
    common: dict[str, Any] = {
        "gamma": found["gamma"], "solver": cr.solvers.Hybrid(effort=given.effort),
        "chunk_size": given.chunk_size,
    }  # fmt: skip
    ranked = {
        letter: cr.attacks.System(
            score=score_from_json(found["scores"][letter]), threshold=threshold, **common
        )
        for letter, threshold in found.get("thresholds", {}).items()
    }
    return {
        "b": cr.attacks.System(chunk_size=given.chunk_size),
        "B": cr.attacks.System(decision="profile", **common),
        **ranked,
    }


def refuse_common(x: Tensor, held: Tensor) -> None:
    """Refuse images that both set thresholds and are attacked."""
    attacked, setting = ({digest_of_tensor(image) for image in part} for part in (x, held))
    if attacked & setting:
        raise InvalidArgumentError(
            "held_out",
            expected="images other than those that are attacked",
            got=f"{len(attacked & setting)} that are both",
            remedy="Take held-out images of the training set.",
        )


def _network(given: argparse.Namespace) -> tuple[Trained, str]:
    """Return the attacked network, and the SHA-256 that figures name it by."""
    world = World(None if given.model is None else given.model.parent, device=given.device)
    name = "embedded" if given.model is None else given.model.stem
    return world.network(name), world.network_sha256(name)


def _other(given: argparse.Namespace, trained: Trained) -> cr.Classifier | None:
    """Return an independently trained network, on inputs in the space of the attacked one."""
    if given.transfer_model is None:
        return None
    other = networks.load(given.transfer_model, given.device)
    own, got = left_out(trained.facts), left_out(other.facts)
    if own != got:
        raise InvalidArgumentError(
            "--transfer-model",
            expected=f"a network with the classes of the attacked one, without {own or 'none'}",
            got=f"a network without {got or 'none'}",
            remedy="Its labels mean other classes; pass a network trained on the same classes.",
        )
    net = other.net
    if given.space == "normalised":  # back to pixels, by the statistics of the attacked one
        net = Affine(net, -trained.mean / trained.std, 1 / trained.std).eval()
    return cr.Classifier(Counted(net))


def _tables(out: Path, path: Path | None) -> int:
    numbers = print_tables(out)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, numbers)
    return 0


def _together(arguments: list[str], given: argparse.Namespace) -> int:
    """Start processes that share the folder, and print the tables at the end."""
    command = [sys.executable, "-m", "experiments.adaptive", *arguments, "--processes", "1"]
    threads = str(max(1, (os.cpu_count() or 1) // given.processes))
    # growing segments leave more memory to the other processes
    alone = {"OMP_NUM_THREADS": threads, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    running = [
        subprocess.Popen([*command, "--quiet"], env=os.environ | alone)  # noqa: S603
        for _ in range(given.processes)
    ]
    failed = [code for code in [process.wait() for process in running] if code != 0]
    _tables(given.out, given.json)
    if failed:
        sys.exit(f"{len(failed)} of {given.processes} processes failed; their messages are above")
    return 0


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # `exact_command` knows options by their names
    )
    add = parser.add_argument
    add("--out", type=Path, help="folder of the cells")
    add("--inputs", type=Path, help="folder of perturbed inputs, some 100 MB; default OUT/inputs")
    add("--tables", type=Path, metavar="OUT", help="only print the tables of a folder")
    add("--json", type=Path, help="also write the tables to this file")
    add("--model", type=Path, help="a network of experiments.networks; default: the embedded one")
    add("--transfer-model", type=Path, help="an independently trained network")
    add("--data", type=Path, help="folder of CIFAR-10")
    add(
        "--test",
        type=Path,
        help=".npz with `images` and `labels` of uint8, instead of --data; "
        "labels as in the whole data set, also for a network trained without some classes",
    )
    add("--held-out", type=Path, help="the same, for scores and thresholds")
    add("--images", type=int, default=6)
    add("--held-out-images", type=int, default=50)
    add("--systems", default=SYSTEMS, help="some of b (bare), B, A and T")
    add("--space", choices=SPACES, default="pixel", help="units of eps, steps and gamma")
    add("--norm", nargs="+", choices=tuple(RADII), default=["linf"])
    add("--radii", type=float, nargs="+", help=f"default {RADII}")
    add("--attacks", nargs="+", help="only rows with one of these in the name, such as A3 pgd")
    add("--sanity", action=argparse.BooleanOptionalAction, default=True)
    add("--steps", type=int, default=20, help="of A2 to A6")
    add("--restarts", type=int, default=1, help="of A2 to A6")
    add("--pgd-steps", type=int, default=100)
    add("--pgd-restarts", type=int, default=10)
    add("--apgd-steps", type=int, default=100)
    add("--model-queries", type=int, default=200, help="of Square on the bare model")
    add("--queries", type=int, default=20, help="of Square on systems that solve")
    add("--gamma", type=float, help="by default that of auto_gamma on held-out images")
    add("--effort", type=float, default=0.5, help="of the deployed Hybrid solver")
    add("--seed", type=int, default=0)
    add("--chunk-size", type=int, default=512)
    add("--deep-chunk-size", type=int, default=64, help="of A4 and A5, which need much memory")
    add("--device", default="cpu")
    add("--processes", type=int, default=1)
    add("--quiet", action="store_true", help="no tables at the end")
    given = parser.parse_args(arguments)
    if given.tables is None and given.out is None:
        parser.error("one of --out and --tables is needed")
    if not set(given.systems) <= set(SYSTEMS) or not given.systems:
        parser.error(f"--systems {given.systems!r}: expected some of {SYSTEMS}")
    return given


if __name__ == "__main__":
    main()
