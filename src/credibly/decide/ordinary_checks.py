"""What is wrong with ordinary inputs and their labels that can be seen only when all are known."""

from __future__ import annotations

import hashlib
import math
import warnings
from contextlib import suppress
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler

from credibly._validation import require
from credibly.decide.typicality import TypicalInputs
from credibly.errors import CrediblyError, CrediblyWarning
from credibly.model.variable import Variable

SHARE_OF_COPIES = 0.1
"""Of the ordinary inputs, from which a warning is given."""

ROUNDING = 1e-5
"""Answers that differ by less than this share of the largest logit may be those of copies."""

ENOUGH = 32
"""Inputs whose answers do not all lie in [0, 1] by chance."""


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


def warn_of_known(known: TypicalInputs | None, variable: Variable, *, level: int) -> None:
    """Say so if the inputs to judge are those that the Judge was fitted on."""
    if known is None or variable.moves != "inputs":
        return
    with suppress(CrediblyError):  # what is wrong with the inputs is said later
        if known.are_ordinary(variable.values):
            warnings.warn(
                "these inputs are those that the Judge was fitted on: what it says of them looks "
                "better than what it will say of others. Judge new inputs.",
                CrediblyWarning,
                stacklevel=level,
            )


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


def check_distinct(logits: Tensor, values: Tensor | None, needed: int) -> None:
    """Ordinary inputs that are copies of each other tell less than their number says."""
    count = len(logits)
    copies = count - _distinct(logits, values)
    require(
        copies < count - 1,
        "ordinary",
        "inputs that differ",
        f"{count} copies of one input",
        f"Pass at least {needed} different inputs like those to come.",
    )
    if copies > SHARE_OF_COPIES * count:
        warnings.warn(
            f"{copies} of {count} ordinary inputs are copies of others. Promises count every input "
            "as one of its own, so pass each once; only rows of a table of few values are "
            "ordinarily the same.",
            CrediblyWarning,
            stacklevel=4,
        )


def _distinct(logits: Tensor, values: Tensor | None) -> int:
    """How many inputs differ; those of one answer are compared themselves, if they are known."""
    if values is None:
        return len(logits)
    scale = ROUNDING * logits.abs().amax().clamp(min=1e-30)
    answers = (logits / scale).round().unique(dim=0, return_inverse=True)[1]  # type: ignore[no-untyped-call]
    sizes = answers.bincount()
    if int(sizes.max()) == 1:
        return len(sizes)
    digests = {
        (answer, hashlib.sha256((values[row] + 0.0).cpu().numpy().tobytes()).digest())
        for row, answer in enumerate(answers.tolist())
        if sizes[answer] > 1
    }
    return int((sizes == 1).sum()) + len(digests)


def warn_of_a_probability(logits: Tensor) -> None:
    """One output between 0 and 1 for every ordinary input is hardly a logit."""
    if logits.shape[1] != 2 or len(logits) < ENOUGH:
        return
    output = logits[:, 1] - logits[:, 0]
    if bool(((output >= 0) & (output <= 1)).all()) and bool(output.min() < output.max()):
        warnings.warn(
            "the model's one output lies in [0, 1] for all ordinary inputs, so that class 1 is "
            "always predicted. If it is a probability, say Classifier(net, "
            "outputs='probabilities') (--outputs probabilities); it was taken as a logit.",
            CrediblyWarning,
            stacklevel=4,
        )
