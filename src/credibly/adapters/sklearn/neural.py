"""MLPClassifier and KernelRidge."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from credibly.adapters.sklearn.context import Context
from credibly.adapters.sklearn.heads import Head, ScoreHead, UnscoredHead
from credibly.adapters.sklearn.kernels import build_kernel, shuffled
from credibly.adapters.sklearn.linear import Affine

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "identity": nn.Identity,
    "logistic": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
}


def multilayer_perceptron(model: Any, context: Context) -> Head:
    """Logits before the last activation."""
    if model.out_activation_ == "logistic" and model.n_outputs_ > 1:
        raise context.refusal(
            model,
            "it was fitted on several labels a sample",
            remedy="Fit one classifier a label, with one class a sample each.",
        )
    layers: list[nn.Module] = []
    for weight, bias in zip(model.coefs_, model.intercepts_, strict=True):
        layers += [Affine(context.tensor(weight).T.contiguous(), context.tensor(bias))]
        layers += [_ACTIVATIONS[model.activation]()]
    net = nn.Sequential(*layers[:-1])
    return UnscoredHead(context.name(model), "cross_entropy", net, "softmax")


class KernelExpansion(nn.Module):
    """sum_i a_i k(x, x_i)."""

    weights: Tensor

    def __init__(self, kernel: nn.Module, weights: Tensor) -> None:
        super().__init__()
        self.kernel = kernel
        self.register_buffer("weights", weights)

    def forward(self, x: Tensor) -> Tensor:
        return torch.mm(self.kernel(x), self.weights)


def kernel_ridge(model: Any, context: Context) -> Head:
    """Scores of targets +1 for the class and 0 or -1 for the others."""
    settings = {"gamma": model.gamma, "coef0": model.coef0, "degree": model.degree}
    order = shuffled(len(model.dual_coef_))
    kernel = build_kernel(model, context, model.kernel, model.X_fit_[order], settings)
    weights = context.tensor(model.dual_coef_[order])
    weights = weights[:, None] if weights.dim() == 1 else weights
    expansion = KernelExpansion(kernel, weights)
    return ScoreHead(context.name(model), "one_versus_rest_hinge", expansion, None)
