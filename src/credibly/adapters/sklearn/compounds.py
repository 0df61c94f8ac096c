"""Classifiers made of classifiers: one versus rest, soft votes, calibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.adapters.sklearn.context import Context
from credibly.adapters.sklearn.heads import Head, safe_log
from credibly.adapters.sklearn.linear import refuse_many_labels
from credibly.adapters.sklearn.support_vectors import SupportVectorHead

Build = Callable[[Any, Context], Head]


class OneVersusRest(Head):
    """One binary head a class, each a question of its own."""

    def __init__(self, source: str, heads: Sequence[Head]) -> None:
        hinged = all("hinge" in head.loss for head in heads)
        super().__init__(source, "one_versus_rest_hinge" if hinged else "logistic")
        self.heads = nn.ModuleList(heads)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([head(x) for head in self.heads], dim=1)

    def decision_function(self, x: Tensor) -> Tensor:
        return torch.cat([head.decision_function(x) for head in self._members()], dim=1)

    def predict_proba(self, x: Tensor) -> Tensor:
        each = torch.stack([head.predict_proba(x)[:, 1] for head in self._members()], dim=1)
        if each.shape[1] == 1:
            return torch.cat([1 - each, each], dim=1)
        total = each.sum(1, keepdim=True)
        return each / torch.where(total == 0, 1.0, total)

    def _members(self) -> list[Head]:
        return [head for head in self.heads if isinstance(head, Head)]


class Average(Head):
    """A weighted mean of probabilities; the output is its logarithm."""

    weights: Tensor

    def __init__(self, source: str, heads: Sequence[Head], weights: Tensor) -> None:
        super().__init__(source, "cross_entropy")
        self.heads = nn.ModuleList(heads)
        self.register_buffer("weights", weights / weights.sum())

    def forward(self, x: Tensor) -> Tensor:
        logs = safe_log(self.predict_proba(x))
        return logs if logs.shape[1] > 2 else logs[:, 1:] - logs[:, :1]

    def predict_proba(self, x: Tensor) -> Tensor:
        members = [head for head in self.heads if isinstance(head, Head)]
        each = torch.stack([head.predict_proba(x) for head in members])
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
        logits = -(scores * self.sigmoids[0] + self.sigmoids[1])
        if logits.shape[1] == 1:
            return torch.sigmoid(torch.cat([-logits, logits], dim=1))
        each = torch.sigmoid(logits)
        return each / each.sum(1, keepdim=True)


def one_versus_rest(model: Any, context: Context, build: Build) -> Head:
    """Every class has its own fitted binary model."""
    if model.multilabel_:
        raise context.refusal(
            model,
            "it was fitted on several labels a sample",
            remedy="Fit it with one class a sample.",
        )
    heads = []
    for name, member in zip(model.classes_, model.estimators_, strict=False):
        heads.append(build(member, context.inside(f"class {name}")))
    return OneVersusRest(context.name(model), heads)


def soft_vote(model: Any, context: Context, build: Build) -> Head:
    """Averages probabilities; a count of votes has no gradient."""
    if model.voting != "soft":
        raise context.refusal(
            model,
            "voting='hard' counts votes, which is piecewise constant: no gradient",
            remedy="Fit it with voting='soft'.",
        )
    names = [name for name, member in model.estimators if member != "drop"]
    heads = [
        build(member, context.inside(name))
        for name, member in zip(names, model.estimators_, strict=True)
    ]
    weights = model._weights_not_none  # noqa: SLF001
    given = np.ones(len(heads)) if weights is None else np.asarray(weights, dtype=float)
    return Average(context.name(model), heads, context.tensor(given))


def calibrated(model: Any, context: Context, build: Build) -> Head:
    """The mean over folds of calibrated scores; sigmoid calibration only."""
    if model.method != "sigmoid":
        raise context.refusal(
            model,
            f"method={model.method!r} has no twin"
            + (": it is a step function in places" if model.method == "isotonic" else ""),
            remedy="Fit it with method='sigmoid'.",
        )
    heads = [
        _calibrated_fold(fold, model, context, build) for fold in model.calibrated_classifiers_
    ]
    return Average(context.name(model), heads, context.tensor(np.ones(len(heads))))


def _calibrated_fold(fold: Any, model: Any, context: Context, build: Build) -> Head:
    inner = fold.estimator
    if len(inner.classes_) != len(model.classes_) or not hasattr(inner, "decision_function"):
        raise context.refusal(
            model,
            "only the calibration of a decision_function over all classes has a twin",
            remedy="Calibrate a model that has one, with folds that hold every class.",
        )
    refuse_many_labels(inner, context)
    head = build(inner, context.inside("estimator"))
    if any(isinstance(m, SupportVectorHead) and m.classes > 2 for m in head.modules()):
        raise context.refusal(
            model,
            "the decision_function of an SVC of several classes counts votes, which jump",
            remedy="Calibrate OneVsRestClassifier(SVC()) instead.",
        )
    sigmoids = np.array([[c.a_ for c in fold.calibrators], [c.b_ for c in fold.calibrators]])
    return Calibrated(head, context.tensor(sigmoids))
