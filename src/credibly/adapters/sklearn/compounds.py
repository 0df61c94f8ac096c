"""Classifiers made of classifiers: one versus rest, soft votes, calibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.adapters.sklearn.context import Context
from credibly.adapters.sklearn.heads import Head, link_probabilities, normalised
from credibly.adapters.sklearn.kernel_machines import SupportVectorHead

Build = Callable[[Any, Context], Head]


class Ensemble(Head):
    """A head made of other heads."""

    def __init__(self, source: str, loss: str, heads: Sequence[Head]) -> None:
        super().__init__(source, loss)
        self.heads = nn.ModuleList(heads)

    def members(self) -> list[Head]:
        """The heads."""
        return [head for head in self.heads if isinstance(head, Head)]


class OneVersusRest(Ensemble):
    """One binary head per class."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([head(x) for head in self.members()], dim=1)

    def decision_function(self, x: Tensor) -> Tensor:
        return torch.cat([head.decision_function(x) for head in self.members()], dim=1)

    def predict_proba(self, x: Tensor) -> Tensor:
        each = [head.predict_proba(x)[:, 1] for head in self.members()]
        return normalised(torch.stack(each, dim=1))


class Average(Ensemble):
    """A weighted mean of probabilities."""

    weights: Tensor

    def __init__(self, source: str, heads: Sequence[Head], weights: Tensor) -> None:
        super().__init__(source, "cross_entropy", heads)
        self.register_buffer("weights", weights / weights.sum())

    def predict_proba(self, x: Tensor) -> Tensor:
        each = torch.stack([head.predict_proba(x) for head in self.members()])
        return torch.einsum("h,hnk->nk", self.weights, each)


class Calibrated(Head):
    """Sigmoids of the scores of a head, normalised."""

    sigmoids: Tensor  # (2, m): slopes and offsets

    def __init__(self, head: Head, sigmoids: Tensor) -> None:
        super().__init__(head.source, "cross_entropy")
        self.head = head
        self.register_buffer("sigmoids", sigmoids)

    def predict_proba(self, x: Tensor) -> Tensor:
        scores = self.head.decision_function(x)
        return link_probabilities(
            -(scores * self.sigmoids[0] + self.sigmoids[1]), "one_versus_rest"
        )


def one_versus_rest(model: Any, context: Context, build: Build) -> Head:
    """The twin of a OneVsRestClassifier."""
    members = zip(model.classes_, model.estimators_, strict=False)
    heads = [build(member, context.inside(f"class {name}")) for name, member in members]
    hinged = all("hinge" in head.loss for head in heads)
    loss = "one_versus_rest_hinge" if hinged else "logistic"
    return OneVersusRest(context.name(model), loss, heads)


def soft_vote(model: Any, context: Context, build: Build) -> Head:
    """The twin of a VotingClassifier that averages probabilities."""
    why = "voting='hard' counts votes, which is piecewise constant: no gradient"
    context.require(model.voting == "soft", model, why, "Fit it with voting='soft'.")
    names = [name for name, member in model.estimators if member != "drop"]
    members = zip(names, model.estimators_, strict=True)
    heads = [build(member, context.inside(name)) for name, member in members]
    weights = model._weights_not_none  # noqa: SLF001
    given = np.ones(len(heads)) if weights is None else weights
    return Average(context.name(model), heads, context.tensor(given))


def calibrated(model: Any, context: Context, build: Build) -> Head:
    """The twin of a CalibratedClassifierCV: the mean over folds of sigmoids of scores."""
    steps = ": it is a step function in places" if model.method == "isotonic" else ""
    why = f"method={model.method!r} has no twin{steps}"
    context.require(model.method == "sigmoid", model, why, "Fit it with method='sigmoid'.")
    folds = model.calibrated_classifiers_
    heads = [_calibrated_fold(fold, model, context, build) for fold in folds]
    return Average(context.name(model), heads, context.tensor(np.ones(len(heads))))


def _calibrated_fold(fold: Any, model: Any, context: Context, build: Build) -> Head:
    inner = fold.estimator
    context.require(
        len(inner.classes_) == len(model.classes_) and hasattr(inner, "decision_function"),
        model,
        "only the calibration of a decision_function over all classes has a twin",
        "Calibrate a model that has one, with folds that contain every class.",
    )
    head = build(inner, context.inside("estimator"))
    context.require(
        not any(isinstance(m, SupportVectorHead) and m.classes > 2 for m in head.modules()),
        model,
        "the decision_function of an SVC of several classes counts votes, which jump",
        "Calibrate OneVsRestClassifier(SVC()) instead.",
    )
    sigmoids = np.array([[c.a_ for c in fold.calibrators], [c.b_ for c in fold.calibrators]])
    return Calibrated(head, context.tensor(sigmoids))
