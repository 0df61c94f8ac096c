"""How a Judge looks at inputs: first by one forward, then by a profile that is cheap to solve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from credibly.decide.signals import Glance, glance
from credibly.errors import ModelError
from credibly.io.fingerprints import quick_digest
from credibly.io.streams import Batch, LabelName, batches_of
from credibly.model.bind import bind
from credibly.model.classifier import Classifier
from credibly.model.derivatives import FORWARD, losses_only, trackable
from credibly.model.features import LastHidden
from credibly.model.joined import keep_top
from credibly.model.variable import Variable
from credibly.model.views import View
from credibly.model.watched import Watched
from credibly.problem.fit_risk import FitRiskProblem
from credibly.profile.credibility import settings_of, solved_profile
from credibly.profile.decision import decision_profile
from credibly.profile.profile import Profile
from credibly.solve.fixed import FixedDescent
from credibly.solve.lbfgs import LBFGS

SHOWN = LBFGS(steps=16)
"""Solver of profiles that people look at. Steps of fixed length cannot end where F is smallest,
which on models whose inputs move little is another answer."""


@dataclass(frozen=True, eq=False)
class Examiner:
    """The model, and how it is asked.

    Attributes:
        clf: the classifier.
        gamma: the cost of moving an input.
        descent: the solver of profiles.
        hidden: the layer whose input are the features; None if there is none.
        top: how many of the most probable classes a profile is asked over; None for all.
        chunk_size: inputs handled at a time.
        views: functions to other views of an input that keep its class.
        auto: whether the chunk size was found, so that another device may have its own.
        watched: the weights that all is learned of; None for a function.
    """

    clf: Classifier
    gamma: float
    descent: FixedDescent
    hidden: LastHidden | None
    top: int | None
    chunk_size: int
    views: tuple[View, ...] = ()
    auto: bool = False
    watched: Watched | None = None

    def require_same_weights(self, known: str) -> None:
        """Refuse to judge by what was learned of other weights; `known` is their digest."""
        if self.watched is None or not self.watched.changed:
            return
        if quick_digest(self.clf) != known:
            raise ModelError(
                "the weights of the network have changed since the Judge was fitted or loaded",
                remedy="Fit a Judge for the network as it is now: what is ordinary to it is "
                "another question.",
            )
        self.watched.renew()  # they were written, and are the same

    def on(self, clf: Classifier) -> Examiner:
        """The same asked of another copy of the model, such as a faster one."""
        hidden = None if self.hidden is None else LastHidden.of(clf, self.hidden.name)
        return replace(self, clf=clf, hidden=hidden)

    def variables(self, data: Any) -> Iterator[tuple[Variable, Batch]]:
        """What is asked about, in chunks, from anything that holds inputs."""
        yield from variables_of(self.clf, data, self.chunk_size)

    def glance(self, variable: Variable) -> Glance:
        """What one forward, and one of each view, tell of finite inputs."""
        return glance(variable, self.hidden, self.views)

    @property
    def passes(self) -> float:
        """What a glance costs per input; a forward is a third of a pass."""
        return FORWARD * (1 + len(self.views))

    def profile(self, variable: Variable) -> Profile:
        """The profiles of finite inputs, by the descent."""
        problem = problem_of(over_top(variable, self.top), self.gamma)
        settings = settings_of(problem, repr(self.descent), None)
        return decision_profile(problem, self.descent, settings, chunk_size=self.chunk_size)

    def shown_profile(self, variable: Variable) -> Profile:
        """The same to be looked at: x+ itself, where the descent ends a step of it away."""
        problem = problem_of(over_top(variable, self.top), self.gamma)
        return solved_profile(problem, SHOWN, chunk_size=self.chunk_size, recorded=False)


def watched(clf: Classifier) -> Watched | None:
    """The weights of a classifier as they are now."""
    return Watched(clf.original) if isinstance(clf.original, nn.Module) else None


def variables_of(
    clf: Classifier, data: Any, size: int, *, labels: LabelName = None
) -> Iterator[tuple[Variable, Batch]]:
    """The variables of any data, at most `size` samples each, and the labels beside them."""
    for batch in batches_of(clf, data, size=size, labels=labels):
        given = batch.inputs
        variable = given if isinstance(given, Variable) else bind(clf, given)
        for first in range(0, len(variable), size):
            rows = slice(first, first + size)
            beside = None if batch.labels is None else batch.labels[rows]
            # no context stays open while the caller has the chunk: it might never come back
            yield trackable(variable.select(rows)), Batch(None, beside)


def problem_of(variable: Variable, gamma: float) -> FitRiskProblem:
    """The trade-off of a variable with the same weight for all classes."""
    count = len(losses_only(variable.select(slice(0, 1)), variable.start[:1])[0])
    weights = torch.full((count,), gamma, dtype=torch.float64, device=variable.start.device)
    return FitRiskProblem(variable, weights.to(variable.start), variable.limits(None))


def over_top(variable: Variable, top: int | None) -> Variable:
    """The same asked over the most probable classes, the others as one."""
    return variable if top is None else keep_top(variable, top, chunk_size=len(variable))


def classes_of(variable: Variable) -> int:
    """The number of classes."""
    return glance(variable.select(slice(0, 1)), None).logits.shape[1]


def finite_logits(logits: Tensor) -> Tensor:
    """Inputs (n,) whose logits are all finite."""
    return logits.isfinite().all(1).cpu()
