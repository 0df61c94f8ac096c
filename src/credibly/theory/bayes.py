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
from credibly.types import real_number


def log_joint(problem: FitRiskProblem, x: Tensor, credences: Tensor, *, t: float) -> Tensor:
    """Logarithm of the joint density of inputs and credences (n,); -inf where it is zero.

    Args:
        problem: x0 and the weights.
        x: inputs (n, ...).
        credences: c (n, K), at most 0. A class with c_k = 0 takes no part, as in the paper.
        t: concentration, positive: the larger, the narrower every component.
    """
    t = _check(problem, x, credences, t)
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


def _check(problem: FitRiskProblem, x: Tensor, credences: Tensor, t: float) -> float:
    _check_like("x", x, tuple(problem.x0.shape), problem.x0)
    expected = (len(problem), len(problem.weights))
    _check_like("credences", credences, expected, problem.x0)
    if bool((credences > 0).any()):
        raise InvalidArgumentError(
            "credences",
            expected=f"numbers of shape {expected}, none of them positive",
            got=f"shape {tuple(credences.shape)}, largest {float(credences.max()):.4g}",
            remedy="Credences are minus losses; pass for example profile.credibility.",
        )
    number = real_number(t)
    if number is None or not (math.isfinite(number) and number > 0):
        raise InvalidArgumentError(
            "t", expected="a positive number", got=repr(t), remedy="Try 1.0, then larger ones."
        )
    return number


def _check_like(name: str, given: object, shape: tuple[int, ...], like: Tensor) -> None:
    """Nothing is broadcast or rounded: a density of rounded credences would be zero."""
    good = isinstance(given, Tensor) and tuple(given.shape) == shape and given.dtype == like.dtype
    if not good or not isinstance(given, Tensor) or bool(given.isnan().any()):
        shown = f"shape {tuple(given.shape)} of {given.dtype}" if isinstance(given, Tensor) else ""
        raise InvalidArgumentError(
            name,
            expected=f"a tensor of shape {shape} and {like.dtype}, without NaN",
            got=(shown + " with NaN" * good) or type(given).__name__,
            remedy="Pass for example those of a profile: profile.perturbed, profile.credibility.",
        )
