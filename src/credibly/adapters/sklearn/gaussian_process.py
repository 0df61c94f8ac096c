"""GaussianProcessClassifier: the probabilities of the Laplace approximation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.adapters.sklearn.context import Context
from credibly.adapters.sklearn.covariances import Covariance, build_covariance
from credibly.adapters.sklearn.heads import Head, safe_log
from credibly.adapters.sklearn.kernels import shuffled

# Williams and Barber's sum of five error functions in place of the logistic function
_LAMBDAS = (0.41, 0.4, 0.37, 0.44, 0.39)
_COEFFICIENTS = (-1854.8214151, 3516.89893646, 221.29346712, 128.12323805, -2010.49422654)
_LEAST = 1e-9
"""Below this the sum of error functions, whose terms are thousands, is rounding."""


class LatentProcess(nn.Module):
    """Mean and variance of the latent function of one binary process, and its probability."""

    weights: Tensor
    whitening: Tensor
    lambdas: Tensor
    coefficients: Tensor

    def __init__(self, model: Any, context: Context) -> None:
        super().__init__()
        order = shuffled(len(model.X_train_))
        points = context.tensor(np.asarray(model.X_train_)[order])
        self.covariance: Covariance = build_covariance(model.kernel_, points, context)
        # L is a factor of I + W^1/2 K W^1/2, whose eigenvalues are at least 1: inverting is safe
        whitening = np.linalg.solve(model.L_, np.diag(model.W_sr_))[:, order]
        self.register_buffer("weights", context.tensor((model.y_train_ - model.pi_)[order]))
        self.register_buffer("whitening", context.tensor(whitening).T.contiguous())
        self.register_buffer("lambdas", context.tensor(_LAMBDAS))
        self.register_buffer("coefficients", context.tensor(_COEFFICIENTS))

    def forward(self, x: Tensor) -> Tensor:
        """Probability (n,) of the second class."""
        gram = self.covariance(x)
        mean = gram @ self.weights
        variance = self.covariance.diagonal(x) - (gram @ self.whitening).square().sum(1)
        # scikit-learn's alpha = 1 / (2 variance), written so that no variance divides
        inner = self.lambdas * mean[:, None]
        inner = inner / (1 + 2 * variance[:, None] * self.lambdas.square()).sqrt()
        halves: Tensor = (inner.erf() + 1) * self.coefficients / 2
        return halves.sum(1)


class GaussianProcessHead(Head):
    """One process: its logit. One a class: logarithms of the normalised probabilities."""

    def __init__(self, source: str, processes: list[LatentProcess]) -> None:
        super().__init__(source, "cross_entropy")
        self.processes = nn.ModuleList(processes)

    def forward(self, x: Tensor) -> Tensor:
        logs = safe_log(self.predict_proba(x), _LEAST)
        return logs if logs.shape[1] > 2 else logs[:, 1:] - logs[:, :1]

    def predict_proba(self, x: Tensor) -> Tensor:
        each = torch.stack([process(x) for process in self.processes], dim=1)
        if each.shape[1] == 1:
            return torch.cat([1 - each, each], dim=1)
        return each / each.sum(1, keepdim=True)


def gaussian_process(model: Any, context: Context) -> Head:
    """The twin of a fitted GaussianProcessClassifier."""
    inner = model.base_estimator_
    if model.n_classes_ > 2 and model.multi_class == "one_vs_one":
        raise context.refusal(
            model,
            "multi_class='one_vs_one' decides by votes and has no probabilities",
            remedy="Fit it with multi_class='one_vs_rest'.",
        )
    processes = inner.estimators_ if model.n_classes_ > 2 else [inner]
    if any(not hasattr(process, "L_") for process in processes) or math.isinf(
        float(np.max(processes[0].W_sr_))
    ):
        raise context.refusal(model, "its posterior is not finite", remedy="Fit it again.")
    return GaussianProcessHead(
        context.name(model), [LatentProcess(process, context) for process in processes]
    )
