"""Losses of one output with respect to *every* class: (n, m) outputs -> (n, K) losses >= 0.

`kinked` says whether the squared loss, which is what the objective is made of, has points without
a derivative. A solver stalls there instead of converging, and reports it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from credibly.errors import InvalidArgumentError


class Loss(ABC):
    """A non-negative loss for each class. Example: see `CustomLoss` for one of your own."""

    kinked: bool = False
    separate: bool = False  # whether each output is a question of its own: one versus rest

    @abstractmethod
    def __call__(self, outputs: Tensor) -> Tensor:
        """Losses (n, K) of outputs (n, m)."""

    def two_classes(self, logit: Tensor) -> Tensor:
        """Outputs (n, 2) that mean the same as the single logit (n, 1) of a binary head."""
        other = -logit if self.separate else torch.zeros_like(logit)
        return torch.cat([other, logit], dim=1)


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """l_k = log sum_j exp(z_j) - z_k: the usual loss of a softmax classifier.

    Example: `Classifier(net, loss="cross_entropy")`, which is the default.
    """

    def __call__(self, outputs: Tensor) -> Tensor:
        return -functional.log_softmax(outputs, dim=1)


@dataclass(frozen=True)
class Logistic(Loss):
    """l_k = log(1 + exp(-z_k)): one versus rest, so it also allows several labels at once.

    Example: `Classifier(net, loss="logistic")`.
    """

    separate: bool = True

    def __call__(self, outputs: Tensor) -> Tensor:
        return -functional.logsigmoid(outputs)  # softplus is cut off at 20


@dataclass(frozen=True)
class Hinge(Loss):
    """l_k = [1 + max_{j != k} z_j - z_k]_+ (Crammer and Singer).

    Its square has no derivative where two other classes tie for the largest output.
    Example: `Classifier(net, loss="hinge")`.
    """

    kinked: bool = True

    def __call__(self, outputs: Tensor) -> Tensor:
        top = outputs.topk(2, dim=1)
        best, second = top.values[:, :1], top.values[:, 1:]
        is_best = functional.one_hot(top.indices[:, 0], outputs.shape[1]).bool()
        other = torch.where(is_best, second, best)
        return functional.relu(1 + other - outputs)


@dataclass(frozen=True)
class OneVersusRestHinge(Loss):
    """l_k = [1 - z_k]_+: one versus rest. Its square is smooth.

    Example: `Classifier(net, loss="one_versus_rest_hinge")`.
    """

    separate: bool = True

    def __call__(self, outputs: Tensor) -> Tensor:
        return functional.relu(1 - outputs)


@dataclass(frozen=True)
class CustomLoss(Loss):
    """A loss of your own: `function` maps outputs (n, m) to losses (n, K) >= 0, row by row.

    Example: `Classifier(net, loss=CustomLoss(lambda z: -torch.log_softmax(z / 2, 1)))`.
    """

    function: Callable[[Tensor], Tensor]
    kinked: bool = False

    def __call__(self, outputs: Tensor) -> Tensor:
        return self.function(outputs)

    def two_classes(self, logit: Tensor) -> Tensor:
        """The single output as it is: the function knows what it means."""
        return logit

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"CustomLoss({name}, kinked={self.kinked})"


NAMED: dict[str, Loss] = {
    "cross_entropy": CrossEntropy(),
    "logistic": Logistic(),
    "hinge": Hinge(),
    "one_versus_rest_hinge": OneVersusRestHinge(),
}


def resolve_loss(loss: str | Loss) -> Loss:
    """Turn a name or a loss into a loss."""
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss in NAMED:
        return NAMED[loss]
    raise InvalidArgumentError(
        "loss",
        expected=f"one of {', '.join(sorted(NAMED))} or a Loss",
        got=repr(loss),
        remedy="For a loss of your own pass credibly.losses.CustomLoss(function).",
    )
