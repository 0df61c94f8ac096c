"""What the detail pane shows of one input: before, after, what moved, and the classes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from credibly.explore import drawing
from credibly.explore.page import as_json
from credibly.plot.view import Features, View, as_picture, as_signal
from credibly.profile.profile import Profile

MOST = 12
"""Classes, and columns of a table, that are shown."""

MOST_POINTS = 600
"""Values of a signal that are drawn."""

Found = dict[str, Any]
"""What the page reads as JSON."""

Inputs = dict[int, Found]
"""The same by row."""

STILL = 1e-6
"""Of its scale: what moves less has not moved, and is not drawn as if it had."""

ROOM = 2_200_000
"""Characters of a page that inputs without a counterfactual may take."""


def spread(trust: Mapping[int, float], verdicts: Sequence[str], count: int) -> list[int]:
    """Rows that a page shows in full: the least trusted of each verdict, in turn.

    Args:
        trust: of the rows to choose from, by number; without a number there is nothing to solve.
        verdicts: of all rows.
        count: how many are chosen.
    """
    groups: dict[str, list[int]] = {}
    known = [row for row, value in trust.items() if not math.isnan(value)]
    for row in sorted(known, key=lambda row: (trust[row], row)):
        groups.setdefault(verdicts[row], []).append(row)
    rounds = zip_longest(*groups.values())
    chosen = [row for rows in rounds for row in rows if row is not None]
    return chosen[:count]


def detail(
    profile: Profile,
    *,
    names: Sequence[str],
    features: Features | None = None,
    given: Tensor | None = None,
    words: Sequence[str | None] | None = None,
) -> Found:
    """Describe the only sample of a profile.

    Args:
        profile: of one input.
        names: of the classes, one per column of the profile.
        features: names and scales of the columns of a table.
        given: the input in the form in which it is to be drawn, if that is not x0's.
        words: of a text, one for each position that moved; None is not shown.
    """
    view = View.of(profile, 0, tuple(names), features or Features(), given)
    found: Found = {"title": view.title(), "input": _input(view, words)}
    if view.beside is not None:
        found["beside"] = drawing.picture(view.beside, *_range(view.beside))
    if view.solved:
        found["classes"] = _classes(view)
        found["class_count"] = profile.credibility.shape[1]
    return found


def input_alone(x: Tensor, features: Features | None = None) -> Found:
    """Describe an input (...) without a model: there is no counterfactual."""
    x = x.detach().double().cpu()
    features = features or Features()
    if (pixels := as_picture(x)) is not None:
        shown: Found = {"kind": "image", "before": drawing.picture(pixels, *_range(pixels))}
        shown |= _size(pixels)
    elif (signal := as_signal(x)) is not None:
        shown = {
            "kind": "signal",
            "before": _thin(signal[0]),
            "channel": 0,
            "channels": len(signal),
        }
    elif x.dim() == 1:
        shown = _table(x, None, features)
    else:
        shown = {"kind": "other", "sentence": f"{x.numel()} numbers in the shape {tuple(x.shape)}."}
    return {"input": shown}


def inputs_alone(rows: Iterable[tuple[int, Tensor]], features: Features, title: str) -> Inputs:
    """Inputs by row without their counterfactuals, as many as a page has room for.

    Args:
        rows: number and input, the most important first.
        features: names and scales of the columns of a table.
        title: what is said below each.
    """
    found: Inputs = {}
    room = ROOM
    for row, x in rows:
        about = input_alone(x, features) | {"title": title}
        room -= len(as_json(about))
        if room < 0 or about["input"]["kind"] == "other":
            break
        found[row] = about
    return found


def _input(view: View, words: Sequence[str | None] | None) -> Found:
    sequence = view.profile.x0.dim() == 3
    if words is not None and sequence and len(words) <= view.profile.x0.shape[1]:
        return _words(words, view.profile.x0[0], view.profile.perturbed[0])
    if view.kind == "picture":
        return _pictures(view)
    if view.kind == "signal":
        row = int(view.move.norm(dim=1).argmax())
        return {
            "kind": "signal", "channel": row, "channels": len(view.move),
            "before": _thin(view.before[row]), "after": _thin(view.after[row]),
        }  # fmt: skip
    if view.kind == "features":
        return _table(view.before, view.after, view.features)
    return {"kind": "other", "sentence": view.sentence()}


def _words(words: Sequence[str | None], before: Tensor, after: Tensor) -> Found:
    moved = (after - before).norm(dim=1).tolist()[: len(words)]
    pairs = [(w, m) for w, m in zip(words, moved, strict=True) if w is not None]
    shown = [{"text": word, "moved": size} for word, size in pairs]
    return {"kind": "words", "words": shown, "least": STILL * float(before.norm(dim=1).max())}


def _pictures(view: View) -> Found:
    low, high = _range(view.before, view.after)
    limit = max(float(view.move.abs().max()), STILL * (high - low))
    return {
        "kind": "image",
        "before": drawing.picture(view.before, low, high),
        "after": drawing.picture(view.after, low, high),
        "difference": drawing.difference(view.move, limit),
        "limit": limit,
        "range": [low, high],
        **_size(view.before),
    }


def _size(pixels: Tensor) -> Found:
    shown = drawing.fit(pixels)
    return {"height": shown.shape[0], "width": shown.shape[1]}


def _range(*pictures: Tensor) -> tuple[float, float]:
    """(0, 1) if all pixels are in it, else their smallest and largest value."""
    known = torch.cat([picture[picture.isfinite()] for picture in pictures])
    if not len(known) or bool(((known >= 0) & (known <= 1)).all()):
        return 0.0, 1.0
    return float(known.min()), float(known.max())


def _table(before: Tensor, after: Tensor | None, features: Features) -> Found:
    """The columns that moved most, or the first ones."""
    move = torch.zeros_like(before) if after is None else after - before
    size = move if features.scale is None else move / features.scale.to(move)
    order = range(len(before)) if after is None else _largest(size)
    names = features.names or [f"column {k}" for k in range(len(before))]
    columns = [
        {
            "name": names[k],
            "before": float(before[k]),
            "after": None if after is None else float(after[k]),
            "moved": float(size[k]),
        }
        for k in list(order)[:MOST]
    ]
    scaled = features.scale is not None
    least = STILL if scaled else STILL * float(before.nan_to_num().abs().max())
    shown = {"kind": "table", "columns": columns, "total": len(before), "scaled": scaled}
    return shown | {"least": max(least, 1e-300)}


def _largest(size: Tensor) -> list[int]:
    order: list[int] = size.abs().argsort(descending=True, stable=True).tolist()
    return order


def _thin(values: Tensor) -> list[float]:
    """A signal with so few values that it can be drawn; peaks are kept."""
    if len(values) <= MOST_POINTS:
        return [float(value) for value in values]
    blocks = [part for part in values.tensor_split(MOST_POINTS // 2) if len(part)]
    return [float(pick) for part in blocks for pick in (part.min(), part.max())]


def _classes(view: View) -> list[Found]:
    """Credibility before and after; of many classes those that are ahead before or after."""
    before, after = (
        values[0].detach().double().cpu()
        for values in (view.profile.credence, view.profile.credibility)
    )
    ahead = int(view.profile.predicted_column[0])
    order: list[int] = list(range(len(before)))
    if len(order) > MOST:
        ranks = [v.argsort(descending=True, stable=True).argsort() for v in (before, after)]
        order = torch.minimum(*ranks).argsort(stable=True)[:MOST].tolist()
        order.sort(key=lambda k: -float(before[k]))
    return [
        {
            "name": view.classes[k], "before": float(before[k]), "after": float(after[k]),
            "predicted": k == ahead,
        }
        for k in order
    ]  # fmt: skip
