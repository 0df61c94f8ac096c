"""What the logits of a batch say: log odds and log probabilities that do not saturate."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from credibly.model.losses import Loss


def class_logits(loss: Loss, outputs: Tensor) -> Tensor:
    """One logit per class (n, K) in float64; the one of a binary head becomes two, around zero.

    With 0 and z instead, the largest logit and the energy would depend on which class is second.
    """
    outputs = outputs.double()
    if outputs.shape[1] > 1:
        return outputs
    both = loss.two_classes(outputs)
    return both - both.mean(1, keepdim=True)


def log_odds(logits: Tensor) -> Tensor:
    """log(p1 / (1 - p1)) of the largest probability (n,): the same order, without saturation."""
    best, index = logits.max(1, keepdim=True)
    return best.squeeze(1) - logits.scatter(1, index, -torch.inf).logsumexp(1)


def log_probabilities(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Log p and log(1 - p) (n, K), both to full precision also where p is almost 1."""
    odds, best = log_odds(logits).unsqueeze(1), logits.argmax(1, keepdim=True)
    log_p = functional.log_softmax(logits, dim=1).scatter(1, best, functional.logsigmoid(odds))
    # all but the largest are at most a half
    small = log_p.scatter(1, best, -torch.inf).exp()
    return log_p, torch.log1p(-small).scatter(1, best, functional.logsigmoid(-odds))


def mean_log_odds(logits: Sequence[Tensor]) -> Tensor:
    """Log odds (n,) of the first one's class by the mean probability over all logits (n, K)."""
    kept = logits[0].argmax(1, keepdim=True)
    own, other = zip(*(log_probabilities(one) for one in logits), strict=True)
    own_sum, other_sum = (
        torch.stack([part.gather(1, kept) for part in parts]).logsumexp(0).squeeze(1)
        for parts in (own, other)
    )
    return own_sum - other_sum
