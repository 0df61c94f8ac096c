"""A figure of one profile: what moved, and the credibility of each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from credibly._extras import load_extra
from credibly._validation import require, whole_number
from credibly.errors import InvalidArgumentError
from credibly.model.batches import classifier_inside, column_names
from credibly.model.classifier import Classifier
from credibly.plot.view import Features, View
from credibly.profile.given import check_profile
from credibly.profile.profile import Profile
from credibly.types import is_table, table_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_profile(
    profile: Profile,
    index: int = 0,
    *,
    inputs: Any = None,
    classes: Sequence[str] | None = None,
    features: Sequence[str] | Classifier | None = None,
) -> Figure:
    """Draw one sample: its input before and after, what moved, and the credibility of each class.

    Images (1 or 3 channels, first or last) are drawn as x0, x+ and their difference, in [0, 1] or
    else in their own range, which the figure names. Of signals (channels, T) or (T, channels), with
    at most 16 channels and at least eight values per channel, the channel that moved most is drawn.
    Of flat features those that moved most are shown, with their values before and after. For
    anything else (words, graphs) a sentence says how far it moved. The title names the class ahead
    before and after, and the distance between x0 and x+.

    Args:
        profile: from `credibility`, or read by `Profile.load`. A table (`Profile.from_parquet`)
            holds no inputs and is refused with a `NotStoredError`.
        index: the number of the sample; -1 is the last.
        inputs: the inputs of all samples, if their form is not that of `profile.x0`. With as many
            numbers per sample they define the form in which x0 and x+ are drawn: flattened
            pictures, (n, h, w) without channels, flat signals as (n, 1, T). The columns of a pandas
            table name the features. If something else moved (`module=`, parameters), pictures are
            shown beside it.
        classes: names of the classes, to replace those of the profile.
        features: names of the flat features, or the classifier that has them (`Space(columns=)`,
            `from_sklearn` of a model fitted on a table). Features are then compared in the scales
            of its space.

    Returns:
        A matplotlib figure without global state: `figure.savefig("profile.png")`.

    Example:
        >>> import torch
        >>> import credibly as cr
        >>> clf = cr.Classifier(lambda x: x @ torch.eye(2), classes=["cat", "dog"])
        >>> profile = cr.credibility(clf, torch.tensor([[2.0, 0.0]]), gamma=10.0)
        >>> cr.plot_profile(profile, features=["size", "weight"]).get_suptitle()[:26]
        'cat at x0, 88.1 % by softm'
    """
    check_profile(profile)
    load_extra("matplotlib", extra="report", purpose="A picture of a profile")
    from credibly.plot.one_sample import draw

    row = _row(profile, index)
    if classes is not None:
        remedy = "Leave it out to use the classifier's."
        given_names = _names("classes", classes, profile.class_count, "class", remedy)
        profile = replace(profile, settings=replace(profile.settings, classes=given_names))
    names = profile.column_names(row)
    given = _sample(inputs, row, len(profile))
    known = _features(_columns(inputs, profile, row) if features is None else features, profile)
    view = View.of(profile, row, names, known, given)
    count = view.before.numel()
    require(
        given is None or given.numel() == count or view.beside is not None,
        "inputs",
        f"pictures, or as many numbers per sample as moved, {count}",
        "others" if given is None else f"samples of shape {tuple(given.shape)}",
        "Leave it out: the profile holds what moved.",
    )
    return draw(view)


def _row(profile: Profile, index: int) -> int:
    row, count = whole_number(index), len(profile)
    require(
        row is not None and -count <= row < count,
        "index",
        f"the number of a sample, 0 to {count - 1}" if count else "a sample",
        repr(index) if count else "an empty profile",
        "One figure shows one sample.",
    )
    return (row or 0) % count


def _names(argument: str, names: Any, count: int, what: str, remedy: str) -> tuple[str, ...]:
    """So many names, as text."""
    listed = hasattr(names, "__len__") and not isinstance(names, str)
    got = str(len(names)) if listed else repr(names) if isinstance(names, str) else ""
    require(
        listed and len(names) == count,
        argument,
        f"{count} names, one per {what}",
        got or f"a value of type {type(names).__name__}",
        remedy,
    )
    return tuple(map(str, names))


def _columns(inputs: Any, profile: Profile, row: int) -> Sequence[str] | None:
    """Names of the columns of a table; columns in another order than the model's are refused."""
    if not is_table(inputs):
        return None
    names = [str(name) for name in inputs.columns]
    solved = profile.x0[row].detach().float().cpu().flatten()
    try:
        values = torch.from_numpy(table_numbers(inputs)[row]).float()
    except (TypeError, ValueError):
        return names  # words and categories were encoded before the model
    same = torch.equal(values, solved)
    require(
        same or not torch.equal(values.sort().values, solved.sort().values),
        "inputs",
        "the columns in the order of the model's",
        f"the same numbers in another order: {', '.join(names[:5])}, ...",
        "Pass features=clf, which has their names, or the table in the model's order.",
    )
    return names


def _sample(inputs: Any, row: int, count: int) -> Tensor | None:
    """One sample of the given inputs; a table only names the features."""
    if inputs is None:
        return None
    expected = f"a tensor, an array or a table of the {count} samples of the profile"
    remedy = "Pass all inputs in the order in which they were solved; `index` chooses one."
    good = is_table(inputs) or isinstance(inputs, Tensor | np.ndarray)
    require(good, "inputs", expected, f"a {type(inputs).__name__}", remedy)
    shape = tuple(inputs.shape)
    require(len(shape) > 1 and shape[0] == count, "inputs", expected, f"shape {shape}", remedy)
    if is_table(inputs):
        return None
    if isinstance(inputs, Tensor):
        return inputs[row].detach().double().cpu()
    try:
        return torch.from_numpy(np.array(inputs[row], dtype=np.float64))
    except (TypeError, ValueError) as error:
        got = f"an array of {inputs.dtype}"
        raise InvalidArgumentError("inputs", expected=expected, got=got, remedy=remedy) from error


def _features(features: Sequence[str] | Classifier | None, profile: Profile) -> Features:
    """Names and scales of flat features, as far as they are known."""
    count = profile.x0[0].numel()
    if features is None:
        return Features()
    features = getattr(features, "classifier_", features)  # of a CredibilityClassifier
    if not isinstance(features, Classifier):
        remedy = classifier_inside(features) or (
            "Pass a list of names or the classifier. A table passed as inputs= must have the "
            "columns of the profile."
        )
        return Features(_names("features", features, count, "feature", remedy))
    space = features.space
    columns = None if space is None else space.columns  # also of a layer, or of a part that moves
    found = column_names(features) if columns is None else columns
    names = None if found is None or len(found) != count else tuple(map(str, found))
    if space is None or space.scale is None or len(space.paths or [""]) > 1:
        return Features(names)
    return Features(names, space.scale_of((space.paths or [""])[0], (count,)))
