"""The trade-off as a probabilistic model of failure (Section 6 of the paper, signs corrected).

    x | c ~ N(x0, I / 2t),  l_k(x) | c ~ -c_k + Exp(rate -2 c_k t / w_k),  c ~ N(0, W / 2t)

As printed, rate and shift have the sign of c_k, which is never positive. With the signs above

    -log P(x, c) / t = F(x) - sum_k (c_k + l_k)^2 / w_k + o(1)   as t grows,

so (x+, c+) is a critical point of the limit, but not a maximum in c: the second term grows when c
moves away from -l. So only that is claimed here, and not Proposition 1 ("a local maximum").
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from credibly._validation import positive, require
from credibly.model.derivatives import losses_only
from credibly.problem.fit_risk import FitRiskProblem


def log_joint(problem: FitRiskProblem, x: Tensor, credences: Tensor, *, t: float) -> Tensor:
    """Logarithm of the joint density of inputs and credences (n,); -inf where it is zero.

    Args:
        problem: x0 and the weights.
        x: inputs (n, ...).
        credences: c (n, K), at most 0. A class with c_k = 0 is left out, as in the paper.
        t: concentration, positive: the larger, the narrower every component.

    Example: see docs/explanation/theory.md.
    """
    _check(problem, x, credences)
    t = positive("t", t, "Try 1.0, then larger ones.")
    losses = losses_only(problem.variable, x)
    size = problem.x0[0].numel()
    near = -t * problem.risk(x) + 0.5 * size * math.log(t / math.pi)
    w = problem.weights
    prior = (-t * credences.square() / w + 0.5 * (t / (math.pi * w)).log()).sum(1)
    return near + _log_failure(losses, credences, w, t) + prior


def _log_failure(losses: Tensor, credences: Tensor, weights: Tensor, t: float) -> Tensor:
    """Log density of the shifted exponentials, summed over the classes with c_k < 0 (n,)."""
    rate = -2 * credences * t / weights
    excess = losses + credences
    # at a profile the excess is zero: rounding below it must not give a density of zero
    slack = 8 * torch.finfo(losses.dtype).eps * losses
    inside = torch.where(excess >= -slack, -rate * excess, -torch.inf)
    tiny = torch.finfo(losses.dtype).tiny
    terms = rate.clamp(min=tiny).log() + inside
    return torch.where(credences == 0, 0.0, terms).sum(1)


def _check(problem: FitRiskProblem, x: Tensor, credences: Tensor) -> None:
    """Refuse other shapes and precisions: the density of rounded credences would be zero."""
    like, classes = problem.x0, (len(problem), len(problem.weights))
    for name, given, shape in (("x", x, like.shape), ("credences", credences, classes)):
        tensor = isinstance(given, Tensor)
        good = tensor and tuple(given.shape) == tuple(shape) and given.dtype == like.dtype
        got = f"shape {tuple(given.shape)} of {given.dtype}" if tensor else type(given).__name__
        require(
            good and not bool(given.isnan().any()),
            name,
            f"a tensor of shape {tuple(shape)} and {like.dtype}, without NaN",
            got + (" with NaN" if good else ""),
            "Pass for example those of a profile: profile.perturbed, profile.credibility.",
        )
    largest, remedy = float(credences.max()), "Credences are minus losses: profile.credibility."
    require(largest <= 0, "credences", "numbers that are not positive", f"{largest:.4g}", remedy)
