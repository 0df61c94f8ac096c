"""A baseline of test-time optimisation: how far an input is from the nearest mode of its class."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from credibly._validation import positive, whole
from credibly.baselines.base import Baseline
from credibly.baselines.feature_baselines import Hidden
from credibly.model.derivatives import FORWARD, output_gradient
from credibly.model.logits import class_logits, log_probabilities
from credibly.model.variable import Variable
from credibly.types import norm, per_sample


@dataclass(frozen=True, kw_only=True)
class NearestMode(Baseline):
    """The cosine between the features of an input and those of the nearest mode of its class.

    Our reading of TRUST (Harikumar and Rana 2025), not their code: what is public of it says that
    the score of a class is blurred by noise in the classifier's weights, so that the angle between
    an input and its nearest mode, found by optimisation at test time, tells more than the score.
    These choices are ours: the mode is looked for in the inputs, by `steps` gradient steps up the
    log probability of the predicted class, whose root mean square falls from `step` to zero; the
    angle is measured in the last hidden layer. The authors may do all of that in another way.

    Models without a linear layer are refused.

    Attributes:
        step: length of the first step, as a root mean square over the numbers of an input.
        steps: how many; each costs a pass.

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(torch.nn.Linear(4, 3))
        >>> cr.baselines.NearestMode(step=0.1)(clf, torch.randn(2, 4)).shape
        torch.Size([2])
    """

    step: float = 0.02
    steps: int = 20

    def __post_init__(self) -> None:
        positive("step", self.step, "It is in the units of the inputs; 0.02 suits pixels.")
        whole("steps", self.steps, remedy="20 is usual.")

    def of_chunk(self, variable: Variable, x: Tensor) -> Tensor:
        here = Hidden.of(variable, x)
        kept = here.logits.argmax(1, keepdim=True)

        def rising(outputs: Tensor) -> Tensor:
            logits = class_logits(variable.loss, outputs)
            return log_probabilities(logits)[0].gather(1, kept).squeeze(1)

        found = x
        for number in range(self.steps):
            slope = output_gradient(variable, found, rising).double()
            length = norm(slope).clamp(min=1e-300) / slope[0].numel() ** 0.5
            step = self.step * (1 - number / self.steps) / length
            found = (found + per_sample(step, slope) * slope).to(x)
        return functional.cosine_similarity(here.features, Hidden.of(variable, found).features)

    def passes(self, classes: int) -> float:  # noqa: ARG002
        """A pass per step, and a forward at both ends."""
        return self.steps + 2 * FORWARD
