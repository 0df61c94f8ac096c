"""What a baseline is: a value that gives each sample a number, higher is more trustworthy."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional

from credibly.decide.arguments import plain_tensor
from credibly.errors import InvalidArgumentError
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import FORWARD, ordinary, undisturbed
from credibly.model.inputs import enter, finite_rows
from credibly.model.losses import CrossEntropy
from credibly.model.structure import Nested
from credibly.profile.arguments import check_chunk_size
from credibly.types import real_number, whole_number


class Baseline(ABC):
    """A rival of the scores of a profile, with the same signature for all.

    Scores are float64 and computed from log probabilities, so that they do not saturate where
    softmax is 1 in the model's precision. Rows with NaN or infinity get NaN.
    """

    def __call__(self, clf: Classifier, x: Nested = None, *, chunk_size: int = 256) -> Tensor:
        """Scores (n,) of inputs (n, ...).

        Args:
            clf: the classifier; it is left as found.
            x: inputs, as for `credibility`.
            chunk_size: samples handled at a time.
        """
        clf, x0 = enter(clf, x)
        check_chunk_size(chunk_size)
        with undisturbed(x0) as x0:
            check_model(clf, x0)
            found = torch.full((len(x0),), torch.nan, dtype=torch.float64, device=x0.device)
            for rows in torch.split(finite_rows(x0).nonzero().squeeze(1), chunk_size):
                found[rows] = self.of_chunk(clf.select(rows), x0[rows])
        return found

    @abstractmethod
    def of_chunk(self, clf: Classifier, x: Tensor) -> Tensor:
        """Scores (n,) of finite inputs that were checked."""

    @abstractmethod
    def passes(self, classes: int) -> float:
        """Forward-and-backward passes a sample costs; a forward alone is a third."""


class LogitBaseline(Baseline):
    """A baseline that needs the logits of the untouched input only."""

    @abstractmethod
    def of_logits(self, logits: Tensor) -> Tensor:
        """Scores (n,) of logits (n, K), K >= 2, in float64; differentiable."""

    def of_chunk(self, clf: Classifier, x: Tensor) -> Tensor:
        return self.of_logits(class_logits(clf, logits_at(clf, x)))

    def passes(self, classes: int) -> float:  # noqa: ARG002  # a forward, whatever K is
        return FORWARD


def logits_at(clf: Classifier, x: Tensor) -> Tensor:
    """Outputs (n, m) as the model gives them: one forward."""
    with torch.inference_mode(False), torch.no_grad():
        return clf.logits(ordinary(x))


def class_logits(clf: Classifier, outputs: Tensor) -> Tensor:
    """One logit a class (n, K) in float64: that of a binary head becomes two, around zero.

    With 0 and z the largest logit, and the energy, would tell the classes apart by which of them
    happens to be the second.
    """
    outputs = outputs.double()
    if outputs.shape[1] > 1:
        return outputs
    both = clf.loss.two_classes(outputs)
    return both - both.mean(1, keepdim=True)


def as_logits(logits: Tensor | ArrayLike) -> Tensor:
    """Logits (n, K) in float64, checked; a tensor stays attached to what it depends on."""
    if not isinstance(logits, Tensor):
        logits = plain_tensor(logits, "logits")
    if logits.dim() != 2 or logits.shape[1] < 2:
        raise InvalidArgumentError(
            "logits",
            expected="one row a sample, one column a class, at least two",
            got=f"shape {tuple(logits.shape)}",
            remedy="For a binary head of one logit z pass columns -z / 2 and z / 2.",
        )
    return logits.double()


def log_odds(logits: Tensor) -> Tensor:
    """log(p1 / (1 - p1)) of the largest probability (n,): its order, and no saturation."""
    best, index = logits.max(1, keepdim=True)
    return best.squeeze(1) - logits.scatter(1, index, -torch.inf).logsumexp(1)


def log_probabilities(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Log p and log(1 - p) (n, K), both to full precision also where p is almost 1."""
    odds, best = log_odds(logits).unsqueeze(1), logits.argmax(1, keepdim=True)
    log_p = functional.log_softmax(logits, dim=1).scatter(1, best, functional.logsigmoid(odds))
    # all but the largest are at most a half
    small = log_p.scatter(1, best, -torch.inf).exp()
    return log_p, torch.log1p(-small).scatter(1, best, functional.logsigmoid(-odds))


def class_losses(clf: Classifier, outputs: Tensor) -> Tensor:
    """Losses (n, K) of outputs (n, m) in float64; small cross-entropies do not round to 0."""
    if isinstance(clf.loss, CrossEntropy):
        return -log_probabilities(class_logits(clf, outputs))[0]
    return clf.losses_of(outputs.double())


def log_ratio(losses: Tensor, kept: Tensor | None = None) -> Tensor:
    """The ratio rule without saturation (n,): log(l2 / l1) of the two smallest losses.

    1 - exp(-score) is the score 1 - c1 / c2 of `decide.scores.ratio`. With the classes `kept` (n,)
    it is asked about them: negative where another class has the smaller loss.
    """
    index = losses.argmin(1) if kept is None else kept
    own = losses.gather(1, index.unsqueeze(1)).squeeze(1)
    rival = losses.scatter(1, index.unsqueeze(1), torch.inf).amin(1)
    # both zero: two classes fit perfectly, which says nothing for either
    return torch.where((own == 0) & (rival == 0), 0.0, rival.log() - own.log())


def need_positive(name: str, value: object, remedy: str) -> None:
    """A setting must be a positive finite number."""
    number = real_number(value)
    if number is None or not 0 < number < float("inf"):
        raise InvalidArgumentError(
            name, expected="a positive number", got=repr(value), remedy=remedy
        )


def need_count(name: str, value: object, remedy: str) -> None:
    """A setting must be a whole number of at least one."""
    number = whole_number(value)
    if number is None or number < 1:
        raise InvalidArgumentError(
            name, expected="a whole number >= 1", got=repr(value), remedy=remedy
        )
