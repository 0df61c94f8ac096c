"""The last step of a twin: outputs for the profile, and the values scikit-learn itself gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from credibly.errors import ModelError

Link = Literal["softmax", "one_versus_rest"]


class Head(nn.Module):
    """A classifier (n, d) -> outputs (n, m), m = 1 for two classes.

    Attributes:
        loss: name of the loss that fits the outputs.
        source: name of the scikit-learn model, for messages.
        least: smallest probability whose logarithm is taken; None for the smallest float.
    """

    least: float | None = None

    def __init__(self, source: str, loss: str) -> None:
        super().__init__()
        self.source, self.loss = source, loss

    def forward(self, x: Tensor) -> Tensor:
        """Outputs for the profile: log-probabilities, or their difference for two classes."""
        logs = safe_log(self.predict_proba(x), self.least)
        return logs if logs.shape[1] > 2 else logs[:, 1:] - logs[:, :1]

    def decision_function(self, x: Tensor) -> Tensor:  # noqa: ARG002
        """What `decision_function` of the model gives, as (n, m)."""
        raise self._lacks("decision_function")

    def predict_proba(self, x: Tensor) -> Tensor:  # noqa: ARG002
        """What `predict_proba` of the model gives (n, K)."""
        raise self._lacks("predict_proba")

    def _lacks(self, method: str) -> ModelError:
        return ModelError(
            f"{self.source}: its twin has no {method}, as the model has none or one with jumps",
            remedy="Use the outputs: Classifier.logits(x).",
        )


class ScoreHead(Head):
    """Outputs that are scores; probabilities by a link, if there is one.

    `decides` says whether the model has a decision function, which is then these scores.
    """

    def __init__(
        self, source: str, loss: str, scores: nn.Module, link: Link | None, *, decides: bool = True
    ) -> None:
        super().__init__(source, loss)
        self.scores, self.link, self.decides = scores, link, decides

    def forward(self, x: Tensor) -> Tensor:
        values: Tensor = self.scores(x)
        return values

    def decision_function(self, x: Tensor) -> Tensor:
        return self.forward(x) if self.decides else super().decision_function(x)

    def predict_proba(self, x: Tensor) -> Tensor:
        if self.link is None:
            raise self._lacks("predict_proba")
        return link_probabilities(self.forward(x), self.link)


class Chain(Head):
    """Transforms, then a head."""

    def __init__(self, transforms: Sequence[nn.Module], head: Head) -> None:
        super().__init__(head.source, head.loss)
        self.transforms, self.head = nn.Sequential(*transforms), head

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.transforms(x))
        return outputs

    def decision_function(self, x: Tensor) -> Tensor:
        return self.head.decision_function(self.transforms(x))

    def predict_proba(self, x: Tensor) -> Tensor:
        return self.head.predict_proba(self.transforms(x))


def link_probabilities(scores: Tensor, link: Link) -> Tensor:
    """Probabilities (n, K) of scores (n, K), or (n, 1) for two classes."""
    if scores.shape[1] == 1:
        return torch.sigmoid(torch.cat([-scores, scores], dim=1))
    if link == "softmax":
        return functional.softmax(scores, dim=1)
    return functional.softmax(functional.logsigmoid(scores), dim=1)  # sigmoids, normalised


def normalised(each: Tensor) -> Tensor:
    """Probabilities (n, K) from separate ones (n, K), or from those of the second class (n, 1)."""
    if each.shape[1] == 1:
        return torch.cat([1 - each, each], dim=1)
    total = each.sum(1, keepdim=True)
    return each / torch.where(total == 0, 1.0, total)


def safe_log(probabilities: Tensor, least: float | None = None) -> Tensor:
    """The logarithm, cut off where a probability is rounded to zero."""
    tiny = torch.finfo(probabilities.dtype).tiny if least is None else least
    return probabilities.clamp(min=tiny).log()
