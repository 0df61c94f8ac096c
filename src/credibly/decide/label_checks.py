"""What is wrong with labels that are numbers of classes, and yet not those of these inputs."""

from __future__ import annotations

import math
import warnings
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler

from credibly._validation import require
from credibly.errors import CrediblyWarning


def refuse_another_order(data: Any, labels: Any) -> None:
    """Labels that were passed apart do not go with a loader that shuffles."""
    apart = labels is not None and labels is not True and not isinstance(labels, str)
    require(
        not (apart and shuffles(data)),
        "labels",
        "labels that the loader yields beside the inputs, since it shuffles",
        "labels by themselves",
        "Pass labels=True and a loader of (inputs, labels), or a loader with shuffle=False.",
    )


def shuffles(data: Any) -> bool:
    """Whether a loader yields its inputs in an order of its own."""
    return isinstance(data, DataLoader) and isinstance(data.sampler, RandomSampler)


def warn_of_guesses(predicted: Tensor, labels: Tensor, classes: int) -> None:
    """Say so if the model is right no more often than the most common class, or chance, is."""
    count = len(labels)
    right = float((predicted == labels).double().mean())
    chance = 1 / classes + 2 * math.sqrt((1 - 1 / classes) / classes / count)
    common = float(labels.bincount().max()) / count
    if right < 1 and right <= max(chance, common):
        warnings.warn(
            f"the model is right on {right:.1%} of the ordinary inputs; a guess, or always the "
            f"most common class ({common:.1%}), could do as well. Check that labels are in the "
            "order of the inputs and number the classes as the model does.",
            CrediblyWarning,
            stacklevel=4,
        )
