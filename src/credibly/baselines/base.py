"""What a baseline is: a value that gives each sample a number, higher is more trustworthy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from credibly._validation import chunk_size as check_chunk_size
from credibly._validation import plain_tensor, require
from credibly.model.bind import bind
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import FORWARD, logits_only, undisturbed
from credibly.model.logits import class_logits, log_probabilities
from credibly.model.losses import CrossEntropy
from credibly.model.structure import Nested
from credibly.model.variable import Variable
from credibly.types import finite_rows


class Baseline(ABC):
    """A score of trust that needs no profile; all are called the same way.

    Scores are float64 and computed from log probabilities, so they do not saturate where softmax
    is 1 in the model's precision. Rows with NaN or infinity get NaN. Example: see `all_baselines`.
    """

    cost: ClassVar[float] = FORWARD

    def __call__(
        self, clf: Classifier | Variable, x: Nested = None, *, chunk_size: int = 256
    ) -> Tensor:
        """Scores (n,) of inputs (n, ...).

        Args:
            clf: the classifier; it is left unchanged.
            x: inputs, as for `credibility`.
            chunk_size: samples handled at a time.
        """
        check_chunk_size(chunk_size)
        with undisturbed(bind(clf, x).innermost) as variable:  # of all classes
            check_model(variable)
            x0 = variable.start
            found = torch.full((len(x0),), torch.nan, dtype=torch.float64, device=x0.device)
            for rows in torch.split(finite_rows(x0).nonzero().squeeze(1), chunk_size):
                found[rows] = self.of_chunk(variable.select(rows), x0[rows])
        return found

    @abstractmethod
    def of_chunk(self, variable: Variable, x: Tensor) -> Tensor:
        """Scores (n,) of finite inputs that were checked."""

    def passes(self, classes: int) -> float:  # noqa: ARG002  # some depend on it
        """Forward-and-backward passes per sample; a forward alone is a third."""
        return self.cost


class LogitBaseline(Baseline):
    """A baseline that needs only the logits of the unchanged input. Example: see `MaxSoftmax`."""

    @abstractmethod
    def of_logits(self, logits: Tensor) -> Tensor:
        """Scores (n,) of logits (n, K), K >= 2, in float64; differentiable."""

    def of_chunk(self, variable: Variable, x: Tensor) -> Tensor:
        return self.of_logits(class_logits(variable.loss, logits_only(variable, x)))


def as_logits(logits: Tensor | ArrayLike) -> Tensor:
    """Logits (n, K) in float64, checked; a tensor stays in its graph."""
    found = logits if isinstance(logits, Tensor) else plain_tensor(logits, "logits")
    require(
        found.dim() == 2 and found.shape[1] >= 2,
        "logits",
        "one row per sample and one column per class, at least two",
        f"shape {tuple(found.shape)}",
        "For a binary head of one logit z pass columns -z / 2 and z / 2.",
    )
    return found.double()


def class_losses(variable: Variable, outputs: Tensor) -> Tensor:
    """Losses (n, K) of outputs (n, m) in float64; small cross-entropies do not round to 0."""
    if isinstance(variable.loss, CrossEntropy):
        return -log_probabilities(class_logits(variable.loss, outputs))[0]
    return variable.losses_of(outputs.double())


def log_ratio(losses: Tensor, kept: Tensor | None = None) -> Tensor:
    """The ratio rule without saturation (n,): log(l2 / l1) of the two smallest losses.

    1 - exp(-score) is the score 1 - c1 / c2 of `decide.scores.ratio`. With classes `kept` (n,), l1
    is their loss: the score is negative where another class has a smaller one.
    """
    index = (losses.argmin(1) if kept is None else kept).unsqueeze(1)
    own = losses.gather(1, index).squeeze(1)
    other = losses.scatter(1, index, torch.inf).amin(1)
    # both zero: two classes fit perfectly, so neither is favoured
    return torch.where((own == 0) & (other == 0), 0.0, other.log() - own.log())
