"""Baselines that look only at the logits of the unchanged input."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from credibly._validation import choice, positive, require, whole
from credibly._validation import labels as check_labels
from credibly.baselines import base
from credibly.baselines.base import LogitBaseline, as_logits
from credibly.decide.scores import over_p_norm
from credibly.model.derivatives import logits_only
from credibly.model.logits import log_odds, log_probabilities
from credibly.model.variable import Variable
from credibly.types import Labels


@dataclass(frozen=True)
class MaxSoftmax(LogitBaseline):
    """The largest softmax probability p1 (Hendrycks and Gimpel 2017), as log(p1 / (1 - p1)).

    Example:
        >>> import torch, credibly as cr
        >>> cr.baselines.MaxSoftmax().of_logits(torch.tensor([[2.0, 0.0]])).tolist()
        [2.0]
    """

    def of_logits(self, logits: Tensor) -> Tensor:
        return log_odds(as_logits(logits))


@dataclass(frozen=True)
class LogitMargin(LogitBaseline):
    """The largest logit minus the second largest: log(p1 / p2). Example: see `MaxSoftmax`."""

    def of_logits(self, logits: Tensor) -> Tensor:
        best, second = as_logits(logits).topk(2, dim=1).values.unbind(1)
        return best - second


@dataclass(frozen=True)
class NegativeEntropy(LogitBaseline):
    """Minus the entropy of the softmax probabilities, sum_k p_k log p_k.

    Example: see `MaxSoftmax`.
    """

    def of_logits(self, logits: Tensor) -> Tensor:
        log_p, _ = log_probabilities(as_logits(logits))
        p = log_p.exp()
        return torch.where(p > 0, p * log_p, 0.0).sum(1)


@dataclass(frozen=True)
class MaxLogit(LogitBaseline):
    """The largest logit (Hendrycks et al. 2022). Example: see `MaxSoftmax`."""

    def of_logits(self, logits: Tensor) -> Tensor:
        return as_logits(logits).amax(1)


@dataclass(frozen=True, kw_only=True)
class MaxLogitPNorm(LogitBaseline):
    """The largest centred logit over the p-norm of the centred logits (Cattelan and Silva 2024).

    Choose p on held-out data. Equal logits have the score 0. Example: see `MaxSoftmax`.
    """

    p: float = 4.0

    def __post_init__(self) -> None:
        positive("p", self.p, "The authors try 1 to 10 on held-out data.")

    def of_logits(self, logits: Tensor) -> Tensor:
        return over_p_norm(as_logits(logits), self.p)


@dataclass(frozen=True, kw_only=True)
class GEN(LogitBaseline):
    """Minus the generalised entropy, -sum p^gamma (1 - p)^gamma over the largest probabilities.

    Liu, Lochman and Zach 2023; gamma here is their exponent, and `top_m` their M.
    Example: see `MaxSoftmax`.
    """

    gamma: float = 0.1
    top_m: int = 100

    def __post_init__(self) -> None:
        positive("gamma", self.gamma, "The authors use 0.1.")
        whole("top_m", self.top_m, remedy="The authors use 100, or all if there are fewer classes.")

    def of_logits(self, logits: Tensor) -> Tensor:
        log_p, log_rest = log_probabilities(as_logits(logits))
        kept = log_p.topk(min(self.top_m, log_p.shape[1]), dim=1)
        terms = self.gamma * (kept.values + log_rest.gather(1, kept.indices))
        return -terms.exp().sum(1)


@dataclass(frozen=True, kw_only=True)
class _AtTemperature(LogitBaseline):
    """A score of logits over a temperature."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        positive("temperature", self.temperature, "1 leaves the logits as they are.")

    def _scaled(self, logits: Tensor) -> Tensor:
        return as_logits(logits) / self.temperature


@dataclass(frozen=True, kw_only=True)
class Energy(_AtTemperature):
    """Minus the free energy, T log sum_k exp(z_k / T) (Liu et al. 2020).

    Example: see `MaxSoftmax`.
    """

    def of_logits(self, logits: Tensor) -> Tensor:
        return self.temperature * self._scaled(logits).logsumexp(1)


