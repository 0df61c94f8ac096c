"""Evidence for docs/explanation/scores.md: scores on clean, damaged, attacked, foreign inputs.

python -m experiments.evidence --model FILE.safetensors --dataset cifar10 --data FOLDER \
    --mnist FOLDER --other FOLDER --out results/evidence-cifar10 --device cuda

Without --model, a small study of the embedded network is made. All choices are made on a held-out
slice of the training set: the last images, as many as the network's file says it was trained
without, or --held-out FILE.npz with `images` and `labels`. Parts that are in the folder are not
computed again. Several processes may share a folder, each with its own --sets: names, patterns such
as "PGD*", kinds ('ordinary', 'attacked', 'outliers', 'shifted'), or 'held-out' for the sets that
defaults are chosen on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import credibly as cr
from credibly.errors import InvalidArgumentError
from credibly.study import InputSet, Study
from experiments.evidence_chosen import chosen_in
from experiments.evidence_sets import NEAR, PAPER, Sizes, held_out_sets, measured_sets
from experiments.evidence_subject import Subject, load

HELD_OUT = "held-out"


@dataclass(frozen=True)
class Job:
    """A set, and the folder of its part."""

    name: str
    part: InputSet
    folder: Path
    group: str

    def wanted(self, patterns: Sequence[str]) -> bool:
        """Return whether a name or a kind was asked for; without patterns everything is."""
        label = f"{HELD_OUT}/{self.name}" if self.group == HELD_OUT else self.name
        return not patterns or any(p == self.group or fnmatch(label, p) for p in patterns)


def main(words: Sequence[str] | None = None) -> None:
    """Compute every missing part, and print a line for each."""
    begin = time.perf_counter()
    arguments = parsed(words)
    subject = load(arguments)
    clf = cr.Classifier(subject.net)
    size = arguments.chunk_size
    chosen = chosen_in(arguments.out, clf, subject.held_out, votes=arguments.votes, chunk_size=size)
    print(f"{time.perf_counter() - begin:7.0f} s  {chosen}", flush=True)
    study = Study(clf=clf, gamma=chosen.gamma, baselines=chosen.baselines(size), chunk_size=size)
    for job in jobs(clf, subject, arguments):
        rows = study.part(job.name, job.part, job.folder)
        right = float(rows.correct.double().mean()) if job.part.labels is not None else float("nan")
        print(
            f"{time.perf_counter() - begin:7.0f} s  {job.group}, {job.name}: {len(rows.labels)} "
            f"images, right {right:.3f}, {rows.facts['median passes']:.0f} passes",
            flush=True,
        )


def jobs(clf: cr.Classifier, subject: Subject, arguments: argparse.Namespace) -> list[Job]:
    """Return the sets that were asked for."""
    sizes, out = Sizes(*arguments.sizes), arguments.out
    held = held_out_sets(clf, subject, arguments.dataset, sizes)
    ours = measured_sets(clf, subject, arguments.dataset, sizes)
    everything = [Job(name, part, out / HELD_OUT, HELD_OUT) for name, part in held.items()]
    everything += [Job(name, part, out, part.kind) for name, part in ours.items()]
    asked = list(arguments.sets)
    if arguments.near:
        asked += ["ordinary", NEAR, f"{HELD_OUT}/{HELD_OUT}"]
    found = [job for job in everything if job.wanted(asked)]
    if not found or (arguments.near and NEAR not in ours):
        raise InvalidArgumentError(
            "--near" if arguments.near else "--sets",
            expected=f"a network with classes left out; names or kinds of {list(ours)}",
            got=f"{asked}",
            remedy="Near outliers need `left_out` in the metadata of the network's file.",
        )
    return found


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--dataset", choices=tuple(PAPER), default="fashion-mnist")
    parser.add_argument("--data", type=Path, help="folder of the data set")
    parser.add_argument("--held-out", type=Path, help=".npz with images and labels")
    parser.add_argument("--mnist", type=Path, help="folder of MNIST, as outliers")
    parser.add_argument("--other", type=Path, help="folder or .npz of the other data set")
    parser.add_argument("--near", action="store_true", help="only what near outliers need")
    parser.add_argument("--sets", nargs="+", default=(), help="names, patterns or kinds")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--chunk-size", type=int, default=128)
    parser.add_argument(
        "--votes", type=int, default=50, help="noise votes per image; 300 cost as much as a profile"
    )
    parser.add_argument(
        "--sizes", type=int, nargs=5, default=(1000, 200, 200, 200, 200),
        metavar=("CLEAN", "DAMAGED", "ATTACKED", "FOREIGN", "HELD"),
    )  # fmt: skip
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
