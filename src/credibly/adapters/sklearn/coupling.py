"""From pairwise probabilities to one distribution (Wu, Lin and Weng 2004, their second method).

It minimises p^T Q p over distributions p, with Q_tt = sum_j r_jt^2 and Q_tj = -r_jt r_tj.
libsvm stops its iteration early, at an error of 0.005 / K; its answer therefore jumps a little
where the number of iterations changes. `coupled` is the minimiser itself, which is smooth.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LEAST = 1e-7
"""libsvm keeps pairwise probabilities this far from 0 and 1."""


def pairwise(logits: Tensor, classes: int) -> Tensor:
    """Matrices r (n, K, K), r_ij the probability of i against j, from logits (n, P)."""
    above = torch.triu_indices(classes, classes, offset=1, device=logits.device)
    wins = torch.sigmoid(logits).clamp(_LEAST, 1 - _LEAST)
    r = logits.new_zeros(len(logits), classes, classes)
    r = r.index_put((torch.arange(len(r), device=r.device)[:, None], above[0], above[1]), wins)
    return r.index_put(
        (torch.arange(len(r), device=r.device)[:, None], above[1], above[0]), 1 - wins
    )


def quadratic_form(r: Tensor) -> Tensor:
    """Q (n, K, K)."""
    diagonal = r.square().sum(1)  # over j of r_jt
    return torch.diag_embed(diagonal) - r * r.mT


def coupled(r: Tensor) -> Tensor:
    """The minimiser (n, K), by the linear system of its optimality conditions."""
    classes = r.shape[1]
    system = torch.nn.functional.pad(quadratic_form(r), (0, 1, 0, 1), value=1.0)
    corner = torch.zeros_like(system)
    corner[:, -1, -1] = 1.0
    right = system.new_zeros(classes + 1)
    right[-1] = 1.0
    solved: Tensor = torch.linalg.solve(system - corner, right.expand(len(r), -1))
    return solved[:, :classes]


def libsvm_coupled(r: Tensor) -> Tensor:
    """What libsvm returns (n, K): its very iteration, each sample stopped where libsvm stops."""
    q = quadratic_form(r)
    count, classes = r.shape[:2]
    p = torch.full((count, classes), 1.0 / classes, dtype=r.dtype, device=r.device)
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
        grown = 1 + step
        pqp = (pqp + step * (step * q[:, t, t] + 2 * qp[:, t])) / grown.square()
        qp = (qp + step[:, None] * q[:, t]) / grown[:, None]
        moved = p.clone()
        moved[:, t] += step
        p = moved / grown[:, None]
    return p
