"""Sets made from the test images of a network: far, damaged and attacked ones, and views.

Far images are made from the last test images. Damaged and attacked ones are made from the first,
so that their classes are the first of `labels`. Pixels are in [0, 1].
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import credibly as cr
from credibly.attacks.pgd import PGD
from credibly.model.features import LastHidden
from credibly.study.corruptions import Corruption
from experiments.evidence_sets import FEW_STEPS, MINIMUM_NORM, nearest, shuffled
from experiments.images import Images
from experiments.judge import outliers

SEVERITY = 3
MOVES = {"down": (1, 0), "up": (-1, 0), "right": (0, 1), "left": (0, -1)}

View = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Plan:
    """How the sets of a network are made.

    Attributes:
        mild: radius of the PGD that only damages.
        strong: radii of the PGD that means to be believed.
        search: settings of Carlini-Wagner; None: no minimum-norm attacks.
        flips: whether a mirrored image keeps its class.
        parts: patches along a side when they are shuffled.
        damage: kinds of corruption.
        count: how many images are damaged and attacked.
        far: how many images of each kind are far.
        steps: of PGD.
    """

    mild: float
    strong: tuple[float, ...]
    search: Mapping[str, float] | None
    flips: bool = False
    parts: int = 4
    damage: tuple[str, ...] = ("gaussian noise", "gaussian blur", "contrast")
    count: int = 500
    far: int = 400
    steps: int = 50


DIGITS = Plan(0.02, (0.1,), FEW_STEPS["fashion-mnist"], parts=8)
GREY = Plan(0.01, (0.03, 0.1), FEW_STEPS["fashion-mnist"])
COLOUR = Plan(0.002, (0.01, 0.03), FEW_STEPS["cifar10"], flips=True)


def few(plan: Plan) -> Plan:
    """Return a plan for a quick look."""
    return replace(
        plan, search=None, strong=plan.strong[-1:], damage=plan.damage[:1], count=50, far=50,
        steps=10,
    )  # fmt: skip


def affordable(plan: Plan, device: str) -> Plan:
    """Return the plan of a large network: attacks of many passes need a GPU."""
    return plan if device != "cpu" else replace(plan, search=None, count=100, steps=10)


def sets(
    net: nn.Module, test: Images, foreign: Mapping[str, Tensor], plan: Plan, ordinary: Images
) -> dict[str, Any]:
    """Return the sets of a Subject, by the names of its fields."""
    clf, some = cr.Classifier(net), test[: plan.count]
    return {
        "far": far(test.pixels[-plan.far :], foreign, plan),
        "damaged": damaged(clf, some, plan),
        "attacked": attacked(clf, some, plan) | informed(net, some, ordinary, plan),
        "views": views(flips=plan.flips),
    }


def far(like: Tensor, foreign: Mapping[str, Tensor], plan: Plan) -> dict[str, Tensor]:
    """Return noise, inverted and shuffled images, and those of other data sets."""
    found = outliers(like, {name: x[: plan.far] for name, x in foreign.items()})
    if plan.parts == like.shape[2]:
        del found["shuffled patches"]
        return found | {"shuffled pixels": shuffled(like, parts=plan.parts)}
    return found


def damaged(clf: cr.Classifier, some: Images, plan: Plan) -> dict[str, Tensor]:
    """Return images with noise, blur, little contrast, or a mild attack."""
    found = {f"{kind} {SEVERITY}": Corruption(kind, SEVERITY)(some.pixels) for kind in plan.damage}
    return found | by_pgd(clf, some, plan.mild, plan.steps)


def attacked(clf: cr.Classifier, some: Images, plan: Plan) -> dict[str, Tensor]:
    """Return images attacked by PGD and, with foolbox, by minimum-norm attacks."""
    found: dict[str, Tensor] = {}
    for eps in plan.strong:
        found |= by_pgd(clf, some, eps, plan.steps)
    if plan.search is None or importlib.util.find_spec("foolbox") is None:
        return found
    search = dict(plan.search)
    return found | {title: nearest(clf, some, name, search) for title, name in MINIMUM_NORM.items()}


def informed(net: nn.Module, some: Images, ordinary: Images, plan: Plan) -> dict[str, Tensor]:
    """Return images of an attacker who knows what the Judge looks at, and its ordinary inputs.

    Each image is moved until the last hidden layer makes of it what it makes of the most similar
    ordinary image that the network gives another class: then features, logits and neighbours are
    ordinary, and the values of the image hardly changed.
    """
    clf = cr.Classifier(net)
    layer = LastHidden.find(cr.bind(clf, some.pixels[:1]))
    assert layer is not None
    known, theirs = hidden(net, layer.name, ordinary.pixels), net(ordinary.pixels).argmax(1)
    found = {}
    for eps in plan.strong:
        parts = []
        for x, y in zip(some.pixels.split(250), some.labels.split(250), strict=True):
            gaps = torch.cdist(hidden(net, layer.name, x), known)
            goal = known[gaps.masked_fill(y[:, None] == theirs, torch.inf).argmin(1)]
            parts.append(mimic(partial(hidden, net, layer.name), x, goal, eps, plan.steps))
        found[f"who knows {eps:g}"] = torch.cat(parts)
    return found


def hidden(net: nn.Module, layer: str, x: Tensor) -> Tensor:
    """Return what a layer is given (n, d)."""
    seen: list[Tensor] = []
    with net.get_submodule(layer).register_forward_pre_hook(lambda _, given: seen.append(given[0])):
        net(x)
    return seen[-1].flatten(1)


def mimic(features: View, x: Tensor, goal: Tensor, eps: float, steps: int) -> Tensor:
    """Move images inside a ball until their features are nearly `goal`; the nearest counts."""
    best, least = x, torch.full((len(x),), torch.inf, device=x.device)
    now = x
    for step in range(steps + 1):
        now = now.detach().requires_grad_(True)
        with torch.enable_grad():
            far = (features(now) - goal).square().sum(1)
            (slope,) = torch.autograd.grad(far.sum(), now)
        better = far.detach() < least
        least = torch.where(better, far.detach(), least)
        best = torch.where(better[:, None, None, None], now.detach(), best)
        size = 0.25 * eps * (1 - step / (steps + 1))
        now = (now.detach() - size * slope.sign()).clamp(x - eps, x + eps).clamp(0, 1)
    return best


def by_pgd(clf: cr.Classifier, some: Images, eps: float, steps: int) -> dict[str, Tensor]:
    """Return images attacked by PGD; its steps can cross the ball at least once."""
    size = max(min(0.005, eps / 2), 2 * eps / steps)
    attack = PGD(eps=eps, steps=steps, step_size=size, bounds=(0.0, 1.0), chunk_size=500)
    return {f"PGD {eps:g}": attack(clf, some.pixels, some.labels)}


def views(*, flips: bool) -> tuple[View, ...]:
    """Return shifts by one pixel in four directions and, if wanted, a horizontal flip."""
    moves = tuple(partial(shifted, down=down, right=right) for down, right in MOVES.values())
    return (*moves, flipped) if flips else moves


def shifted(x: Tensor, *, down: int, right: int) -> Tensor:
    """Shift images by at most one pixel; the edge is repeated."""
    height, width = x.shape[2:]
    padded = functional.pad(x, (1, 1, 1, 1), mode="replicate")
    return padded[:, :, 1 - down : 1 - down + height, 1 - right : 1 - right + width].contiguous()


def flipped(x: Tensor) -> Tensor:
    """Mirror images from left to right."""
    return torch.flip(x, dims=(3,))
