"""Tables with named columns: what a classifier calls its inputs, and a table in that order."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from credibly._validation import require
from credibly.errors import InvalidArgumentError
from credibly.model.classifier import Classifier
from credibly.model.frames import FEWEST, is_table, table_numbers, unlike_sizes, unlike_spreads

_NUMBERS = ("float", "int", "uint", "bool")
"""How the names of the types of numeric columns begin, in any library."""


class TakesTables(nn.Module):
    """A module that was fitted on a table and can read one.

    Attributes:
        feature_names: the columns it was fitted on, if they had names.
        deviations: their standard deviations at fit, if the model knows them.
    """

    feature_names: tuple[str, ...] | None
    deviations: NDArray[np.float64] | None = None

    @abstractmethod
    def of_table(self, table: Any) -> Any:
        """The inputs in a table, columns by name."""


def column_names(clf: Classifier) -> tuple[str, ...] | None:
    """What a classifier calls the columns of its inputs, in its order; None if it has no names.

    A scikit-learn twin has the names of its fit, any other model those of its `Space`.
    """
    # with a preprocess the columns of a table are not those of the fit
    if isinstance(clf.net, TakesTables) and clf.preprocess is None and clf.net.feature_names:
        return clf.net.feature_names
    space = clf.space
    if space is None or space.columns is None or space.vary is not None or clf.module is not None:
        return None  # no names, or those of a part of a nested input, or of what a layer gives
    return tuple(str(name) for name in space.columns)


def unlike_units(clf: Classifier, x: Tensor) -> str | None:
    """What to say of a model of columns that moves them in units of very different sizes.

    A few rows say little about spreads; then those that the model met at its fit count.
    """
    net = clf.net if isinstance(clf.net, TakesTables) else None
    plain = clf.module is None and (clf.space is None or clf.space.is_plain)
    if x.dim() != 2 or not plain or (net is None and column_names(clf) is None):
        return None
    found = unlike_spreads(x)
    known = None if net is None or clf.preprocess is not None else net.deviations
    if found is None and known is not None and len(x) < FEWEST:
        found = unlike_sizes(torch.as_tensor(known))
    return None if found is None else describe_units(*found)


def describe_units(least: float, most: float) -> str:
    """The warning about columns whose spreads range that far, and what to do."""
    return (
        f"columns spread by {least:.3g} to {most:.3g}: distances are in the units of the inputs, "
        "so columns with large units hardly move, even with a scaler inside the model. Pass "
        "space='standardised' or space=Space.standardised(x), which measure them on one scale, or "
        "scale the inputs before the model. For the command line, see docs/command-line.md, Units"
    )


def numbers_of_table(clf: Classifier, x: Any) -> Any:
    """A table as the numbers the classifier takes, columns by name; anything else as it is.

    For a network without names a table stays a table, which is refused: only the caller knows
    whether its columns are in order.
    """
    if not is_table(x):
        return x
    names, net = column_names(clf), clf.net if clf.preprocess is None else None
    if isinstance(net, TakesTables) and names in (None, net.feature_names):
        return net.of_table(x)
    return x if names is None else _in_order(clf, x, names)


def _in_order(clf: Classifier, table: Any, names: tuple[str, ...]) -> Tensor:
    """The columns of these names, in the precision and on the device of the model."""
    found = [str(name) for name in table.columns]
    missing = [name for name in names if name not in found]
    unknown = [name for name in found if name not in names]
    differ = f"missing {missing[:5]}, unknown {unknown[:5]}"
    require(
        not missing and not unknown and len(found) == len(names),
        "x",
        f"the {len(names)} columns that the space names: {', '.join(names[:5])}, ...",
        differ if missing or unknown else "some of them twice",
        "Columns are found by name, in any order: pass x[list(clf.space.columns)].",
    )
    try:
        values = table_numbers(table)
    except (TypeError, ValueError) as error:
        kinds = zip(found, map(str, table.dtypes), strict=True)
        words = [f"{name!r} of type {k}" for name, k in kinds if not k.lower().startswith(_NUMBERS)]
        raise InvalidArgumentError(
            "x",
            expected="a table of numbers",
            got=", ".join(words[:5]),
            remedy="Encode text and categories as numbers, as for the training of the model.",
        ) from error
    ordered = values[:, [found.index(name) for name in names]]
    single = all(str(kind).lower() == "float32" for kind in table.dtypes)
    own = torch.float32 if single else torch.float64
    return torch.as_tensor(ordered, dtype=clf.dtype or own, device=clf.device)
