"""SVC, NuSVC and KernelRidge. An SVC decides several classes by votes, which have no gradient.

Probabilities of pairs become one distribution by the second method of Wu, Lin and Weng (2004): it
minimises p^T Q p over distributions p, with Q_tt = sum_j r_jt^2 and Q_tj = -r_jt r_tj. libsvm
stops its iteration early, at an error of 0.005 / K, so its answer jumps a little where the number
of iterations changes. `coupled` is the exact minimiser, which is smooth.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.adapters.sklearn.context import Context, Fixed
from credibly.adapters.sklearn.heads import Head, ScoreHead, safe_log
from credibly.adapters.sklearn.kernels import build_kernel, mixed_order, shuffled
from credibly.errors import ModelError

_LEAST = 1e-7
"""libsvm keeps pairwise probabilities this far from 0 and 1."""


def pairwise(logits: Tensor, classes: int) -> Tensor:
    """Matrices r (n, K, K), r_ij the probability of i against j, from logits (n, P)."""
    i, j = torch.triu_indices(classes, classes, offset=1, device=logits.device)
    rows = torch.arange(len(logits), device=logits.device)[:, None]
    wins = torch.sigmoid(logits).clamp(_LEAST, 1 - _LEAST)
    r = logits.new_zeros(len(logits), classes, classes)
    return r.index_put((rows, i, j), wins).index_put((rows, j, i), 1 - wins)


def quadratic_form(r: Tensor) -> Tensor:
    """Q (n, K, K)."""
    diagonal = r.square().sum(1)  # over j of r_jt
    return torch.diag_embed(diagonal) - r * r.mT


def coupled(r: Tensor) -> Tensor:
    """The minimiser (n, K), by the linear system of its optimality conditions."""
    system = torch.nn.functional.pad(quadratic_form(r), (0, 1, 0, 1), value=1.0)
    corner = system.new_zeros(system.shape[1:])
    corner[-1, -1] = 1.0
    solved: Tensor = torch.linalg.solve(system - corner, corner[-1].expand(len(r), -1))
    return solved[:, :-1]


def libsvm_coupled(r: Tensor) -> Tensor:
    """What libsvm returns (n, K): the same iteration, stopped per sample where libsvm stops."""
    q = quadratic_form(r)
    classes = r.shape[1]
    p = torch.full_like(r[:, 0], 1.0 / classes)
    for _ in range(max(100, classes)):
        qp = torch.einsum("ntj,nj->nt", q, p)
        pqp = (p * qp).sum(1)
        running = (qp - pqp[:, None]).abs().amax(1) >= 0.005 / classes
        if not bool(running.any()):
            break
        p = torch.where(running[:, None], _sweep(q, p, qp, pqp), p)
    return p


def _sweep(q: Tensor, p: Tensor, qp: Tensor, pqp: Tensor) -> Tensor:
    for t in range(q.shape[1]):
        step = (pqp - qp[:, t]) / q[:, t, t]
        total = 1 + step
        pqp = (pqp + step * (step * q[:, t, t] + 2 * qp[:, t])) / total.square()
        qp = (qp + step[:, None] * q[:, t]) / total[:, None]
        moved = p.clone()
        moved[:, t] += step
        p = moved / total[:, None]
    return p


SHARPNESS = 10.0
"""Of the soft minimum: decisions that differ by more than 1 / 10 count as different."""


class SupportVectorHead(Head):
    """Kernel, then weights of the support vectors.

    For K > 2 classes the output z_k is a soft minimum of class k's K - 1 one-versus-one decisions.
    The class that beats all others, if there is one, wins the vote and has the only positive
    minimum; and z_k = 1 is a margin of one against every other class, as a hinge loss expects.
    The mean of the decisions is cheaper and smoother, but follows the vote less well.
    """

    pair_weights: Tensor  # (s, P), P = K (K - 1) / 2
    pair_bias: Tensor
    signs: Tensor  # (P, K): 1 for the first class of a pair, -1 for the second
    opponents: Tensor  # (K, K - 1): columns of [decisions, -decisions]
    class_weights: Tensor  # (s, K), or (s, 1) for two classes
    class_bias: Tensor
    platt: Tensor | None  # (2, P): slopes and offsets in libsvm's sign

    def __init__(
        self, model: Any, context: Context, kernel: nn.Module, weights: Tensor, platt: Tensor | None
    ) -> None:
        probabilities = context.svc_outputs == "probabilities"
        loss = "cross_entropy" if probabilities else "one_versus_rest_hinge"
        super().__init__(context.name(model), loss)
        self.kernel, self.outputs = kernel, context.svc_outputs
        self.classes = len(model.classes_)
        self.votes = self.classes > 2 and model.decision_function_shape == "ovr"
        unit = np.eye(self.classes)
        first, second = np.triu_indices(self.classes, 1)
        signs, bias = context.tensor(unit[first] - unit[second]), context.tensor(model.intercept_)
        # of two classes scikit-learn's decision is positive for the second
        mean = signs / (self.classes - 1) if self.classes > 2 else torch.ones_like(signs[:, :1])
        wins = torch.cat([signs, -signs]).T.eq(1).nonzero()[:, 1]
        self.register_buffer("pair_weights", weights)
        self.register_buffer("pair_bias", bias)
        self.register_buffer("signs", signs)
        self.register_buffer("opponents", wins.reshape(self.classes, -1))
        self.register_buffer("class_weights", weights @ mean)
        self.register_buffer("class_bias", bias @ mean)
        self.register_buffer("platt", platt)
        if probabilities:
            self._require_platt()

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
        if not self.votes:
            return decisions
        chosen = torch.where(decisions[:, :, None] >= 0, self.signs > 0, self.signs < 0)
        confidence = decisions @ self.signs
        return chosen.to(x.dtype).sum(1) + confidence / (3 * (confidence.abs() + 1))

    def predict_proba(self, x: Tensor) -> Tensor:
        return libsvm_coupled(pairwise(self._platt_logits(x), self.classes))

    def _platt_logits(self, x: Tensor) -> Tensor:
        """Logits (n, P) of the first class of each pair against the second."""
        platt = self._require_platt()
        decisions = self.one_versus_one(x)
        decisions = -decisions if self.classes == 2 else decisions  # libsvm's own sign
        return -(decisions * platt[0] + platt[1])

    def _require_platt(self) -> Tensor:
        if self.platt is None:
            raise ModelError(
                f"{self.source}: it was fitted without probabilities",
                remedy="Leave out svc_outputs, or fit with probability=True (deprecated since "
                "scikit-learn 1.9). For two classes CalibratedClassifierCV(SVC(), ensemble=False) "
                "also has a twin.",
            )
        return self.platt


def support_vectors(model: Any, context: Context) -> Head:
    """The twin of a fitted SVC or NuSVC."""
    order = mixed_order(model.n_support_)
    indexed = model.kernel == "precomputed" or callable(model.kernel)  # which has no twin
    points = np.zeros((1, 1)) if indexed else model.support_vectors_[order]
    kernel: nn.Module = build_kernel(model, context, points)
    weights = context.tensor(_pair_weights(model)[order])
    if model.kernel == "linear":  # the support vectors add up to one normal per pair
        kernel, weights = nn.Identity(), context.tensor(points).T @ weights
    slopes, offsets = np.ravel(model._probA), np.ravel(model._probB)  # noqa: SLF001
    platt = context.tensor(np.stack([slopes, offsets])) if len(slopes) else None
    return SupportVectorHead(model, context, kernel, weights, platt)


def kernel_ridge(model: Any, context: Context) -> Head:
    """The twin of a KernelRidge, fitted on targets +1 for the class and 0 or -1 for the others."""
    order = shuffled(len(model.dual_coef_))
    kernel = build_kernel(model, context, model.X_fit_[order])
    weights = context.tensor(model.dual_coef_[order])
    weights = weights[:, None] if weights.dim() == 1 else weights
    scores = nn.Sequential(kernel, Fixed(torch.mm, mat2=weights))
    return ScoreHead(context.name(model), "one_versus_rest_hinge", scores, None)


def _pair_weights(model: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Weights (s, P): libsvm stores them by class, K - 1 numbers per support vector."""
    stored = model.dual_coef_
    stored = stored.toarray() if hasattr(stored, "toarray") else np.asarray(stored)
    classes = len(model.classes_)
    if classes == 2:
        return np.asarray(stored.T)
    ends = np.cumsum(model.n_support_)
    rows = [slice(end - size, end) for end, size in zip(ends, model.n_support_, strict=True)]
    first, second = np.triu_indices(classes, 1)
    weights = np.zeros((stored.shape[1], len(first)))
    for column, (i, j) in enumerate(zip(first, second, strict=True)):
        weights[rows[i], column] = stored[j - 1, rows[i]]
        weights[rows[j], column] = stored[i, rows[j]]
    return weights
