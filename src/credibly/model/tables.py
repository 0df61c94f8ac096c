"""Tables with named columns: what a classifier calls its inputs, and a table in that order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.model.classifier import Classifier
from credibly.types import is_table, table_numbers

UNLIKE = 100.0
"""Spreads of columns that differ by more are hardly of one unit."""


def column_names(clf: Classifier) -> tuple[str, ...] | None:
    """What a classifier calls the columns of its inputs, in its order; None if it has no names.

    A scikit-learn twin has the names of its fit, any other model those of its `Space`.
    """
    from credibly.adapters.sklearn.twin import Twin

    # a preprocess stands between a table and the columns of the fit
    if isinstance(clf.net, Twin) and clf.preprocess is None and clf.net.feature_names is not None:
        return clf.net.feature_names
    space = clf.space
    if space is None or space.columns is None or space.vary is not None or clf.module is not None:
        return None  # no names, or those of a part of a nested input, or of what a layer gives
    return tuple(str(name) for name in space.columns)


def numbers_of_table(clf: Classifier, x: Any) -> Any:
    """A table as the numbers the classifier takes, columns by name; all else as it is.

    A network without names takes none: whether columns stand in order is for the caller to say.
    """
    if not is_table(x):
        return x
    from credibly.adapters.sklearn.twin import Twin

    names, net = column_names(clf), clf.net
    if isinstance(net, Twin) and clf.preprocess is None and names in (None, net.feature_names):
        return net.of_table(x)
    return x if names is None else _in_order(clf, x, names)


def unlike_spreads(x: Tensor) -> tuple[float, float] | None:
    """The least and the largest spread of the columns (n, d), if they are hardly of one unit."""
    finite = x[x.isfinite().all(1)]
    if not len(finite):
        return None
    spreads = finite.double().std(0, correction=0)
    spreads = spreads[spreads > 0]  # what never varies tells no unit
    if not len(spreads) or float(spreads.max() / spreads.min()) <= UNLIKE:
        return None
    return float(spreads.min()), float(spreads.max())


def _in_order(clf: Classifier, table: Any, names: tuple[str, ...]) -> Tensor:
    """The columns of these names, in the precision and on the device of the model."""
    found = [str(name) for name in table.columns]
    missing = [name for name in names if name not in found]
    unknown = [name for name in found if name not in names]
    if missing or unknown or len(found) > len(names):
        other = f"missing {missing[:5]}, unknown {unknown[:5]}"
        raise InvalidArgumentError(
            "x",
            expected=f"the {len(names)} columns that the space names: {', '.join(names[:5])}, ...",
            got=other if missing or unknown else "some of them twice",
            remedy="Columns are found by name, in any order: pass x[list(clf.space.columns)].",
        )
    try:
        values = table_numbers(table)
    except (TypeError, ValueError) as error:
        raise _no_numbers(table) from error
    ordered = values[:, [found.index(name) for name in names]]
    single = all(str(kind).lower() == "float32" for kind in table.dtypes)
    own = torch.float32 if single else torch.float64
    return torch.as_tensor(ordered, dtype=clf.dtype or own, device=clf.device)


def _no_numbers(table: Any) -> InvalidArgumentError:
    words = [name for name in table.columns if not _holds_numbers(table[[name]])]
    return InvalidArgumentError(
        "x",
        expected="a table of numbers",
        got=", ".join(f"{str(name)!r} of type {table[name].dtype}" for name in words[:5]),
        remedy="Encode text and categories as numbers, as for the training of the model.",
    )


def _holds_numbers(column: Any) -> bool:
    try:
        table_numbers(column)
    except (TypeError, ValueError):
        return False
    return True
