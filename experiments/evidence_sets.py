"""The input sets of the evidence: ordinary, attacked, foreign and corrupted."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

import credibly as cr
from credibly.attacks.pgd import PGD
from credibly.io.fingerprints import digest_of_tensor
from credibly.study import InputSet
from credibly.study.corruptions import KINDS, Corruption
from experiments.evidence_subject import Subject
from experiments.images import Images

PAPER = {"cifar10": (0.01, 0.02, 0.03), "fashion-mnist": (0.02, 0.04, 0.06)}
MILD = (0.001, 0.002, 0.004)
BOUNDARY = "PGD that stops at the boundary"
MINIMUM_NORM = {"DeepFool": "deepfool", "Carlini-Wagner": "carlini-wagner"}
FEW_STEPS = {
    "cifar10": {"binary_search_steps": 4, "steps": 100, "stepsize": 0.002, "initial_const": 0.1},
    "fashion-mnist": {
        "binary_search_steps": 5,
        "steps": 100,
        "stepsize": 0.01,
        "initial_const": 0.3,
    },
}
"""Of Carlini-Wagner in foolbox, confidence 0: just enough to cross the decision boundary.

Black pixels are in the flat end of its tanh, where steps have to be longer.
"""

NEAR = "left-out classes"


@dataclass(frozen=True)
class Sizes:
    """How many images of each kind; the held-out slice is used completely.

    Attributes:
        clean: test images, and at most as many of left-out classes.
        damaged: for each of the fifty corrupted sets.
        attacked: for each attack.
        foreign: for each set of outliers.
        held: for each set that is made from the held-out slice.
    """

    clean: int
    damaged: int
    attacked: int
    foreign: int
    held: int


def measured_sets(
    clf: cr.Classifier, subject: Subject, dataset: str, sizes: Sizes
) -> dict[str, InputSet]:
    """Return clean images first, then all other sets, each made when it is needed."""
    test = subject.test
    clean, some = test[: sizes.clean], test[: sizes.attacked]
    found = {"clean": InputSet(clean.pixels, clean.labels, "ordinary")}
    found |= attacked(clf, some, (*MILD, *PAPER[dataset]))
    found |= minimum_norm(clf, some, FEW_STEPS[dataset])
    like = test.pixels[: sizes.foreign]
    makers = noises(like, seed=0) | {"inverted images": partial(inverted, like)}
    found |= outliers(makers, like)
    for name, images in subject.foreign.items():
        found[name] = InputSet(images[: sizes.foreign], None, "outliers")
    if subject.near is not None:
        found[NEAR] = InputSet(subject.near[: sizes.clean], None, "outliers")
    return found | damaged(test[: sizes.damaged], (1, 3, 5, 2, 4))


def held_out_sets(
    clf: cr.Classifier, subject: Subject, dataset: str, sizes: Sizes
) -> dict[str, InputSet]:
    """Return the sets that defaults are chosen on: none of them uses test images."""
    data = subject.held_out
    found = {"held-out": InputSet(data.pixels, data.labels, "ordinary")}
    some = data[: sizes.held]
    found |= attacked(clf, some, (*MILD[:2], PAPER[dataset][1]))
    makers = noises(some.pixels, seed=1) | {"shuffled patches": partial(shuffled, some.pixels)}
    return found | outliers(makers, some.pixels) | damaged(some, (2, 4))


def attacked(clf: cr.Classifier, data: Images, radii: tuple[float, ...]) -> dict[str, InputSet]:
    """Return sets attacked by 100 steps of PGD, and by a PGD that stops at the boundary."""
    x, y, base = data.pixels, data.labels, digest_of_tensor(data.pixels)
    found = {}
    for eps in radii:
        step = 0.005 if eps <= 0.01 else 0.01
        attack = PGD(
            eps=eps, steps=100, step_size=min(step, eps / 2), bounds=(0.0, 1.0), chunk_size=1000
        )
        source = f"{attack!r} of {base}"
        found[f"PGD {eps:g}"] = InputSet(partial(attack, clf, x, y), y, "attacked", source)
    stopping = partial(stops_at_the_boundary, clf, x, y)
    found[BOUNDARY] = InputSet(stopping, y, "attacked", f"steps of 0.0005, at most 60, of {base}")
    return found


def minimum_norm(clf: cr.Classifier, data: Images, steps: dict[str, float]) -> dict[str, InputSet]:
    """Return sets attacked by minimum-norm attacks, if foolbox is installed."""
    if importlib.util.find_spec("foolbox") is None:
        print(f"left out, since foolbox is not installed: {', '.join(MINIMUM_NORM)}", flush=True)
        return {}
    base = digest_of_tensor(data.pixels)
    return {
        title: InputSet(
            partial(nearest, clf, data, name, steps), data.labels, "attacked",
            f"foolbox {name} {steps} of {base}",
        )
        for title, name in MINIMUM_NORM.items()
    }  # fmt: skip


def nearest(clf: cr.Classifier, data: Images, name: str, steps: dict[str, float]) -> Tensor:
    """Return the nearest misclassified inputs that an attack finds."""
    found = cr.attacks.minimum_norm_attacks(
        clf, data.pixels, bounds=(0.0, 1.0), attacks=[name], labels=data.labels,
        settings={MINIMUM_NORM["Carlini-Wagner"]: steps}, chunk_size=500,
    )  # fmt: skip
    return found[name]


def stops_at_the_boundary(clf: cr.Classifier, x: Tensor, y: Tensor) -> Tensor:
    """Take small L_inf steps up the loss, and stop each image once its class has changed."""
    current, open_rows = x.clone(), torch.ones_like(y, dtype=torch.bool)
    step = PGD(eps=1.0, steps=1, step_size=0.0005, bounds=(0.0, 1.0), random_start=False,
               chunk_size=1000)  # fmt: skip
    for _ in range(60):
        with torch.no_grad():
            wrong = (
                torch.cat([clf.logits(part).argmax(1) for part in torch.split(current, 1000)]) != y
            )
        open_rows &= ~wrong
        if not bool(open_rows.any()):
            break
        current[open_rows] = step(clf, current[open_rows], y[open_rows])
    return current


def outliers(makers: dict[str, Callable[[], Tensor]], like: Tensor) -> dict[str, InputSet]:
    """Return sets without labels."""
    base = digest_of_tensor(like)
    return {
        name: InputSet(make, None, "outliers", f"{name} {describe(make)} of {base}")
        for name, make in makers.items()
    }


def describe(make: Callable[[], Tensor]) -> str:
    """Return the function and the settings that make a set."""
    assert isinstance(make, partial)
    return f"{make.func.__name__} {sorted(make.keywords.items())}"


def noises(like: Tensor, *, seed: int) -> dict[str, Callable[[], Tensor]]:
    """Return makers of uniform and Gaussian noise."""
    return {
        "uniform noise": partial(noise, like, uniform=True, seed=seed),
        "Gaussian noise": partial(noise, like, uniform=False, seed=seed),
    }


def noise(like: Tensor, *, uniform: bool, seed: int) -> Tensor:
    """Return noise in the shape of some images."""
    generator = torch.Generator().manual_seed(seed)
    if uniform:
        return torch.rand(like.shape, generator=generator).to(like)
    return (0.5 + 0.25 * torch.randn(like.shape, generator=generator)).clamp(0, 1).to(like)


def inverted(like: Tensor) -> Tensor:
    """Swap black and white."""
    return 1 - like


def shuffled(like: Tensor, *, parts: int = 4) -> Tensor:
    """Cut images into parts x parts patches and shuffle those of each image."""
    n, channels, height, width = like.shape
    assert height % parts == 0
    assert width % parts == 0
    sides = (n, channels, parts, height // parts, parts, width // parts)
    patches = like.reshape(sides).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    generator = torch.Generator().manual_seed(0)
    order = torch.rand(n, parts * parts, generator=generator).argsort(1).to(like.device)
    mixed = patches[torch.arange(n, device=like.device)[:, None], order]
    back = mixed.reshape(n, parts, parts, *mixed.shape[2:]).permute(0, 3, 1, 4, 2, 5)
    return back.reshape(like.shape).contiguous()


def damaged(data: Images, severities: tuple[int, ...]) -> dict[str, InputSet]:
    """Return ten kinds of corruption at some severities."""
    base = digest_of_tensor(data.pixels)
    found = {}
    for severity in severities:
        for kind in KINDS:
            damage = Corruption(kind, severity)
            make = partial(damage, data.pixels)
            source = f"{damage!r} of {base}"
            found[f"{kind} {severity}"] = InputSet(make, data.labels, "shifted", source)
    return found
