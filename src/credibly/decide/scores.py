"""Scores from one solve: functions of a profile -> (N,), higher is more trustworthy.

Three questions need three scores: is this class wrong? does this input not belong? was it tampered
with? docs/explanation/scores.md says how well each score answers them.
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

SCORES: dict[str, Score] = {}
"""Every plain score by its name. Example: `SCORES["margin"](profile)`."""


def without_profile(profile: Profile) -> Tensor:
    """Samples (N,) that were not solved: their rows hold no result."""
    return profile.credibility.isnan().any(1) | profile.credence.isnan().any(1) | ~profile.usable


def _score(function: Score) -> Score:
    """A score by its name, in double precision, with NaN for samples that were not solved."""

    @wraps(function)
    def score(profile: Profile) -> Tensor:
        return function(profile).double().masked_fill(without_profile(profile), torch.nan)

    SCORES[score.__name__] = score
    return score


@_score
def ratio(profile: Profile) -> Tensor:
    """The paper's filter as a score: 1 - c1 / c2, in [0, 1].

    c1 and c2 are the largest and second largest credibility. A sample is accepted at level alpha
    when |c1| <= (1 - alpha) |c2|, that is, when its score is at least alpha. (As printed, "less
    by a factor of 1 - alpha" is always true, since credibilities are never positive.)

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(torch.nn.Linear(4, 3))
        >>> cr.scores.ratio(cr.credibility(clf, torch.ones(2, 4), gamma=10.0)).shape
        torch.Size([2])
    """
    best, second = profile.credibility.double().topk(2, dim=1).values.unbind(1)
    # both zero: two classes fit perfectly, which supports neither
    return (1 - best / second).nan_to_num(nan=0.0)


@_score
def predicted_ratio(profile: Profile) -> Tensor:
    """The same rule for the class the model predicts at x0, in [-1, 1].

    Positive: the prediction is still ahead at x+, by the ratio. Negative: another class overtook
    it, by that ratio. Example: see `ratio`.
    """
    own, other = _own_and_other(profile)
    ahead = own >= other
    gap = 1 - torch.where(ahead, own / other, other / own)
    return torch.where(ahead, gap, -gap).nan_to_num(nan=0.0)


@_score
def margin(profile: Profile) -> Tensor:
    """Credibility of the predicted class less the largest other. Example: see `ratio`."""
    own, other = _own_and_other(profile)
    return own - other


@_score
def min_max(profile: Profile) -> Tensor:
    """Gap of the best two classes, with the profile scaled to [0, 1]. Example: see `ratio`.

    Of two classes the gap is always 1: take `ratio` or `margin` there.
    """
    c = profile.credibility.double()
    best, second = c.topk(2, dim=1).values.unbind(1)
    return ((best - second) / (best - c.amin(1))).nan_to_num(nan=0.0)


@_score
def negative_risk(profile: Profile) -> Tensor:
    """Minus |x+ - x0|^2: inputs that move far are less trustworthy. Example: see `ratio`."""
    return -profile.risk.double()


@_score
def negative_objective(profile: Profile) -> Tensor:
    """Minus F at x+: misfit and risk together. Example: see `ratio`."""
    return -profile.certificate.objective.double()


@_score
def shift(profile: Profile) -> Tensor:
    """|c+ - c0|: the credibility that moving gains; small for outliers. Example: see `ratio`."""
    return norm(profile.credibility.double() - profile.credence.double())


@_score
def gain(profile: Profile) -> Tensor:
    """(F0 - F+) / F0: the share of the misfit that moving removes. Example: see `ratio`."""
    decrease = profile.certificate.decrease.double()
    return decrease / (decrease + profile.certificate.objective.double())


@_score
def elasticity(profile: Profile) -> Tensor:
    """log(|x+ - x0| / |c+ - c0|): how far the input must move for a unit of credibility.

    Low for tampered inputs, high for outliers; see `tamper_score`. Example: see `ratio`.
    """
    tiny = torch.finfo(torch.float64).tiny
    distance = profile.risk.double().sqrt()
    return distance.clamp(min=tiny).log() - shift(profile).clamp(min=tiny).log()


@_score
def softmax_ratio(profile: Profile) -> Tensor:
    """The paper's rule on softmax probabilities: log(p1 / p2) at the unchanged input.

    It orders samples as 1 - p2 / p1 does, but does not saturate; for models with cross-entropy,
    whose losses are minus the logarithms of the probabilities. With `top=1` only p1 is kept, and
    it is log(p1 / (1 - p1)). Example: see `ratio`.
    """
    if profile.kept is not None and profile.kept.shape[1] == 1:
        own, others = profile.credence.unbind(1)
        return own - others
    # the two most probable classes are among those that were kept
    classes = profile.credence if profile.kept is None else profile.credence[:, :-1]
    best, second = classes.topk(2, dim=1).values.unbind(1)
    return best - second


@_score
def max_softmax(profile: Profile) -> Tensor:
    """Log of the largest probability at x0, with cross-entropy. Example: see `ratio`.

    With `top` it is that of the largest single class, also where all others together have more.
    """
    return (profile.credence if profile.kept is None else profile.credence[:, :-1]).amax(1)


@_score
def p_norm(profile: Profile) -> Tensor:
    """The largest centred logit at x0 over the 4-norm of all, for models with cross-entropy.

    Credibilities at x0 are logits up to a constant, which centring removes (Cattelan and Silva
    2024: confidence that does not grow with the length of the logits). With `top` the logits are
    the m + 1 of the joined problem, and the first is that of the predicted class: another score
    than over all classes. Example: see `ratio`.
    """
    own = None if profile.kept is None else profile.predicted_column
    return over_p_norm(profile.credence.double(), 4.0, own)


def over_p_norm(values: Tensor, p: float, own: Tensor | None = None) -> Tensor:
    """The largest centred value of each row over the p-norm of the row; 0 for equal values.

    With `own` (n,), the values in these columns instead of the largest.
    """
    z = values - values.mean(1, keepdim=True)
    largest = z.abs().amax(1, keepdim=True)
    z = torch.where(largest > 0, z / largest, 0.0)  # powers must not overflow
    length = z.abs().pow(p).sum(1).pow(1 / p)
    first = z.amax(1) if own is None else z.gather(1, own[:, None]).squeeze(1)
    return torch.where(length > 0, first / length, 0.0)


def path_score(path: CredibilityPath) -> Tensor:
    """Minus log of the gamma at which the prediction changes (N,): later is more trustworthy.

    Where it never changes along the path, half of the smallest gamma is used. NaN where a sample
    could not be solved. Example: see docs/how-to/decisions.md.
    """
    switch = path.switching_gamma().double()
    return -torch.where(switch == 0, 0.5 * path.gammas[-1], switch).log()


def _own_and_other(profile: Profile) -> tuple[Tensor, Tensor]:
    """c+ of the class predicted at x0, and the largest other one, which may be a joined one."""
    c = profile.credibility.double()
    predicted = profile.predicted_column[:, None]
    own = c.gather(1, predicted).squeeze(1)
    return own, c.scatter(1, predicted, -torch.inf).amax(1)
