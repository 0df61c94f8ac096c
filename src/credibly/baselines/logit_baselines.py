"""Baselines that look at the logits of the untouched input only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from credibly.baselines.base import (
    LogitBaseline,
    as_logits,
    class_losses,
    log_odds,
    log_probabilities,
    log_ratio,
    logits_at,
    need_count,
    need_positive,
)
from credibly.decide.arguments import plain_labels
from credibly.decide.scores import over_p_norm
from credibly.errors import InvalidArgumentError
from credibly.model.classifier import Classifier
from credibly.types import Labels

_HOT = "1 leaves the logits as they are."


@dataclass(frozen=True)
class MaxSoftmax(LogitBaseline):
    """The largest softmax probability p1 (Hendrycks and Gimpel 2017), as log(p1 / (1 - p1))."""

    def of_logits(self, logits: Tensor) -> Tensor:
        return log_odds(as_logits(logits))


@dataclass(frozen=True)
class LogitMargin(LogitBaseline):
    """The largest logit less the second largest: log(p1 / p2)."""

    def of_logits(self, logits: Tensor) -> Tensor:
        best, second = as_logits(logits).topk(2, dim=1).values.unbind(1)
        return best - second


@dataclass(frozen=True)
class NegativeEntropy(LogitBaseline):
    """Minus the entropy of the softmax probabilities, sum_k p_k log p_k."""

    def of_logits(self, logits: Tensor) -> Tensor:
        log_p, _ = log_probabilities(as_logits(logits))
        p = log_p.exp()
        return torch.where(p > 0, p * log_p, 0.0).sum(1)


@dataclass(frozen=True)
class MaxLogit(LogitBaseline):
    """The largest logit (Hendrycks et al. 2022)."""

    def of_logits(self, logits: Tensor) -> Tensor:
        return as_logits(logits).amax(1)


@dataclass(frozen=True, kw_only=True)
class MaxLogitPNorm(LogitBaseline):
    """The largest centred logit over the p-norm of the centred logits (Cattelan and Silva 2024).

    p is to be chosen on held-out data. Equal logits have the score 0.
    """

    p: float = 4.0

    def __post_init__(self) -> None:
        need_positive("p", self.p, "The authors try 1 to 10 on held-out data.")

    def of_logits(self, logits: Tensor) -> Tensor:
        return over_p_norm(as_logits(logits), self.p)


@dataclass(frozen=True, kw_only=True)
class Energy(LogitBaseline):
    """Minus the free energy, T log sum_k exp(z_k / T) (Liu et al. 2020)."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        need_positive("temperature", self.temperature, _HOT)

    def of_logits(self, logits: Tensor) -> Tensor:
        return self.temperature * (as_logits(logits) / self.temperature).logsumexp(1)


@dataclass(frozen=True, kw_only=True)
class GEN(LogitBaseline):
    """Minus the generalised entropy, -sum p^gamma (1 - p)^gamma over the largest probabilities.

    Liu, Lochman and Zach 2023; gamma here is their exponent, and `top_m` their M.
    """

    gamma: float = 0.1
    top_m: int = 100

    def __post_init__(self) -> None:
        need_positive("gamma", self.gamma, "The authors use 0.1.")
        need_count("top_m", self.top_m, "The authors use 100, or all if there are fewer classes.")

    def of_logits(self, logits: Tensor) -> Tensor:
        log_p, log_rest = log_probabilities(as_logits(logits))
        kept = log_p.topk(min(self.top_m, log_p.shape[1]), dim=1)
        terms = self.gamma * (kept.values + log_rest.gather(1, kept.indices))
        return -terms.exp().sum(1)


