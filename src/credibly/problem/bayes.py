"""The trade-off read as a probabilistic model of failure (the paper's Section 6, signs corrected).

    x | c ~ N(x0, I / 2t),  l_k(x) | c ~ -c_k + Exp(rate -2 c_k t / w_k),  c ~ N(0, W / 2t)

As printed, rate and shift have the sign of c_k, which is never positive. With the signs above

    -log P(x, c) / t = F(x) - sum_k (c_k + l_k)^2 / w_k + o(1)   as t grows,

so (x+, c+) is a critical point of the limit, but in c it is no maximum: the second term grows when
c leaves -l. Proposition 1 ("a local maximum") is therefore not claimed here, only that the point is
critical.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.model.derivatives import losses_only
from credibly.problem.fit_risk import FitRiskProblem


def log_joint(problem: FitRiskProblem, x: Tensor, credences: Tensor, *, t: float) -> Tensor:
    """Logarithm of the joint density of inputs and credences (n,); -inf where it is zero.

    Args:
        problem: x0 and the weights.
        x: inputs (n, ...).
        credences: c (n, K), at most 0. A class with c_k = 0 takes no part, as in the paper.
        t: concentration, positive: the larger, the narrower every component.
    """
    _check(problem, credences, t)
    losses = losses_only(problem.classifier, x)
    size = problem.x0[0].numel()
    near = -t * problem.risk(x) + 0.5 * size * math.log(t / math.pi)
    w = problem.weights
    prior = (-t * credences.square() / w + 0.5 * (t / (math.pi * w)).log()).sum(1)
    return near + _log_failure(losses, credences, w, t) + prior


def _log_failure(losses: Tensor, credences: Tensor, weights: Tensor, t: float) -> Tensor:
    """Log density of the shifted exponentials, summed over the classes that take part (n,)."""
    rate = -2 * credences * t / weights
    excess = losses + credences
    # at a profile the excess is zero: a rounding error below it must not make the density vanish
    slack = 8 * torch.finfo(losses.dtype).eps * losses
    inside = torch.where(excess >= -slack, -rate * excess, -torch.inf)
    tiny = torch.finfo(losses.dtype).tiny
    terms = rate.clamp(min=tiny).log() + inside
    return torch.where(credences == 0, 0.0, terms).sum(1)


def _check(problem: FitRiskProblem, credences: Tensor, t: float) -> None:
    expected = (len(problem), len(problem.weights))
    if tuple(credences.shape) != expected or bool((credences > 0).any()):
        raise InvalidArgumentError(
            "credences",
            expected=f"numbers of shape {expected}, none of them positive",
            came=f"shape {tuple(credences.shape)}, largest {float(credences.max()):.4g}",
            remedy="Credences are minus losses; pass for example profile.credibility.",
        )
    if not (math.isfinite(t) and t > 0):
        raise InvalidArgumentError(
            "t", expected="a positive number", came=repr(t), remedy="Try 1.0, then larger ones."
        )
