"""SVC and NuSVC. Several classes are decided in pairs, whose votes have no gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.adapters.sklearn.context import Context, SvcOutputs
from credibly.adapters.sklearn.coupling import coupled, libsvm_coupled, pairwise
from credibly.adapters.sklearn.heads import Head, safe_log
from credibly.adapters.sklearn.kernels import build_kernel, mixed_order, pair_signs
from credibly.errors import ModelError

SHARPNESS = 10.0
"""Of the soft minimum: decisions that differ by more than 1 / 10 count as different."""


class SupportVectorHead(Head):
    """Kernel, then weights of the support vectors.

    For K > 2 classes the output z_k is a soft minimum of class k's K - 1 one-versus-one decisions.
    The class that beats all others, where there is one, wins the vote and has the only positive
    minimum; and z_k = 1 is a margin of one against every other class, as a hinge loss expects.
    The mean of the decisions is cheaper and smoother, but follows the vote less well.
    """

    pair_weights: Tensor  # (s, P), P = K (K - 1) / 2
    pair_bias: Tensor
    signs: Tensor  # (P, K)
    opponents: Tensor  # (K, K - 1): columns of [decisions, -decisions]
    class_weights: Tensor  # (s, K), or (s, 1) for two classes
    class_bias: Tensor
    platt: Tensor | None  # (2, P): slopes and offsets in libsvm's sign

    def __init__(
        self,
        source: str,
        kernel: nn.Module,
        pair_weights: Tensor,
        pair_bias: Tensor,
        platt: Tensor | None,
        *,
        one_versus_one: bool,
        outputs: SvcOutputs,
    ) -> None:
        probabilities = outputs == "probabilities"
        super().__init__(source, "cross_entropy" if probabilities else "one_versus_rest_hinge")
        self.kernel, self.outputs = kernel, outputs
        self.one_versus_one_shape = one_versus_one
        pairs = pair_weights.shape[1]
        self.classes = round((1 + (1 + 8 * pairs) ** 0.5) / 2)
        signs = torch.as_tensor(pair_signs(self.classes), dtype=pair_weights.dtype)
        # of two classes scikit-learn's decision speaks for the second
        mean = signs / (self.classes - 1) if self.classes > 2 else torch.ones_like(signs[:, :1])
        for name, value in {
            "pair_weights": pair_weights,
            "pair_bias": pair_bias,
            "signs": signs,
            "opponents": torch.cat([signs, -signs])
            .T.eq(1)
            .nonzero()[:, 1]
            .reshape(len(signs.T), -1),
            "class_weights": pair_weights @ mean,
            "class_bias": pair_bias @ mean,
            "platt": platt,
        }.items():
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Tensor:
        if self.outputs == "probabilities":
            logits = self._platt_logits(x)
            if self.classes == 2:
                return -logits
            return safe_log(coupled(pairwise(logits, self.classes)))
        if self.classes == 2 or self.outputs == "mean":
            return torch.addmm(self.class_bias, self.kernel(x), self.class_weights)
        decisions = self.one_versus_one(x)
        against = torch.cat([decisions, -decisions], dim=1)[:, self.opponents]  # (n, K, K - 1)
        total: Tensor = torch.logsumexp(-SHARPNESS * against, dim=2) - np.log(self.classes - 1)
        return -total / SHARPNESS

    def one_versus_one(self, x: Tensor) -> Tensor:
        """The raw decisions (n, P), positive for the first class of a pair; (n, 1) for two."""
        return torch.addmm(self.pair_bias, self.kernel(x), self.pair_weights)

    def decision_function(self, x: Tensor) -> Tensor:
        decisions = self.one_versus_one(x)
        if self.classes == 2 or self.one_versus_one_shape:
            return decisions
        chosen = torch.where(decisions[:, :, None] >= 0, self.signs > 0, self.signs < 0)
        confidence = decisions @ self.signs
        return chosen.to(x.dtype).sum(1) + confidence / (3 * (confidence.abs() + 1))

    def predict_proba(self, x: Tensor) -> Tensor:
        return libsvm_coupled(pairwise(self._platt_logits(x), self.classes))

    def _platt_logits(self, x: Tensor) -> Tensor:
        """Logits (n, P) of the first class of each pair against the second."""
        if self.platt is None:
            raise no_probabilities(self.source)
        decisions = self.one_versus_one(x)
        decisions = -decisions if self.classes == 2 else decisions  # libsvm's own sign
        return -(decisions * self.platt[0] + self.platt[1])


def support_vectors(model: Any, context: Context) -> Head:
    """The twin of a fitted SVC or NuSVC."""
    order = mixed_order(model.n_support_)
    settings = {"gamma": model._gamma, "coef0": model.coef0, "degree": model.degree}  # noqa: SLF001
    if model.kernel == "precomputed" or callable(model.kernel):
        points: Any = np.zeros((1, 1))  # refused below
    else:
        points = model.support_vectors_[order]
    kernel = build_kernel(model, context, model.kernel, points, settings)
    weights = context.tensor(_pair_weights(model)[order])
    if model.kernel == "linear":  # the support vectors add up to one normal a pair
        kernel, weights = nn.Identity(), context.tensor(points).T @ weights
    slopes, offsets = np.ravel(model._probA), np.ravel(model._probB)  # noqa: SLF001
    platt = context.tensor(np.stack([slopes, offsets])) if len(slopes) else None
    if context.svc_outputs == "probabilities" and platt is None:
        raise no_probabilities(context.name(model))
    return SupportVectorHead(
        context.name(model),
        kernel,
        weights,
        context.tensor(model.intercept_),
        platt,
        one_versus_one=model.decision_function_shape == "ovo",
        outputs=context.svc_outputs,
    )


def no_probabilities(source: str) -> ModelError:
    """What to say where the model was fitted without them."""
    return ModelError(
        f"{source}: it was fitted without probabilities",
        remedy="Leave out svc_outputs, or fit with probability=True (deprecated since scikit-learn "
        "1.9). For two classes CalibratedClassifierCV(SVC(), ensemble=False) has a twin, too.",
    )


def _pair_weights(model: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Weights (s, P): libsvm stores them by class, K - 1 numbers a support vector."""
    stored = model.dual_coef_
    stored = stored.toarray() if hasattr(stored, "toarray") else np.asarray(stored)
    classes = len(model.classes_)
    if classes == 2:
        return np.asarray(stored.T)
    ends = np.cumsum(model.n_support_)
    rows = [slice(end - size, end) for end, size in zip(ends, model.n_support_, strict=True)]
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    weights = np.zeros((stored.shape[1], len(pairs)))
    for column, (i, j) in enumerate(pairs):
        weights[rows[i], column] = stored[j - 1, rows[i]]
        weights[rows[j], column] = stored[i, rows[j]]
    return weights
