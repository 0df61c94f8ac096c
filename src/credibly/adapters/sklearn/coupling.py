"""From pairwise probabilities to one distribution (Wu, Lin and Weng 2004, their second method).

It minimises p^T Q p over distributions p, with Q_tt = sum_j r_jt^2 and Q_tj = -r_jt r_tj.
libsvm stops its iteration early, at an error of 0.005 / K, so its answer jumps a little where the
number of iterations changes. `coupled` is the exact minimiser, which is smooth.
"""

from __future__ import annotations

import torch
from torch import Tensor

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