@dataclass(frozen=True, kw_only=True)
class TemperatureScaled(_AtTemperature):
    """The largest softmax probability of z / T (Guo et al. 2017), as log odds; see `fit` for T.

    Example:
        >>> import torch, credibly as cr
        >>> z, labels = torch.tensor([[1.0, 0.0]] * 4), [0, 0, 0, 1]
        >>> round(cr.baselines.TemperatureScaled.fit(z, labels).temperature, 4)  # 1 / log 3
        0.9102
    """

    @classmethod
    def fit(cls, logits: Tensor | ArrayLike, labels: Labels) -> TemperatureScaled:
        """The temperature with the smallest mean cross-entropy on held-out data.

        With beta = 1 / T the mean cross-entropy is convex, so its slope has at most one root.

        Args:
            logits: (n, K), of samples that were not trained on.
            labels: their classes (n,).
        """
        z = as_logits(logits).detach().cpu()
        usable = len(z) > 0 and bool(torch.isfinite(z).all())
        require(usable, "logits", "finite numbers", "others, or none", "Leave those samples out.")
        right = check_labels(labels, *z.shape).unsqueeze(1)
        z = z - z.mean(1, keepdim=True)
        scale = float(z.abs().max())
        low, high = (power / scale if scale > 0 else 1.0 for power in (1e-6, 1e6))
        require(
            scale > 0 and _slope(z, right, low) < 0 < _slope(z, right, high),
            "labels",
            "some that the logits get wrong, and more that they get right",
            "labels for which no finite temperature is best",
            "Use more held-out samples of the training distribution.",
        )
        for _ in range(80):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if _slope(z, right, middle) < 0 else (low, middle)
        return cls(temperature=1 / math.sqrt(low * high))

    def of_logits(self, logits: Tensor) -> Tensor:
        return log_odds(self._scaled(logits))


@dataclass(frozen=True, kw_only=True)
class Doctor(_AtTemperature):
    """DOCTOR without its input step (Granese et al. 2021), as minus the log of its ratio.

    'alpha': D = (1 - g) / g with g = sum_k p_k^2. 'beta': D = (1 - p1) / p1, which orders samples
    as `MaxSoftmax` does. Softmax is taken at a temperature. Example: see `MaxSoftmax`.
    """

    variant: Literal["alpha", "beta"] = "alpha"

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = "alpha uses all probabilities, beta the largest."
        choice("variant", self.variant, ("alpha", "beta"), remedy)

    def of_logits(self, logits: Tensor) -> Tensor:
        z = self._scaled(logits)
        if self.variant == "beta":
            return log_odds(z)
        log_p, log_rest = log_probabilities(z)
        # 1 - sum p^2 = sum p (1 - p), which does not cancel
        return (2 * log_p).logsumexp(1) - (log_p + log_rest).logsumexp(1)


@dataclass(frozen=True)
class CredenceRatio(LogitBaseline):
    """The ratio rule on c0: log(l2 / l1) of the two smallest losses at the unchanged input.

    It shows what the rule is worth without any trade-off. Called on a classifier it uses the
    classifier's loss; from logits, cross-entropy. Example: see `MaxSoftmax`.
    """

    def of_logits(self, logits: Tensor) -> Tensor:
        return base.log_ratio(-log_probabilities(as_logits(logits))[0])

    def of_chunk(self, variable: Variable, x: Tensor) -> Tensor:
        return base.log_ratio(base.class_losses(variable, logits_only(variable, x)))


def _slope(logits: Tensor, labels: Tensor, beta: float) -> float:
    """Derivative by beta of the mean cross-entropy of beta z: mean of E_p[z] - z_y."""
    expected = ((beta * logits).softmax(1) * logits).sum(1)
    return float((expected - logits.gather(1, labels).squeeze(1)).mean())
