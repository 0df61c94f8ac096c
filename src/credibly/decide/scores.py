"""Scores of trust from one solve: pure functions, higher is more trustworthy."""

from __future__ import annotations

import torch
from torch import Tensor

from credibly.profile.profile import Profile


def ratio(profile: Profile) -> Tensor:
    """The paper's filter as a score (N,): 1 - c1 / c2, in [0, 1].

    c1 and c2 are the largest and second largest credibility. A sample is accepted at level alpha
    when |c1| <= (1 - alpha) |c2|, that is, when its score is at least alpha. (As printed, "less
    by a factor of 1 - alpha" is vacuous, since credibilities are never positive.)
    """
    c = profile.credibility.double()
    best, second = c.topk(2, dim=1).values.unbind(1)
    # both zero: two classes fit perfectly, which says nothing for either
    return (1 - best / second).nan_to_num(nan=0.0).where(~c.isnan().any(1), best)


def predicted_ratio(profile: Profile) -> Tensor:
    """The same rule asked about the class the model predicts at x0 (N,), in [-1, 1].

    Positive: the prediction is still ahead at x+, by the ratio. Negative: another class overtook
    it, by that ratio.
    """
    c = profile.credibility.double()
    predicted = profile.fit.nan_to_num(-torch.inf).argmax(1, keepdim=True)
    own = c.gather(1, predicted).squeeze(1)
    rival = c.scatter(1, predicted, -torch.inf).amax(1)
    ahead = own >= rival
    gap = 1 - torch.where(ahead, own / rival, rival / own)
    return torch.where(ahead, gap, -gap).nan_to_num(nan=0.0).where(~c.isnan().any(1), own)


def softmax_ratio(profile: Profile) -> Tensor:
    """The paper's rule on softmax probabilities: log(p1 / p2) at the untouched input (N,).

    It orders samples as 1 - p2 / p1 does, but does not saturate; for models with cross-entropy,
    whose losses are minus the logarithms of the probabilities.
    """
    best, second = profile.fit.topk(2, dim=1).values.unbind(1)
    return best - second
