"""From judgements to the explorer: the columns, and the detail of an input."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from credibly._extras import load_extra
from credibly._validation import require
from credibly.decide.shown import classes_as_words
from credibly.decide.verdict import Verdict
from credibly.errors import CrediblyError
from credibly.explore import drawing
from credibly.explore.detail import Found, Inputs, detail, inputs_alone, spread
from credibly.explore.page import Explorer, render
from credibly.explore.table import columns_of
from credibly.io.labels import class_numbers
from credibly.model.batches import column_names
from credibly.model.derivatives import undisturbed
from credibly.model.in_space import AtModule
from credibly.model.structure import leaves
from credibly.model.variable import Variable
from credibly.plot.view import Features, as_picture
from credibly.profile.profile import Profile
from credibly.types import Labels
from credibly.version import __version__

if TYPE_CHECKING:
    from credibly.decide.judgement import Judgement
    from credibly.decide.signals import Typicality

NEAREST = 3
"""Ordinary inputs that are shown beside an input."""

ALONE = (
    "This page has the counterfactuals of some inputs only, the least trusted of each verdict; "
    "not that of this one."
)
"""Below an input whose counterfactual is not part of the page."""

OF_THE_PAGE = ("row", "mark")
"""Columns that the page makes itself."""

SHOWN = 6
"""Columns of an ordinary row that are shown."""

Words = Sequence[Sequence[str | None]] | Callable[[int], Sequence[str | None]]
"""The words of each text, or a function from the number of an input to them."""


def explore(
    found: Judgement,
    *,
    labels: Labels | None,
    details: int,
    words: Words | None,
    columns: Mapping[str, Sequence[Any]],
    title: str,
) -> Explorer:
    """The page of a judgement, with the details of its least trusted inputs."""
    load_extra("pandas", extra="table", purpose="An explorer of verdicts")
    frame = classes_as_words(found.to_pandas())
    frame["reason"] = list(found.reasons)
    if labels is not None:
        truth = class_numbers(labels, len(found), found.class_count, found.names)
        frame["label"] = [found.class_name(k) for k in truth.tolist()]
    for name, values in columns.items():
        taken = name in frame.columns or str(name) in OF_THE_PAGE
        names, rename = "names that the page does not use itself", "Choose another name."
        require(not taken, "columns", names, repr(name), rename)
        got, remedy = f"{len(values)} of {name!r}", "They belong to the inputs in order."
        require(len(values) == len(found), "columns", f"{len(found)} values", got, remedy)
        frame[str(name)] = list(values)
    chosen = [] if found.inputs is None else _chosen(found, found.inputs.rows, details)
    profiles = {} if found.inputs is None else found.inputs.profiles_of(chosen)
    shown = {} if found.inputs is None else _alone(found, set(chosen))
    shown |= {row: detail_of(found, row, words=words, profile=profiles.get(row)) for row in chosen}
    data = {
        **facts(found.shares_right, title, _classes(found)),
        "rows": len(found),
        "columns": columns_of(frame.drop(columns=["class", "accepted"])),
        "extra": [name for name in columns if name != "label"],
        "details": shown,
        "advice_detail": "This page has room for the inputs of the least trusted rows only. "
        "`credibly explore` shows all."
        if chosen
        else "The inputs were not kept: judge a single batch, or pass keep=True.",
    }
    return Explorer(render(data, title=f"credibly: {title}"), len(found))


def _classes(found: Judgement) -> list[str]:
    return [found.class_name(k) for k in range(found.class_count)]


def facts(
    shares_right: dict[str, float], title: str, classes: Sequence[str] | None
) -> dict[str, Any]:
    """What a page says whatever the rows are; by the names of the classes it reads labels."""
    return {
        "title": title,
        "classes": None if classes is None else list(classes),
        "version": __version__,
        "advice": {verdict.value: verdict.advice for verdict in Verdict},
        "right": shares_right,
    }


def _chosen(found: Judgement, known: Container[int], details: int) -> list[int]:
    """Inputs whose details are in the page, of those that were kept."""
    trust = {row: value for row, value in enumerate(found.trust.tolist()) if row in known}
    return spread(trust, [verdict.value for verdict in found.verdicts], details)


def _alone(found: Judgement, solved: set[int]) -> Inputs:
    """The other inputs, as they are; nothing is solved for them. The least trusted first."""
    assert found.inputs is not None  # noqa: S101  # the caller looked
    order = found.trust.nan_to_num(-torch.inf).argsort(stable=True).tolist()
    others = [row for row in order if row in found.inputs.rows and row not in solved]
    if not others or not solved:
        return {}
    first = found.inputs.variable_of(others[0])
    if first is None or isinstance(first, AtModule):  # what moves is not the input
        return {}
    kept = ((row, found.inputs.variable_of(row)) for row in others)
    rows = ((row, variable.values[0]) for row, variable in kept if variable is not None)
    return inputs_alone(rows, features_of(first), ALONE)


def detail_of(
    found: Judgement, row: int, *, words: Words | None = None, profile: Profile | None = None
) -> Found:
    """Everything the detail pane shows of one input; its profile is solved if it is not known."""
    about: Found = {"reason": found.reasons[row]}
    try:
        profile = found.profile_of(row) if profile is None else profile
    except CrediblyError as error:
        return about | {"title": str(error)}
    variable = None if found.inputs is None else found.inputs.variable_of(row)
    about |= detail(
        profile,
        names=profile.column_names(0),
        features=None if variable is None else features_of(variable),
        words=_words_of(words, row, variable),
    )
    if found.inputs is not None and variable is not None:
        about |= _neighbours(found.inputs.typicality, found.inputs.examiner.glance, variable)
    return about


def features_of(variable: Variable) -> Features:
    """Names and scales of the columns of a table."""
    shape = variable.values.shape
    if len(shape) != 2:
        return Features()
    count = shape[1]
    space, names = variable.clf.space, column_names(variable.clf)
    if space is not None and space.columns is not None:
        names = tuple(map(str, space.columns))
    names = None if names is None or len(names) != count else tuple(map(str, names))
    if space is None or space.scale is None or len(space.paths or [""]) > 1:
        return Features(names)
    return Features(names, space.scale_of((space.paths or [""])[0], (count,)))


def _words_of(words: Words | None, row: int, variable: Variable | None) -> list[str | None] | None:
    """The words of a text; without them the numbers of its tokens, where these can be seen."""
    if words is not None:
        return list(words(row) if callable(words) else words[row])
    ids = None if variable is None else tokens_of(variable)
    return None if ids is None else [None if k is None else f"#{k}" for k in ids]


def tokens_of(variable: Variable) -> list[int | None] | None:
    """The token ids of the only input, if what moves is a sequence and ids are its origin.

    Tokens that its attention mask hides, such as those that fill it up, are None.
    """
    if not isinstance(variable, AtModule) or variable.values.dim() != 3:
        return None
    shape = (1, variable.values.shape[1])
    parts = {
        path.rpartition(".")[2]: part[0].tolist()
        for path, part in leaves(variable.inputs)
        if isinstance(part, Tensor) and part.shape == shape and _is_whole(part)
    }
    mask = parts.pop("attention_mask", [1] * shape[1])
    ids = parts.get("input_ids", next(iter(parts.values()), None))
    if ids is None:
        return None
    return [int(k) if seen else None for k, seen in zip(ids, mask, strict=True)]


def _is_whole(part: Tensor) -> bool:
    return part.dtype != torch.bool and bool((part == part.round()).all())


def _neighbours(typicality: Typicality | None, glance: Any, variable: Variable) -> Found:
    """The nearest ordinary inputs: by the features of the network, or by the inputs themselves."""
    if typicality is None:
        return {}
    with undisturbed(variable) as one:
        seen = glance(one)
    inputs = typicality.inputs
    if typicality.features is not None and seen.features is not None:
        here, point, by = typicality.features.points, seen.features, "the network's features"
    elif inputs is not None and seen.values is not None:
        here, point, by = inputs.points.points, inputs.metric(seen.values).float(), "their values"
    else:
        return {}
    gaps = torch.linalg.vector_norm((here - point.to(here)).double(), dim=1)
    nearest = gaps.topk(min(NEAREST, len(gaps)), largest=False)
    rows = zip(nearest.indices.tolist(), nearest.values.tolist(), strict=True)
    names = column_names(variable.clf)
    shown = [
        {"distance": gap, **_class_of(typicality, row, variable), **_look(typicality, row, names)}
        for row, gap in rows
    ]
    return {"neighbours": shown, "nearest_by": by}


def _class_of(typicality: Typicality, row: int, variable: Variable) -> Found:
    if typicality.agreement is None:
        return {}
    number = int(typicality.agreement.classes[row])
    names = variable.clf.classes
    return {"name": str(number) if names is None else names[number]}


def _look(typicality: Typicality, row: int, names: Sequence[str] | None) -> Found:
    """An ordinary input as far as a Judge keeps it: whole, or at most 1024 of its values."""
    inputs = typicality.inputs
    if inputs is None or len(inputs.metric.places) != torch.Size(inputs.shape).numel():
        return {}
    point, metric = inputs.points.points[row].double().cpu(), inputs.metric
    values = (point * metric.unit.double() + metric.centre.double()).reshape(inputs.shape)
    pixels = as_picture(values)
    if pixels is not None:
        low, high = min(0.0, float(pixels.min())), max(1.0, float(pixels.max()))
        return {"picture": drawing.picture(pixels, low, high)}
    if values.dim() != 1:
        return {}
    known = names or [f"column {k}" for k in range(len(values))]
    pairs = list(zip(known, values.tolist(), strict=True))[:SHOWN]
    return {"columns": [{"name": str(name), "value": value} for name, value in pairs]}


def check_details(details: Any) -> int:
    """A whole number of inputs, at least 0."""
    good = isinstance(details, int) and not isinstance(details, bool) and details >= 0
    require(good, "details", "how many inputs are shown in full", repr(details), "For example 100.")
    return int(details)
