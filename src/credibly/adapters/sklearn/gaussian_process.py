"""GaussianProcessClassifier: the probabilities of the Laplace approximation."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.adapters.sklearn.context import Context
from credibly.adapters.sklearn.covariances import Both, build_covariance
from credibly.adapters.sklearn.fixed import Fixed
from credibly.adapters.sklearn.heads import Head, normalised
from credibly.adapters.sklearn.kernels import shuffled

# Williams and Barber's sum of five error functions in place of the logistic function
_LAMBDAS = (0.41, 0.4, 0.37, 0.44, 0.39)
_COEFFICIENTS = (-1854.8214151, 3516.89893646, 221.29346712, 128.12323805, -2010.49422654)


def _process(model: Any, context: Context) -> nn.Module:
    """One binary process: x to the probability (n,) of the second class."""
    order = shuffled(len(model.X_train_))
    points = context.tensor(np.asarray(model.X_train_)[order])
    # L is a factor of I + W^1/2 K W^1/2, whose eigenvalues are at least 1: inverting is safe
    whitening = np.linalg.solve(model.L_, np.diag(model.W_sr_))[:, order]
    probability = Fixed(
        _probability,
        weights=context.tensor((model.y_train_ - model.pi_)[order]),
        whitening=context.tensor(whitening).T.contiguous(),
        lambdas=context.tensor(_LAMBDAS),
        coefficients=context.tensor(_COEFFICIENTS),
    )
    return nn.Sequential(build_covariance(model.kernel_, points, context), probability)


def _probability(
    both: Both, weights: Tensor, whitening: Tensor, lambdas: Tensor, coefficients: Tensor
) -> Tensor:
    gram, own = both
    mean = gram @ weights
    variance = own - (gram @ whitening).square().sum(1)
    # scikit-learn's alpha = 1 / (2 variance), written so that nothing is divided by a variance
    inner = lambdas * mean[:, None] / (1 + 2 * variance[:, None] * lambdas.square()).sqrt()
    halves: Tensor = (inner.erf() + 1) * coefficients / 2
    return halves.sum(1)


class GaussianProcessHead(Head):
    """One binary process for two classes, else one per class."""

    least = 1e-9  # below this the sum of error functions, whose terms are thousands, is rounding

    def __init__(self, source: str, processes: list[nn.Module]) -> None:
        super().__init__(source, "cross_entropy")
        self.processes = nn.ModuleList(processes)

    def predict_proba(self, x: Tensor) -> Tensor:
        return normalised(torch.stack([process(x) for process in self.processes], dim=1))


def gaussian_process(model: Any, context: Context) -> Head:
    """The twin of a fitted GaussianProcessClassifier."""
    several = model.n_classes_ > 2
    context.require(
        not several or model.multi_class != "one_vs_one",
        model,
        "multi_class='one_vs_one' decides by votes and has no probabilities",
        "Fit it with multi_class='one_vs_rest'.",
    )
    inner = model.base_estimator_
    found = inner.estimators_ if several else [inner]
    finite = all(hasattr(one, "L_") and bool(np.isfinite(one.W_sr_).all()) for one in found)
    context.require(finite, model, "its posterior is not finite", "Fit it again.")
    return GaussianProcessHead(context.name(model), [_process(one, context) for one in found])
