"""The stages before anything is measured: choose images, attack them, solve their profiles."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import credibly as cr
from credibly.decide import scores
from credibly.model.derivatives import losses_only
from experiments.paper.cache import Cache, Content, Stage
from experiments.paper.settings import Figure
from experiments.paper.world import World


@dataclass(frozen=True)
class Line:
    """The stages of one figure for one network and one space."""

    world: World
    cache: Cache
    figure: Figure
    network: str
    space: str

    def choose(self, images: int) -> Stage:
        """Choose random test images; all of them, in order, if that many are asked for."""
        figure, data = self.figure, self.world.images(self.figure.dataset)

        def compute() -> Content:
            total = len(data.labels)
            order = torch.randperm(total, generator=torch.Generator().manual_seed(figure.seed))
            return Content({"rows": order[:images] if images < total else torch.arange(total)})

        settings = {
            "data": self.world.images_sha256(figure.dataset), "images": images, "seed": figure.seed,
        }  # fmt: skip
        label = f"choose {images} images of {figure.dataset}"
        return Stage("choose", label, 1, settings, (), compute)

    def attack(self, images: int, restarts: int, eps: float, step_size: float) -> Stage:
        """Attack images: (restarts, n, ...) in the units of the space."""
        figure, chosen = self.figure, self.choose(images)
        settings = {
            **self._subject(),
            "attack": "PGD, linf, uniform start, cross-entropy, last iterate",
            "eps": eps,
            "step_size": step_size,
            "steps": figure.steps,
            "restarts": restarts,
            "seed": figure.attack_seed,
            "chunk": figure.chunk,
            "precision": figure.attack_precision,
        }

        def compute() -> Content:
            x, labels = self._inputs(chosen)
            attack = cr.attacks.PGD(
                eps=eps,
                step_size=step_size,
                steps=figure.steps,
                restarts=restarts,
                seed=figure.attack_seed,
                chunk_size=figure.chunk,
                bounds=self.world.network(self.network).box(self.space),
            )
            with _precision(figure.attack_precision, x.device):
                found = attack.all_restarts(self.classifier(), x, labels)
            return Content({"x": found}, {"passes": restarts * len(x) * figure.steps})

        label = f"attack {self._title()} eps {eps:g}, {images} images x {restarts}"
        return Stage("attack", label, 1, settings, (chosen,), compute)

    def solve(
        self, images: int, *, gamma: float, attack: Stage | None = None, restarts: int = 1
    ) -> Stage:
        """Solve the profiles of chosen or attacked images: tensors (restarts, n, ...)."""
        figure, chosen = self.figure, self.choose(images)
        solver = figure.make_solver()
        settings = {
            **self._subject(), "gamma": gamma, "solver": repr(solver), "chunk": figure.chunk,
        }  # fmt: skip

        def compute() -> Content:
            x, labels = self._inputs(chosen)
            if attack is not None:
                x = self.cache.load(attack).tensors["x"].to(x.device).flatten(0, 1)
            profile = cr.credibility(
                self.classifier(), x, gamma=gamma, solver=solver, chunk_size=figure.chunk
            )
            return solved(profile, labels)

        of = "clean" if attack is None else f"eps {attack.settings['eps']:g}"
        label = f"solve {self._title()} {of}, gamma {gamma:g}, {images} images x {restarts}"
        earlier = (chosen,) if attack is None else (chosen, attack)
        return Stage("solve", label, 1, settings, earlier, compute)

    def conditions(self, images: int, restarts: int) -> dict[str, Stage]:
        """Return the solved sets of a figure: 'clean', and one for each eps."""
        gamma = self.figure.gammas[0]
        found = {"clean": self.solve(images, gamma=gamma)}
        for eps, step_size in self.figure.attacks():
            attack = self.attack(images, restarts, eps, step_size)
            found[f"{eps:g}"] = self.solve(images, gamma=gamma, attack=attack, restarts=restarts)
        return found

    def predict(self) -> Stage:
        """Predict whether the model is right on each image of the test set."""
        figure, data = self.figure, self.world.images(self.figure.dataset)

        def compute() -> Content:
            clf = self.classifier()
            parts = [
                losses_only(clf, self.to_space(some)).argmin(1)
                for some in torch.split(data.pixels, figure.chunk)
            ]
            return Content({"correct": torch.cat(parts) == data.labels},
                           {"passes": len(data.labels) / 3})  # fmt: skip

        settings = {**self._subject(), "data": self.world.images_sha256(figure.dataset)}
        return Stage("predict", f"predict {self._title()}", 1, settings, (), compute)

    def classifier(self) -> cr.Classifier:
        """Return the network on the inputs of the space."""
        torch.backends.cudnn.allow_tf32 = self.figure.tf32
        return cr.Classifier(self.world.network(self.network).in_space(self.space))

    def to_space(self, pixels: Tensor) -> Tensor:
        """Convert pixels to the units of the space."""
        return self.world.network(self.network).to_space(self.space, pixels)

    def inputs(self, images: int) -> tuple[Tensor, Tensor]:
        """Return chosen images in the units of the space, and their labels."""
        return self._inputs(self.choose(images))

    def _inputs(self, chosen: Stage) -> tuple[Tensor, Tensor]:
        data = self.world.images(self.figure.dataset)
        rows = self.cache.load(chosen).tensors["rows"].to(data.labels.device)
        return self.to_space(data.pixels[rows]), data.labels[rows]

    def _subject(self) -> dict[str, Any]:
        return {
            "network": self.world.network_sha256(self.network),
            "space": self.space,
            "tf32": self.figure.tf32,
        }

    def _title(self) -> str:
        return f"{self.network} {self.space}"


def _precision(name: str, device: torch.device) -> AbstractContextManager[object]:
    """Run layers in a lower precision, if asked; inputs and gradients stay as they are."""
    if name == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=getattr(torch, name))


def solved(profile: cr.Profile, labels: Tensor) -> Content:
    """Return the parts of profiles that figures need."""
    restarts = len(profile) // len(labels)
    # log(p1 / p2), which orders images as 1 - p2 / p1 does and does not saturate
    first, second = profile.credence.double().topk(2, dim=1).values.unbind(1)
    tensors = {
        "c0": profile.credence,
        "c": profile.credibility,
        "risk": profile.risk,
        "objective": profile.certificate.objective,
        "passes": profile.passes,
        "usable": profile.usable,
        "stationarity": profile.certificate.relative_stationarity,
        # unsolved samples are given up first
        "profile_score": scores.ratio(profile).nan_to_num(nan=-1.0),
        "softmax_score": (first - second).nan_to_num(nan=-1.0),
    }
    shaped = {k: v.reshape(restarts, len(labels), *v.shape[1:]) for k, v in tensors.items()}
    return Content(
        {**shaped, "labels": labels},
        {"passes": float(profile.passes.sum()), "usable": float(profile.usable.double().mean())},
    )
