"""Views of an input that keep its class, such as flips and shifts of photographs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from credibly._validation import require
from credibly.model.derivatives import logits_only
from credibly.model.logits import class_logits, mean_log_odds
from credibly.model.variable import Variable

View = Callable[[Tensor], Tensor]


def check_views(views: Any) -> tuple[View, ...]:
    """Refuse what is not a list of functions."""
    good = isinstance(views, Sequence) and all(callable(view) for view in views)
    expected, remedy = "functions of a batch", "For photographs: views=(lambda x: x.flip(-1),)."
    require(good, "views", expected, repr(views), remedy)
    return tuple(views)


def odds_over_views(variable: Variable, views: Sequence[View], logits: Tensor) -> Tensor:
    """Log odds (n,) of the predicted class by its mean probability over an input and its views.

    `logits` (n, K) are those of the inputs themselves; every view costs a forward.
    """
    seen = [_logits_of(variable, view) for view in views]
    return mean_log_odds([logits, *seen])


def _logits_of(variable: Variable, view: View) -> Tensor:
    x = variable.values
    found = view(x)
    good = isinstance(found, Tensor) and found.shape == x.shape
    got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
    remedy = "Pad or crop inside the function."
    require(good, "views", f"views of the shape {tuple(x.shape)}", got, remedy)
    return class_logits(variable.loss, logits_only(variable, variable.encode(found)))