@dataclass(frozen=True, kw_only=True)
class TemperatureScaled(LogitBaseline):
    """The largest softmax probability of z / T (Guo et al. 2017), as log odds; see `fit` for T."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        need_positive("temperature", self.temperature, _HOT)

    @classmethod
    def fit(cls, logits: Tensor | ArrayLike, labels: Labels) -> TemperatureScaled:
        """The temperature with the smallest mean cross-entropy on held-out data.

        With beta = 1 / T the mean cross-entropy is convex, so its slope has at most one root.

        Args:
            logits: of samples that were not trained on (n, K).
            labels: their classes (n,).
        """
        z, right = _labelled(as_logits(logits), plain_labels(labels))
        scale = float(z.abs().max())
        low, high = (power / scale if scale > 0 else 1.0 for power in (1e-6, 1e6))
        if not (scale > 0 and _slope(z, right, low) < 0 < _slope(z, right, high)):
            raise InvalidArgumentError(
                "labels",
                expected="some that the logits get wrong, and more that they get right",
                got="labels for which no finite temperature is best",
                remedy="Use more held-out samples of the training distribution.",
            )
        for _ in range(80):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if _slope(z, right, middle) < 0 else (low, middle)
        return cls(temperature=1 / math.sqrt(low * high))

    def of_logits(self, logits: Tensor) -> Tensor:
        return log_odds(as_logits(logits) / self.temperature)


@dataclass(frozen=True, kw_only=True)
class Doctor(LogitBaseline):
    """DOCTOR without its input step (Granese et al. 2021), as minus the log of its ratio.

    'alpha': D = (1 - g) / g with g = sum_k p_k^2. 'beta': D = (1 - p1) / p1, which orders samples
    as `MaxSoftmax` does. Softmax is taken at a temperature.
    """

    variant: Literal["alpha", "beta"] = "alpha"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        need_positive("temperature", self.temperature, _HOT)
        if self.variant not in ("alpha", "beta"):
            raise InvalidArgumentError(
                "variant",
                expected="'alpha' or 'beta'",
                got=repr(self.variant),
                remedy="alpha uses all probabilities, beta the largest.",
            )

    def of_logits(self, logits: Tensor) -> Tensor:
        z = as_logits(logits) / self.temperature
        if self.variant == "beta":
            return log_odds(z)
        log_p, log_rest = log_probabilities(z)
        # 1 - sum p^2 = sum p (1 - p), which does not cancel
        return (2 * log_p).logsumexp(1) - (log_p + log_rest).logsumexp(1)


@dataclass(frozen=True)
class CredenceRatio(LogitBaseline):
    """c0 under the ratio rule: log(l2 / l1) of the two smallest losses at the untouched input.

    What the rule is worth without any trade-off. Called on a classifier it uses its loss; from
    logits, cross-entropy.
    """

    def of_logits(self, logits: Tensor) -> Tensor:
        return log_ratio(-log_probabilities(as_logits(logits))[0])

    def of_chunk(self, clf: Classifier, x: Tensor) -> Tensor:
        return log_ratio(class_losses(clf, logits_at(clf, x)))


def _labelled(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Centred logits on the CPU and the labels as a column."""
    good = labels.shape == logits.shape[:1] and not labels.is_floating_point() and len(labels) > 0
    if not good or bool(((labels < 0) | (labels >= logits.shape[1])).any()):
        raise InvalidArgumentError(
            "labels",
            expected=f"a class number below {logits.shape[1]} for each of {len(logits)} samples",
            got=f"{labels.dtype} of shape {tuple(labels.shape)}",
            remedy="Pass whole numbers, one a row of logits.",
        )
    if not bool(torch.isfinite(logits).all()):
        raise InvalidArgumentError(
            "logits", expected="finite numbers", got="others", remedy="Leave those samples out."
        )
    z = logits.detach().cpu()
    return z - z.mean(1, keepdim=True), labels.detach().cpu().long().unsqueeze(1)


def _slope(logits: Tensor, labels: Tensor, beta: float) -> float:
    """Derivative by beta of the mean cross-entropy of beta z: mean of E_p[z] - z_y."""
    expected = ((beta * logits).softmax(1) * logits).sum(1)
    return float((expected - logits.gather(1, labels).squeeze(1)).mean())
