"""Baselines that look at the last hidden layer of the unchanged input, and need no data."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from credibly._validation import choice, require, share
from credibly._validation import chunk_size as check_chunk_size
from credibly.baselines.base import Baseline
from credibly.baselines.logit_baselines import Energy
from credibly.errors import ModelError
from credibly.model.bind import bind
from credibly.model.classifier import Classifier
from credibly.model.derivatives import undisturbed
from credibly.model.features import LastHidden
from credibly.model.logits import class_logits
from credibly.model.losses import Loss
from credibly.model.structure import Nested
from credibly.model.variable import Variable
from credibly.types import finite_rows, norm

REMEDY = "Use a baseline of the logits, such as MaxSoftmax or Energy."


@dataclass(frozen=True, eq=False)
class Hidden:
    """What the last linear layer takes and gives.

    Attributes:
        features: its inputs (n, d), in float64.
        logits: of the whole model (n, K), in float64.
        weight: of the layer, one row per output (m, d); None where its outputs are not the logits.
        bias: of the layer (m,).
        loss: of the classifier; it makes two classes of one logit.
    """

    features: Tensor
    logits: Tensor
    weight: Tensor | None
    bias: Tensor | None
    loss: Loss

    @classmethod
    def of(cls, variable: Variable, x: Tensor) -> Hidden:
        """Run the model once on finite inputs."""
        layer = LastHidden.find(variable)
        if layer is None:
            raise ModelError("the model has no linear layer, so no last hidden one", remedy=REMEDY)
        outputs, features = layer.forward(variable, x)
        (linear,) = layer.parts.modules.values()
        found = cls(
            features.double(), class_logits(variable.loss, outputs), None, None, variable.loss
        )
        if not isinstance(linear, nn.Linear) or linear.out_features != outputs.shape[1]:
            return found
        bias = torch.zeros(len(linear.weight)) if linear.bias is None else linear.bias.detach()
        weight = linear.weight.detach().to(found.features)
        whole = replace(found, weight=weight, bias=bias.to(found.features))
        same = torch.allclose(whole.head(whole.features), found.logits, rtol=1e-3, atol=1e-3)
        return whole if same else found

    def head(self, features: Tensor) -> Tensor:
        """The logits (n, K) of other features."""
        if self.weight is None or self.bias is None:
            problem = "the outputs of the model's last linear layer are not its logits"
            raise ModelError(problem, remedy=REMEDY)
        return class_logits(self.loss, features @ self.weight.T + self.bias)

    @property
    def class_weights(self) -> Tensor:
        """The direction of each class (K, d): the slope of its logit by the features."""
        unit = torch.eye(self.features.shape[1]).to(self.features)
        return (self.head(unit) - self.head(torch.zeros_like(unit))).T


class FeatureBaseline(Baseline):
    """A baseline of the last hidden layer, found as `Judge` finds it. Example: see `FeatureNorm`.

    Models without a linear layer are refused; some baselines also need that the layer gives the
    logits.
    """

    @abstractmethod
    def of_hidden(self, hidden: Hidden) -> Tensor:
        """Scores (n,) of what the last linear layer takes and gives."""

    def of_chunk(self, variable: Variable, x: Tensor) -> Tensor:
        return self.of_hidden(Hidden.of(variable, x))


@dataclass(frozen=True, kw_only=True)
class FeatureNorm(FeatureBaseline):
    """The length of the features: foreign inputs excite a network less (Yu et al. 2023).

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(torch.nn.Linear(2, 3))
        >>> cr.baselines.FeatureNorm()(clf, torch.tensor([[3.0, 4.0]])).tolist()
        [5.0]
    """

    def of_hidden(self, hidden: Hidden) -> Tensor:
        return norm(hidden.features)


@dataclass(frozen=True, kw_only=True)
class ASH(FeatureBaseline):
    """Energy after small features are cut off and the others shaped (Djurisic et al. 2023).

    Attributes:
        percentile: the share of the features, the smallest, that is cut off.
        variant: 's' scales the others by exp(sum before / sum after), 'b' makes them equal with the
            same sum, 'p' leaves them.

    Example: see `FeatureNorm`.
    """

    percentile: float = 0.65
    variant: Literal["s", "b", "p"] = "s"

    def __post_init__(self) -> None:
        share("percentile", self.percentile)
        choice("variant", self.variant, ("s", "b", "p"), "The authors recommend 's'.")

    def of_hidden(self, hidden: Hidden) -> Tensor:
        h = hidden.features
        values, places = largest(h, self.percentile)
        before, after = h.sum(1, keepdim=True), values.sum(1, keepdim=True)
        if self.variant == "s":
            values = values * _scale(before, after, h.shape[1] / values.shape[1])
        elif self.variant == "b":
            values = (before / values.shape[1]).expand_as(values)
        shaped = torch.zeros_like(h).scatter(1, places, values)
        return Energy().of_logits(hidden.head(shaped))


@dataclass(frozen=True, kw_only=True)
class SCALE(FeatureBaseline):
    """Energy after all features are scaled by exp(their sum / sum of the largest) (Xu et al. 2024).

    Attributes:
        percentile: the share of the features that does not count among the largest.

    Example: see `FeatureNorm`.
    """

    percentile: float = 0.85

    def __post_init__(self) -> None:
        share("percentile", self.percentile)

    def of_hidden(self, hidden: Hidden) -> Tensor:
        values, _ = largest(hidden.features, self.percentile)
        h, after = hidden.features, values.sum(1, keepdim=True)
        scale = _scale(h.sum(1, keepdim=True), after, h.shape[1] / values.shape[1])
        return Energy().of_logits(hidden.head(h * scale))


def _scale(before: Tensor, after: Tensor, most: float) -> Tensor:
    """exp(before / after) of sums of all features and of the largest; 1 where all are zero.

    Where the largest add up to a positive number, the ratio is at most that of their counts. Where
    they do not, it means nothing, and is kept from overflowing.
    """
    ratio = torch.where(after == 0, 0.0, before / after)
    return ratio.clamp(max=most).exp()


def largest(features: Tensor, percentile: float) -> tuple[Tensor, Tensor]:
    """The largest features of each row, all but the share `percentile`, and their places."""
    size = features.shape[1]
    return features.topk(max(1, size - round(size * percentile)), dim=1)


def hidden_of(
    clf: Classifier | Variable, x: Nested, *, argument: str = "ordinary", chunk_size: int = 256
) -> Hidden:
    """What the last linear layer takes and gives for all finite inputs, in chunks."""
    check_chunk_size(chunk_size)
    with undisturbed(bind(clf, x).innermost) as variable:
        rows = finite_rows(variable.start).nonzero().squeeze(1)
        require(len(rows) > 1, argument, "at least two finite inputs", f"{len(rows)}", "Pass more.")
        found = [
            Hidden.of(variable.select(part), variable.start[part])
            for part in torch.split(rows, chunk_size)
        ]
    features, logits = (torch.cat([getattr(p, n) for p in found]) for n in ("features", "logits"))
    return replace(found[0], features=features, logits=logits)
