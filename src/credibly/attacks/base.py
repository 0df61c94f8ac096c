"""What an attack is: a value with settings, called on a classifier, inputs and labels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from credibly._validation import choice, positive, real_number, require, whole
from credibly.attacks.ball import Ball, Box, Norm, check_box, plain_box
from credibly.attacks.noise import sample_keys, with_stream
from credibly.attacks.system import System, check_classes, choose, worst_verdict
from credibly.model.bind import bind
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import gradient_of, losses_only, ordinary
from credibly.model.variable import Inputs
from credibly.types import Array, Labels, finite_rows, per_sample

SEE_DOCS = "See docs/how-to/attacks.md for what each setting means."


@dataclass(frozen=True)
class Task:
    """A chunk of work: balls, labels and random keys of some samples and restarts."""

    clf: Classifier
    ball: Ball
    labels: Tensor
    target: Tensor | None
    keys: Tensor
    restart: Tensor

    def select(self, rows: Tensor, restart: Tensor) -> Task:
        """The chosen samples, each with the number of its restart."""
        return Task(
            self.clf,
            self.ball.select(rows),
            self.labels[rows],
            None if self.target is None else self.target[rows],
            with_stream(self.keys[rows], restart),
            restart.expand(len(rows)),
        )


@dataclass(frozen=True, kw_only=True)
class Attack(ABC):
    """Settings that all attacks share.

    Attributes:
        eps: radius of the ball around each input, in the units of the inputs.
        norm: 'linf' or 'l2'.
        bounds: smallest and largest value of a feature, such as (0.0, 1.0), or None. Each may be
            a tuple with one number per channel (axis 1), for normalised images. Tensors and arrays
            of one number per channel become tuples.
        steps: steps of each restart.
        step_size: length of a step in the norm of the ball; None: 2.5 eps / steps.
        restarts: independent starts; the worst for the system is returned.
        seed: of the random starts, which depend only on it and on the sample.
        chunk_size: samples attacked at a time, restarts counted; it bounds memory.
        system: how the deployed decision is made.

    Example: see `PGD`.
    """

    eps: float
    norm: Norm = "linf"
    bounds: Box | None = None
    steps: int = 100
    step_size: float | None = None
    restarts: int = 1
    seed: int = 0
    chunk_size: int = 256
    system: System = field(default_factory=System)

    needs_gradient: ClassVar[bool] = True
    needs_profile: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", plain_box(self.bounds))  # settings are plain values
        radius = real_number(self.eps)
        good = radius is not None and math.isfinite(radius) and radius >= 0
        require(good, "eps", "a finite number >= 0", repr(self.eps), SEE_DOCS)
        choice("norm", self.norm, ("linf", "l2"), SEE_DOCS)
        for name in ("steps", "restarts", "chunk_size"):
            whole(name, getattr(self, name))
        if self.step_size is not None:
            positive("step_size", self.step_size)
        whole("seed", self.seed, least=0, remedy=SEE_DOCS)
        require(isinstance(self.system, System), "system", "a System", repr(self.system), SEE_DOCS)
        weighed = not self.needs_profile or self.system.weighed
        remedy = "For example system=System.most_credible(gamma=200.0)."
        require(weighed, "system", "a system with gamma or weights", repr(self.system), remedy)

    def __call__(
        self, clf: Classifier, x: Array, labels: Labels, *, target: Labels | None = None
    ) -> Tensor:
        """Perturbed inputs (n, ...): for each sample the one that is worst for the system.

        Args:
            clf: the classifier.
            x: inputs (n, ...) inside the bounds. Rows with NaN or infinity are returned unchanged.
            labels: their true classes (n,).
            target: classes the attacker wants instead (n,); None: any wrong one.
        """
        task = self._task(clf, x, labels, target)
        parts = [self._worst(part) for part in self._parts(task)]
        return self._joined(task, torch.cat(parts)[None])[0]

    def all_restarts(
        self, clf: Classifier, x: Array, labels: Labels, *, target: Labels | None = None
    ) -> Tensor:
        """What every restart found: (candidates, n, ...); most attacks have one per restart."""
        task = self._task(clf, x, labels, target)
        parts = [self._candidates(part) for part in self._parts(task)]
        return self._joined(task, torch.cat(parts, dim=1))

    @abstractmethod
    def run(self, task: Task) -> list[Tensor]:
        """Candidates, each shaped like the inputs of the task."""

    def on(self, system: System) -> Self:
        """The same attack on another system."""
        return replace(self, system=system)

    @property
    def step_length(self) -> float:
        """The length of a step, also where it is left to the attack."""
        return 2.5 * self.eps / self.steps if self.step_size is None else float(self.step_size)

    def _task(self, clf: Classifier, x: Array, labels: Labels, target: Labels | None) -> Task:
        variable = bind(clf, x)
        one = isinstance(variable, Inputs)
        remedy = "Attack the model on the tensor that may move."
        require(one, "clf", "a classifier of one tensor", variable.describe(), remedy)
        clf, x0 = variable.clf, variable.start
        bounds = check_box(self.bounds, x0)
        with torch.inference_mode(False):
            x0 = ordinary(x0)
            if self.needs_gradient:
                check_model(Inputs(clf, x0))
            count = losses_only(clf, x0[:1].nan_to_num(0.0, 0.0, 0.0)).shape[1]
            known, wanted = check_classes(labels, target, x0, count)
            different = wanted is None or not bool((wanted == known).any())
            remedy = "An attack that may end at any wrong class needs no target."
            require(different, "target", "classes other than the labels", "labels", remedy)
            ball = Ball.around(x0, self.eps, self.norm, bounds)
            keys = sample_keys(x0, self.seed)
            return Task(clf, ball, known, wanted, keys, torch.zeros_like(known))

    def _parts(self, task: Task) -> list[Task]:
        """Groups of samples that fit a chunk together with their restarts."""
        size = max(1, self.chunk_size // self.restarts)
        count = torch.arange(len(task.labels), device=task.labels.device)
        zero = torch.zeros(1, dtype=torch.long, device=task.labels.device)
        return [task.select(rows, zero) for rows in torch.split(count, size)]

    def _candidates(self, task: Task) -> Tensor:
        """All restarts of a group of samples, in one batch where they fit: (R, m, ...)."""
        count = len(task.labels)
        pairs = torch.arange(count * self.restarts, device=task.labels.device)
        found: list[list[Tensor]] = []
        with torch.inference_mode(False):
            for some in torch.split(pairs, self.chunk_size):
                chosen = task.select(some % count, some // count)
                found.append([chosen.ball.finished(c) for c in self.run(chosen)])
        shape = (self.restarts, *task.ball.x0.shape)
        return torch.cat([torch.cat(parts).reshape(shape) for parts in zip(*found, strict=True)])

    def _worst(self, task: Task) -> Tensor:
        found = self._candidates(task)
        if len(found) == 1:
            return found[0]
        judged = [self.system.judge(task.clf, x, task.labels, target=task.target) for x in found]
        return choose(found, worst_verdict(judged))

    @staticmethod
    def _joined(task: Task, found: Tensor) -> Tensor:
        """Rows that could not be attacked stay as they are."""
        known = torch.isfinite(found).flatten(2).all(2) & finite_rows(task.ball.x0)
        rows = known.reshape(*known.shape, *[1] * (found.dim() - 2))
        return torch.where(rows, found, task.ball.x0)


@dataclass(frozen=True, kw_only=True)
class Ascent(Attack):
    """Projected gradient steps on an objective that each attack defines."""

    def run(self, task: Task) -> list[Tensor]:
        x = self.start(task)
        objective = self.objective(task)
        best, lowest = x, torch.full_like(x.flatten(1)[:, 0], torch.inf)
        for _ in range(self.steps):
            values, slope = gradient_of(task.clf, x, objective)
            if self.keeps_best:
                best, lowest = _keep_lower(best, lowest, x, values)
            x = task.ball.step(x, -slope, self.step_length)
        if not self.keeps_best:
            return [x]
        return [_keep_lower(best, lowest, x, gradient_of(task.clf, x, objective)[0])[0]]

    @property
    def keeps_best(self) -> bool:
        """Whether the best point on the way is returned, or the last one."""
        return True

    def start(self, task: Task) -> Tensor:
        """Where each sample and restart begins."""
        return task.ball.start(task.keys)

    @abstractmethod
    def objective(self, task: Task) -> Callable[[Tensor], Tensor]:
        """The function of the inputs whose values (m,) are lowered."""


def _keep_lower(best: Tensor, lowest: Tensor, x: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The points with the smaller values, and these values."""
    better = values < lowest
    return torch.where(per_sample(better, x), x, best), torch.where(better, values, lowest)
