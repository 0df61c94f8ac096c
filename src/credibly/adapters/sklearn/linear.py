"""Models that are linear in their features, and two that are quadratic."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from credibly.adapters.sklearn.context import Context
from credibly.adapters.sklearn.heads import Head, Link, ScoreHead, UnscoredHead


class Affine(nn.Module):
    """W x + b."""

    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias.reshape(-1).expand(len(weight)).clone())

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)


def linear_head(model: Any, context: Context, loss: str, link: Link | None) -> Head:
    """A head from `coef_` and `intercept_`."""
    refuse_many_labels(model, context)
    weight = context.tensor(model.coef_)
    weight = weight.reshape(1, -1) if weight.dim() == 1 else weight
    scores = Affine(weight, context.tensor(model.intercept_))
    return ScoreHead(context.name(model), loss, scores, link)


def logistic_regression(model: Any, context: Context) -> Head:
    """K logits of a softmax, or one logit; older versions could also fit one versus rest."""
    kind = getattr(model, "multi_class", "auto")
    several = len(model.classes_) > 2
    if kind == "multinomial" and not several:
        raise context.refusal(
            model,
            "multi_class='multinomial' with two classes doubles the logit",
            remedy="Fit it with the default multi_class.",
        )
    separate = several and (kind == "ovr" or model.solver == "liblinear")
    if separate:
        return linear_head(model, context, "logistic", "one_versus_rest")
    return linear_head(model, context, "cross_entropy", "softmax")


def sgd(model: Any, context: Context) -> Head:
    """One versus rest throughout; only log_loss has a smooth probability."""
    if model.loss == "log_loss":
        return linear_head(model, context, "logistic", "one_versus_rest")
    return hinged(model, context)


def hinged(model: Any, context: Context) -> Head:
    """Targets or margins of +1 and -1, one versus rest."""
    return linear_head(model, context, "one_versus_rest_hinge", None)


def linear_svc(model: Any, context: Context) -> Head:
    """One versus rest, or all classes at once (Crammer and Singer)."""
    joint = model.multi_class == "crammer_singer"
    return linear_head(model, context, "hinge" if joint else "one_versus_rest_hinge", None)


def linear_discriminant(model: Any, context: Context) -> Head:
    """Log posteriors up to a constant."""
    return linear_head(model, context, "cross_entropy", "softmax")


class Quadratic(nn.Module):
    """b_k - |A_k (x - m_k)|^2 / 2 for every class; the difference where there are two."""

    factors: Tensor  # (K, d, r)
    means: Tensor  # (K, d)
    bias: Tensor  # (K,)

    def __init__(self, factors: Tensor, means: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.register_buffer("factors", factors)
        self.register_buffer("means", means)
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        white = torch.einsum("nkd,kdr->nkr", x[:, None] - self.means, self.factors)
        values = self.bias - white.square().sum(2) / 2
        return values if values.shape[1] > 2 else values[:, 1:] - values[:, :1]


def quadratic_discriminant(model: Any, context: Context) -> Head:
    """Log posteriors of one full Gaussian a class."""
    if not hasattr(model, "rotations_") or not hasattr(model, "scalings_"):
        raise context.refusal(
            model, "its covariances are not kept as rotations", remedy="Use solver='svd'."
        )
    rank = max(len(scaling) for scaling in model.scalings_)
    parts = [
        np.pad(rotation / np.sqrt(scaling), ((0, 0), (0, rank - len(scaling))))
        for rotation, scaling in zip(model.rotations_, model.scalings_, strict=True)
    ]
    bias = [-np.log(scaling).sum() / 2 for scaling in model.scalings_] + np.log(model.priors_)
    scores = Quadratic(
        context.tensor(np.stack(parts)), context.tensor(model.means_), context.tensor(bias)
    )
    return ScoreHead(context.name(model), "cross_entropy", scores, "softmax")


def gaussian_naive_bayes(model: Any, context: Context) -> Head:
    """Log posteriors of one diagonal Gaussian a class."""
    factors = np.stack([np.diag(1 / np.sqrt(variances)) for variances in model.var_])
    bias = np.log(model.class_prior_) - np.log(2 * np.pi * model.var_).sum(1) / 2
    scores = Quadratic(context.tensor(factors), context.tensor(model.theta_), context.tensor(bias))
    return UnscoredHead(context.name(model), "cross_entropy", scores, "softmax")


def refuse_many_labels(model: Any, context: Context) -> None:
    """One class a sample is what a profile is about."""
    binarizer = getattr(model, "_label_binarizer", None)
    if getattr(binarizer, "y_type_", "").startswith("multilabel"):
        raise context.refusal(
            model,
            "it was fitted on several labels a sample",
            remedy="Fit one classifier a label, with one class a sample each.",
        )
