"""The units of a fitted pipeline: the standard deviations that its scaler found."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from credibly._validation import require
from credibly.adapters.sklearn.context import kind_of
from credibly.adapters.sklearn.dispatch import unwrapped
from credibly.adapters.sklearn.tables import Names
from credibly.model.space import Space

_KEEP = ("SimpleImputer", "FunctionTransformer")
"""Steps with a twin that leave every complete row as it is."""


def steps_of(model: Any) -> list[Any]:
    """The model, or the steps of a pipeline, from the first on."""
    if kind_of(model) != "Pipeline":
        return [model]
    return [part for _, step in model.steps for part in steps_of(unwrapped(step))]


def deviations_of(model: Any) -> NDArray[np.float64] | None:
    """The standard deviations of the inputs at fit (d,), 0 for constant ones; None if unknown.

    They are known only from a StandardScaler that sees the inputs themselves.
    """
    for step in steps_of(model):
        if kind_of(step) == "StandardScaler":
            return None if step.scale_ is None else _spreads(step)
        if not (step is None or isinstance(step, str) or kind_of(step) in _KEEP):
            return None
    return None


def _spreads(scaler: Any) -> NDArray[np.float64]:
    spreads = np.sqrt(np.asarray(scaler.var_, dtype=np.float64))
    # scikit-learn divides by 1 where a column is constant, even if rounding says otherwise
    constant = ~np.isclose(scaler.scale_, spreads, rtol=1e-6, atol=0.0)
    return np.where(constant, 0.0, spreads)


def standardised_space(model: Any, names: Names) -> Space:
    """The space in which a standard deviation of the scaler's data costs 1 in any column."""
    found = deviations_of(model)
    require(
        found is not None,
        "space",
        "for 'standardised' a pipeline that begins with a StandardScaler, which knows the standard "
        "deviations",
        f"a {type(model).__name__} without one",
        "Pass the training inputs: space=Space.standardised(X_train).",
    )
    deviations = np.asarray(found)
    constant = deviations == 0.0
    return Space(scale=np.where(constant, 1.0, deviations), locked=constant, columns=names)
