"""Models of affine layers, and two with quadratic log posteriors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.adapters.sklearn.context import Context, Fixed, affine
from credibly.adapters.sklearn.heads import Head, Link, ScoreHead

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "identity": nn.Identity,
    "logistic": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
}


def linear_head(model: Any, context: Context, loss: str, link: Link | None) -> Head:
    """A head from `coef_` and `intercept_`."""
    weight = context.tensor(model.coef_)
    weight = weight.reshape(1, -1) if weight.dim() == 1 else weight
    scores = affine(weight, context.tensor(model.intercept_))
    return ScoreHead(context.name(model), loss, scores, link)


def softmax_head(model: Any, context: Context) -> Head:
    """Log posteriors up to a constant."""
    return linear_head(model, context, "cross_entropy", "softmax")


def logistic_head(model: Any, context: Context) -> Head:
    """One logit per class against the rest."""
    return linear_head(model, context, "logistic", "one_versus_rest")


def hinge_head(model: Any, context: Context) -> Head:
    """Targets or margins of +1 and -1, one versus rest."""
    return linear_head(model, context, "one_versus_rest_hinge", None)


def logistic_regression(model: Any, context: Context) -> Head:
    """K logits of a softmax, or one logit; older versions could also fit one versus rest."""
    kind = getattr(model, "multi_class", "auto")
    several = len(model.classes_) > 2
    why = "multi_class='multinomial' with two classes doubles the logit"
    remedy = "Fit it with the default multi_class."
    context.require(several or kind != "multinomial", model, why, remedy)
    separate = several and (kind == "ovr" or model.solver == "liblinear")
    return logistic_head(model, context) if separate else softmax_head(model, context)


def sgd(model: Any, context: Context) -> Head:
    """One versus rest throughout; only log_loss has a smooth probability."""
    return (logistic_head if model.loss == "log_loss" else hinge_head)(model, context)


def linear_svc(model: Any, context: Context) -> Head:
    """One versus rest, or all classes at once (Crammer and Singer)."""
    if model.multi_class == "crammer_singer":
        return linear_head(model, context, "hinge", None)
    return hinge_head(model, context)


def quadratic_discriminant(model: Any, context: Context) -> Head:
    """Log posteriors of one full Gaussian per class."""
    kept = hasattr(model, "rotations_") and hasattr(model, "scalings_")
    why = "its covariances are not kept as rotations"
    context.require(kept, model, why, "Fit it with solver='svd'.")
    rank = max(len(scaling) for scaling in model.scalings_)
    factors = [
        np.pad(rotation / np.sqrt(scaling), ((0, 0), (0, rank - len(scaling))))
        for rotation, scaling in zip(model.rotations_, model.scalings_, strict=True)
    ]
    bias = [-np.log(scaling).sum() / 2 for scaling in model.scalings_] + np.log(model.priors_)
    return _gaussian_head(model, context, factors, model.means_, bias)


def gaussian_naive_bayes(model: Any, context: Context) -> Head:
    """Log posteriors of one diagonal Gaussian per class."""
    factors = [np.diag(1 / np.sqrt(variances)) for variances in model.var_]
    bias = np.log(model.class_prior_) - np.log(2 * np.pi * model.var_).sum(1) / 2
    return _gaussian_head(model, context, factors, model.theta_, bias, decides=False)


def _gaussian_head(
    model: Any, context: Context, factors: Any, means: Any, bias: Any, *, decides: bool = True
) -> Head:
    values = {"factors": np.stack(factors), "means": means, "bias": bias}
    scores = Fixed(_log_posteriors, **{name: context.tensor(v) for name, v in values.items()})
    return ScoreHead(context.name(model), "cross_entropy", scores, "softmax", decides=decides)


def _log_posteriors(x: Tensor, factors: Tensor, means: Tensor, bias: Tensor) -> Tensor:
    """b_k - |A_k (x - m_k)|^2 / 2 for every class; the difference for two."""
    white = torch.einsum("nkd,kdr->nkr", x[:, None] - means, factors)
    values = bias - white.square().sum(2) / 2
    return values if values.shape[1] > 2 else values[:, 1:] - values[:, :1]


def multilayer_perceptron(model: Any, context: Context) -> Head:
    """The logits of an MLPClassifier, before the last activation."""
    layers: list[nn.Module] = []
    for weight, bias in zip(model.coefs_, model.intercepts_, strict=True):
        layers += [affine(context.tensor(weight).T.contiguous(), context.tensor(bias))]
        layers += [_ACTIVATIONS[model.activation]()]
    net = nn.Sequential(*layers[:-1])
    return ScoreHead(context.name(model), "cross_entropy", net, "softmax", decides=False)
