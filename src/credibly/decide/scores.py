"""Scores from one solve: pure functions of a profile (N,), higher is more trustworthy.

Three questions want three scores; docs/scores.md says how each fared:
is this class wrong? does this input not belong? was it tampered with?
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor

from credibly.profile.path import CredibilityPath
from credibly.profile.profile import Profile
from credibly.types import norm

Score = Callable[[Profile], Tensor]


def without_profile(profile: Profile) -> Tensor:
    """Samples (N,) that were not solved for: what their rows hold is no answer."""
    return profile.credibility.isnan().any(1) | profile.credence.isnan().any(1) | ~profile.usable


def _scored(function: Score) -> Score:
    """In double precision, and NaN for samples whose profile was not solved for."""

    @wraps(function)
    def score(profile: Profile) -> Tensor:
        return function(profile).double().masked_fill(without_profile(profile), torch.nan)

    return score


@_scored
def ratio(profile: Profile) -> Tensor:
    """The paper's filter as a score: 1 - c1 / c2, in [0, 1].

    c1 and c2 are the largest and second largest credibility. A sample is accepted at level alpha
    when |c1| <= (1 - alpha) |c2|, that is, when its score is at least alpha. (As printed, "less
    by a factor of 1 - alpha" is vacuous, since credibilities are never positive.)
    """
    best, second = profile.credibility.double().topk(2, dim=1).values.unbind(1)
    # both zero: two classes fit perfectly, which says nothing for either
    return (1 - best / second).nan_to_num(nan=0.0)


@_scored
def predicted_ratio(profile: Profile) -> Tensor:
    """The same rule asked about the class the model predicts at x0, in [-1, 1].

    Positive: the prediction is still ahead at x+, by the ratio. Negative: another class overtook
    it, by that ratio.
    """
    own, rival = _own_and_rival(profile)
    ahead = own >= rival
    gap = 1 - torch.where(ahead, own / rival, rival / own)
    return torch.where(ahead, gap, -gap).nan_to_num(nan=0.0)


@_scored
def margin(profile: Profile) -> Tensor:
    """Credibility of the predicted class less the largest other; with cross-entropy, of logits."""
    own, rival = _own_and_rival(profile)
    return own - rival


@_scored
def min_max(profile: Profile) -> Tensor:
    """How far the runner-up is below the winner, with the profile stretched to [0, 1]."""
    c = profile.credibility.double()
    best, second = c.topk(2, dim=1).values.unbind(1)
    return ((best - second) / (best - c.amin(1))).nan_to_num(nan=0.0)


@_scored
def negative_risk(profile: Profile) -> Tensor:
    """Minus |x+ - x0|^2: inputs that the trade-off moves far are less trustworthy."""
    return -profile.risk.double()


@_scored
def negative_objective(profile: Profile) -> Tensor:
    """Minus F at x+: fit and risk together."""
    return -profile.certificate.objective.double()


@_scored
def shift(profile: Profile) -> Tensor:
    """|c+ - c0|: how much fit the trade-off buys. Inputs that belong have much to give up."""
    return norm(profile.credibility.double() - profile.credence.double())


@_scored
def gain(profile: Profile) -> Tensor:
    """(F0 - F+) / F0: the share of the misfit that moving the input buys off."""
    decrease = profile.certificate.decrease.double()
    return decrease / (decrease + profile.certificate.objective.double())


@_scored
def elasticity(profile: Profile) -> Tensor:
    """log(|x+ - x0| / |c+ - c0|): how far the input must move for a unit of credibility.

    Tampered inputs are moved cheaply (low), outliers dearly (high); see `tamper_score`.
    """
    tiny = torch.finfo(torch.float64).tiny
    distance = profile.risk.double().sqrt()
    return distance.clamp(min=tiny).log() - shift(profile).clamp(min=tiny).log()


@_scored
def softmax_ratio(profile: Profile) -> Tensor:
    """The paper's rule on softmax probabilities: log(p1 / p2) at the untouched input.

    It orders samples as 1 - p2 / p1 does, but does not saturate; for models with cross-entropy,
    whose losses are minus the logarithms of the probabilities.
    """
    best, second = profile.credence.topk(2, dim=1).values.unbind(1)
    return best - second


@_scored
def max_softmax(profile: Profile) -> Tensor:
    """Logarithm of the largest probability at x0, for models with cross-entropy."""
    return profile.credence.amax(1)


@_scored
def p_norm(profile: Profile) -> Tensor:
    """The largest centred logit at x0 over the 4-norm of all, for models with cross-entropy.

    Credibilities at x0 are logits up to a constant, which centring removes (Cattelan and Silva
    2024: confidence that does not grow with the length of the logits).
    """
    return over_p_norm(profile.credence.double(), 4.0)


def over_p_norm(values: Tensor, p: float) -> Tensor:
    """The largest centred value of each row over the p-norm of the row; 0 for equal values."""
    z = values - values.mean(1, keepdim=True)
    largest = z.abs().amax(1, keepdim=True)
    z = torch.where(largest > 0, z / largest, 0.0)  # powers must not overflow
    length = z.abs().pow(p).sum(1).pow(1 / p)
    return torch.where(length > 0, z.amax(1) / length, 0.0)


def path_score(path: CredibilityPath) -> Tensor:
    """Minus log of the gamma at which the prediction changes (N,): later is more trustworthy.

    Where it never changes along the path, a factor of two below its smallest gamma stands. NaN
    where a sample could not be solved.
    """
    switch = path.switching_gamma().double()
    return -torch.where(switch == 0, 0.5 * path.gammas[-1], switch).log()


SCORES: dict[str, Score] = {
    "ratio": ratio,
    "predicted_ratio": predicted_ratio,
    "margin": margin,
    "min_max": min_max,
    "negative_risk": negative_risk,
    "negative_objective": negative_objective,
    "shift": shift,
    "gain": gain,
    "elasticity": elasticity,
    "softmax_ratio": softmax_ratio,
    "max_softmax": max_softmax,
    "p_norm": p_norm,
}
"""Every plain score by its name."""


def _own_and_rival(profile: Profile) -> tuple[Tensor, Tensor]:
    """c+ of the class predicted at x0, and the largest other one."""
    c = profile.credibility.double()
    predicted = profile.credence.nan_to_num(-torch.inf).argmax(1, keepdim=True)
    own = c.gather(1, predicted).squeeze(1)
    return own, c.scatter(1, predicted, -torch.inf).amax(1)
