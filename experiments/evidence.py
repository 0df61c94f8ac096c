"""Evidence for docs/scores.md: scores and rivals on clean, damaged, attacked and foreign inputs.

python -m experiments.evidence --model FILE.safetensors --dataset cifar10 --data FOLDER \
    --foreign OTHER.npz --out results/evidence-cifar10 --device cuda

Without --model the embedded network is studied on the embedded images, in a small way. `--foreign`
is an .npz with `images` of another data set. The parts of a study that are in the folder already
are not computed again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import credibly as cr
from credibly.data.sample import load_sample
from credibly.evaluate.attacks.pgd import PGD
from credibly.evaluate.baselines import all_baselines
from credibly.evaluate.corruptions import KINDS, Corruption
from credibly.evaluate.study import InputSet, Study
from experiments import cifar10, fashion_mnist, networks

PAPER = {"cifar10": (0.01, 0.02, 0.03), "fashion-mnist": (0.02, 0.04, 0.06)}
MILD = (0.001, 0.002, 0.004)


@dataclass(frozen=True)
class Subject:
    """A network with its test images."""

    net: nn.Module
    images: Tensor
    labels: Tensor
    foreign: Tensor | None


@dataclass(frozen=True)
class Sizes:
    """How many images of each kind."""

    clean: int
    damaged: int
    attacked: int
    foreign: int


def main() -> None:
    """Compute every part that is missing, with a line for each."""
    arguments = parsed()
    subject = load(arguments)
    clf = cr.Classifier(subject.net)
    everything = sets(clf, subject, arguments.dataset, Sizes(*arguments.sizes))
    gamma = cr.auto_gamma(clf, subject.images)
    rivals = all_baselines(gamma=gamma)
    rivals.pop("noise vote", None)  # costs more than everything else together
    named = {f"{name} (rival)": value for name, value in rivals.items()}
    study = Study(clf=clf, gamma=gamma, baselines=named, chunk_size=arguments.chunk_size)
    begin = time.perf_counter()
    known: dict[str, InputSet] = {}
    for name, part in everything.items():
        known[name] = part
        rows = study.run(known, arguments.out)[name]
        accuracy = float(rows.correct.double().mean()) if part.labels is not None else float("nan")
        print(
            f"{time.perf_counter() - begin:7.0f} s  {name}: {len(rows.labels)} images, "
            f"right {accuracy:.3f}, {rows.facts['median passes']:.0f} passes",
            flush=True,
        )


def sets(clf: cr.Classifier, subject: Subject, dataset: str, sizes: Sizes) -> dict[str, InputSet]:
    """Clean images first, then everything else, each made when it is needed."""
    x, y = subject.images, subject.labels
    found = {"clean": InputSet(x[: sizes.clean], y[: sizes.clean], "ordinary")}
    for eps in (*MILD, *PAPER[dataset]):
        step = 0.005 if eps <= 0.01 else 0.01
        attack = PGD(
            eps=eps, steps=100, step_size=min(step, eps / 2), bounds=(0.0, 1.0), chunk_size=1000
        )
        some = slice(sizes.attacked)
        make = partial(attack, clf, x[some], y[some])
        found[f"PGD {eps:g}"] = InputSet(make, y[some], "attacked")
    stopping = partial(stops_at_the_boundary, clf, x[: sizes.attacked], y[: sizes.attacked])
    found["PGD that stops at the boundary"] = InputSet(stopping, y[: sizes.attacked], "attacked")
    for name, make in foreign(subject, sizes.foreign).items():
        found[name] = InputSet(make, None, "outliers")
    some = slice(sizes.damaged)
    for severity in (1, 3, 5, 2, 4):
        for kind in KINDS:
            make = partial(Corruption(kind, severity), x[some])
            found[f"{kind} {severity}"] = InputSet(make, y[some], "shifted")
    return found


def foreign(subject: Subject, count: int) -> dict[str, Callable[[], Tensor]]:
    """Inputs of no class."""
    like = subject.images[:count]
    found: dict[str, Callable[[], Tensor]] = {
        "uniform noise": partial(noise, like, uniform=True),
        "Gaussian noise": partial(noise, like, uniform=False),
        "inverted images": lambda: 1 - like,
    }
    if subject.foreign is not None:
        found["foreign images"] = lambda: fitted(subject.foreign[:count], like)  # type: ignore[index]
    return found


def noise(like: Tensor, *, uniform: bool) -> Tensor:
    """Noise of the shape of images."""
    generator = torch.Generator().manual_seed(0)
    if uniform:
        return torch.rand(like.shape, generator=generator).to(like)
    return (0.5 + 0.25 * torch.randn(like.shape, generator=generator)).clamp(0, 1).to(like)


def fitted(images: Tensor, like: Tensor) -> Tensor:
    """Images of another set in the size and the channels of this one."""
    sized = functional.interpolate(images, size=like.shape[2:], mode="bilinear", antialias=True)
    if sized.shape[1] > like.shape[1]:
        sized = sized.mean(1, keepdim=True)
    return sized.expand(-1, like.shape[1], -1, -1).to(like).contiguous()


def stops_at_the_boundary(clf: cr.Classifier, x: Tensor, y: Tensor) -> Tensor:
    """Small steps up the loss, each image left alone once its class has changed (L_inf)."""
    current, open_rows = x.clone(), torch.ones_like(y, dtype=torch.bool)
    step = PGD(eps=1.0, steps=1, step_size=0.0005, bounds=(0.0, 1.0), random_start=False,
               chunk_size=1000)  # fmt: skip
    for _ in range(60):
        with torch.no_grad():
            wrong = torch.cat([clf.logits(part).argmax(1) for part in current.split(1000)]) != y
        open_rows &= ~wrong
        if not bool(open_rows.any()):
            break
        current[open_rows] = step(clf, current[open_rows], y[open_rows])
    return current


def load(arguments: argparse.Namespace) -> Subject:
    """The embedded network and images, or files."""
    device = arguments.device
    images_of_others = None
    if arguments.foreign is not None:
        with np.load(arguments.foreign, allow_pickle=False) as file:
            raw = torch.from_numpy(file["images"]).float() / 255
        images_of_others = raw.unsqueeze(1) if raw.dim() == 3 else raw.permute(0, 3, 1, 2)
    if arguments.model is None:
        sample = load_sample()
        net, images, labels = sample.net, sample.images, sample.labels
    else:
        net = networks.load(arguments.model).net
        if arguments.dataset == "cifar10":
            split = cifar10.load(arguments.data, "test")
            images, labels = split.images, split.labels
        else:
            other = fashion_mnist.load(arguments.data, train=False)
            images, labels = other.images, other.labels
    net = net.to(device).eval().requires_grad_(False)
    return Subject(net, images.to(device), labels.to(device), images_of_others)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--dataset", choices=tuple(PAPER), default="fashion-mnist")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--foreign", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--chunk-size", type=int, default=128)
    parser.add_argument(
        "--sizes", type=int, nargs=4, default=(1000, 200, 200, 200),
        metavar=("CLEAN", "DAMAGED", "ATTACKED", "FOREIGN"),
    )  # fmt: skip
    return parser.parse_args()


if __name__ == "__main__":
    main()
