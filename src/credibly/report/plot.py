"""A picture of one profile of one's own: what moved, and what the classes made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.model.batches import classifier_inside
from credibly.model.classifier import Classifier
from credibly.model.tables import column_names
from credibly.profile.given import check_profile
from credibly.profile.profile import Profile
from credibly.report.extras import require_report_extra
from credibly.report.view import Features, View
from credibly.types import is_table, table_numbers, whole_number

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
    """Draw one sample: its input before and after, what moved, and its bars of credibility.

    Of images (1 or 3 channels, first or last) x0, x+ and their difference are drawn: as they are,
    or, where values leave [0, 1], from the smallest to the largest of both, which the figure then
    says. Of signals (channels, T), or (T, channels), with at least eight values for each of at most
    16 channels, the channel that moved most is drawn as curves. Of flat features those that moved
    most are shown, with their values before and after. Of anything else (words, graphs, parts of
    nested inputs) a sentence says how far it moved. The title says which class was ahead before and
    after, and how far apart x0 and x+ are.

    Args:
        profile: from `credibility`, or read by `Profile.load`. A table (`Profile.from_parquet`)
            holds no inputs, and is refused with a `NotStoredError`.
        index: which sample; -1 is the last.
        inputs: the inputs of all samples, where their form is not that of `profile.x0`. With as
            many numbers a sample they say how x0 and x+ are to be drawn, such as pictures that were
            flattened, (n, h, w) without channels, or flat signals as (n, 1, T); of a pandas table
            the columns are the names of the features. Where something else moved (`module=`,
            parameters), pictures are shown beside it as they are.
        classes: names of the classes, if others than those of the profile.
        features: names of the flat features, or the classifier that has them (`Space(columns=)`,
            `from_sklearn` of a model fitted on a table). By the scales of its space features are
            compared, too.

    Returns:
        A matplotlib figure of its own, with no global state: `figure.savefig("profile.png")`.
    """
    check_profile(profile)
    require_report_extra(("matplotlib",), purpose="A picture of a profile")
    row = _row(profile, index)
    names, count = _class_names(profile, classes), profile.x0[row].numel()
    given = _given(inputs, row, len(profile))
    named = _columns(inputs, profile.x0[row], row) if features is None else features
    known = _features(named, count)
    view = View.of(profile, row, names, features=known, given=given)
    if given is not None and given.numel() != count and view.beside is None:
        raise InvalidArgumentError(
            "inputs",
            expected=f"pictures, or as many numbers a sample as what moved, {count}",
            got=f"samples of shape {tuple(given.shape)}",
            remedy="Leave it out: the profile holds what moved.",
        )
    from credibly.report.one_sample import draw

    return draw(view)


def _row(profile: Profile, index: int) -> int:
    row, count = whole_number(index), len(profile)
    if row is None or not -count <= row < count:
        raise InvalidArgumentError(
            "index",
            expected=f"the number of a sample, 0 to {count - 1}" if count else "a sample",
            got=repr(index) if count else "a profile without any",
            remedy="One figure shows one sample; call it for each.",
        )
    return row % count


def _class_names(profile: Profile, classes: Sequence[str] | None) -> tuple[str, ...]:
    count = profile.credibility.shape[1]
    if classes is None:
        return tuple(profile.class_name(k) for k in range(count))
    if isinstance(classes, str) or len(classes) != count:
        raise InvalidArgumentError(
            "classes",
            expected=f"{count} names, one a class",
            got=repr(classes) if isinstance(classes, str) else f"{len(classes)}",
            remedy="Leave it out to take those of the classifier.",
        )
    return tuple(map(str, classes))


def _columns(inputs: Any, x0: Tensor, row: int) -> Sequence[str] | None:
    """Names of the columns of a table, which must hold the numbers that were solved."""
    if not is_table(inputs):
        return None
    names = [str(name) for name in inputs.columns]
    if len(names) != x0.numel():
        return names  # refused where the names are counted
    try:
        values = torch.from_numpy(table_numbers(inputs)[row]).float()
    except (TypeError, ValueError):
        return names  # words and categories were encoded before the model
    solved = x0.detach().float().cpu().flatten()
    same_numbers = torch.equal(values.sort().values, solved.sort().values)
    if same_numbers and not torch.equal(values, solved):
        raise InvalidArgumentError(
            "inputs",
            expected="the columns in the order of the model's",
            got=f"the same numbers in another order: {', '.join(names[:5])}, ...",
            remedy="Pass features=clf, which knows them by name, or the table in the model's "
            "order.",
        )
    return names


def _given(inputs: Any, row: int, count: int) -> Tensor | None:
    """The sample of inputs that were brought; of a table only the names of columns count."""
    if inputs is None:
        return None
    if not is_table(inputs) and not isinstance(inputs, Tensor | np.ndarray):
        raise _bad_inputs(f"a {type(inputs).__name__}", count)
    if inputs.ndim < 2 or len(inputs) != count:
        raise _bad_inputs(f"shape {tuple(inputs.shape)}", count)
    if is_table(inputs):
        return None
    sample = inputs[row]
    if isinstance(sample, Tensor):
        return sample.detach().double().cpu()
    try:
        return torch.from_numpy(np.array(sample, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise _bad_inputs(f"an array of {inputs.dtype}", count) from error


def _bad_inputs(got: str, count: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        "inputs",
        expected=f"a tensor, an array or a table of the {count} samples of the profile",
        got=got,
        remedy="Pass all inputs, in the order in which they were solved; `index` chooses one.",
    )


def _features(features: Sequence[str] | Classifier | None, count: int) -> Features | None:
    """Names and scales of flat features, as far as they are known."""
    if features is None:
        return None
    if isinstance(features, Classifier):
        return _of_classifier(features, count)
    if not hasattr(features, "__len__"):
        raise InvalidArgumentError(
            "features",
            expected=f"{count} names, one a feature, or the classifier",
            got=type(features).__name__,
            remedy=classifier_inside(features) or "Pass a list of names.",
        )
    if isinstance(features, str) or len(features) != count:
        raise InvalidArgumentError(
            "features",
            expected=f"{count} names, one a feature, or the classifier",
            got=repr(features) if isinstance(features, str) else f"{len(features)}",
            remedy="A table passed as inputs= must have the columns of the profile, in its order.",
        )
    return Features(tuple(map(str, features)), None)


def _of_classifier(clf: Classifier, count: int) -> Features | None:
    space = clf.space
    named = None if space is None else space.columns  # also of a layer, or of a part that moves
    names = column_names(clf) if named is None else named
    known = None if names is None or len(names) != count else tuple(map(str, names))
    if space is None or space.scale is None or len(space.paths or [""]) > 1:
        return None if known is None else Features(known, None)
    return Features(known, space.scale_of((space.paths or [""])[0], (count,)))
