"""Profiles of one input at several depths of a network, and at two prices from one path.

A profile at a depth moves the output of a layer instead of the input. Depths are counted in layers
that do not contain others, in the order in which they run; those that run twice are left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import credibly as cr
from credibly.decide.examine import Examiner
from credibly.decide.scores import SCORES
from credibly.problem.weights import auto_gamma

RATIO = "predicted ratio"
PLACES = {"half way": 0.5, "three quarters": 0.75, "last hidden layer": 1.0}
AT = tuple(f"{RATIO}, {place}" for place in PLACES)
MEAN = f"{RATIO}, mean of depths"
PATH, FAR_PATH = f"{RATIO}, of a path", f"{RATIO}, of a path, gamma x 16"
STEPS = 8
"""Of LBFGS at each price of the path."""


class Depths:
    """Scores by profiles of deeper layers and by a path over two prices of gamma.

    Attributes:
        price: passes per input, by score.
    """

    def __init__(self, near: Examiner, ordinary: Tensor) -> None:
        self.near = near
        names = layers_at(near.clf.net, ordinary[:1])
        self.deep = {place: examiner_at(near, name, ordinary) for place, name in names.items()}
        self.price = dict.fromkeys((f"{RATIO}, {place}" for place in names), near.descent.passes)
        self.price |= {MEAN: near.descent.passes * (1 + len(names))} if names else {}
        some = self._path(ordinary[:64]).passes
        self.price |= dict.fromkeys((PATH, FAR_PATH), float(some.mean()))

    def scores(self, x: Tensor) -> dict[str, Tensor]:
        """The predicted ratio (n,) at each depth, their mean with that at the input, and others."""
        parts: dict[str, list[Tensor]] = {}
        for rows in torch.split(x, self.near.chunk_size):
            for name, values in self._of_chunk(rows).items():
                parts.setdefault(name, []).append(values.double().cpu())
        return {name: torch.cat(values) for name, values in parts.items()}

    def _of_chunk(self, x: Tensor) -> dict[str, Tensor]:
        found = {
            f"{RATIO}, {place}": ratio(one.profile(cr.bind(one.clf, x)))
            for place, one in self.deep.items()
        }
        if found:
            here = ratio(self.near.profile(cr.bind(self.near.clf, x)))
            found[MEAN] = torch.stack([here, *found.values()]).mean(0)
        far, near = self._path(x).profiles
        return found | {FAR_PATH: ratio(far), PATH: ratio(near)}

    def _path(self, x: Tensor) -> cr.CredibilityPath:
        gammas = (self.near.gamma, 16 * self.near.gamma)
        solver = cr.solvers.LBFGS(steps=STEPS)
        variable = cr.bind(self.near.clf, x, top=self.near.top)
        return cr.credibility_path(variable, None, gammas, solver=solver)


def ratio(profile: Any) -> Tensor:
    """How far the predicted class is ahead at x+, in [-1, 1]."""
    return SCORES["predicted_ratio"](profile)


def examiner_at(near: Examiner, name: str, ordinary: Tensor) -> Examiner:
    """The same, with the output of a layer as what moves; gamma is found for it."""
    clf = cr.Classifier(near.clf.net, module=name, loss=near.clf.loss)
    variable = cr.bind(clf, ordinary[:64], top=near.top)
    gamma = auto_gamma(variable)
    return replace(near, clf=clf, gamma=gamma)


def layers_at(net: object, x: Tensor) -> dict[str, str]:
    """The names of the layers at the places of `PLACES`; the layer of the logits is not one."""
    inner = called(net, x)[:-1] if isinstance(net, nn.Module) else []
    if not inner:
        return {}
    found = {inner[round(share * (len(inner) - 1))]: place for place, share in PLACES.items()}
    return {place: name for name, place in found.items()}


def called(net: nn.Module, x: Tensor) -> list[str]:
    """Layers that run once and give a row per sample, in order, from the first one with weights."""
    seen: list[str] = []
    handles = [
        part.register_forward_hook(
            lambda _, __, out, name=name: seen.append(name) if one_row(out) else None
        )
        for name, part in net.named_modules()
        if name and not list(part.children())
    ]
    try:
        with torch.no_grad():
            net(x)
    finally:
        for handle in handles:
            handle.remove()
    once = [name for name in seen if seen.count(name) == 1]
    learned = [bool(list(net.get_submodule(name).parameters())) for name in once]
    return once[learned.index(True) :] if any(learned) else []


def one_row(out: object) -> bool:
    """Whether an output has one row of floating-point numbers, that of the only sample."""
    return isinstance(out, Tensor) and out.is_floating_point() and len(out) == 1 and out.dim() > 1
