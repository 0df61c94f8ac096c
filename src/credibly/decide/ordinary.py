"""The ordinary inputs of a Judge, and their labels, from anything that holds them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from credibly._validation import labels as check_labels
from credibly._validation import plain_tensor, require
from credibly.decide.accelerate import accelerate
from credibly.decide.examine import variables_of
from credibly.decide.ordinary_checks import refuse_another_order
from credibly.errors import CrediblyWarning
from credibly.io.labels import label_place, names_a_file, numbered, raw_labels
from credibly.io.marks import is_marks, labels_from_marks, read_marks
from credibly.io.sources import open_source
from credibly.io.streams import Batch, as_classifier, joined_labels
from credibly.model.batches import TakesTables
from credibly.model.bind import bind
from credibly.model.classifier import Classifier
from credibly.model.space import Space
from credibly.model.variable import Inputs, Variable
from credibly.profile.profile import Profile
from credibly.types import CPU, Labels, finite_rows

MOST = 5000
"""Ordinary inputs that are used at most; more make a Judge slower, not better."""

PER_LABEL = (
    "Fit one Judge per label: Classifier(net, pick=lambda z: z[:, k:k+1]) asks about label k, and "
    "labels[:, k] are its classes."
)


@dataclass(frozen=True, eq=False)
class Ordinary:
    """The ordinary inputs: usable rows of variables, where they came from, and their labels."""

    variables: tuple[Variable, ...]
    rows: Tensor  # their numbers in what was passed
    broken: tuple[int, ...]
    labels: Tensor | None

    def __len__(self) -> int:
        return len(self.rows)

    def accelerated(self) -> Ordinary:
        """The same asked of a faster copy of the network, where that is worth it: on a GPU."""
        first = self.variables[0]
        known = not isinstance(first, Inputs) or first.clf.notes  # the user has done it
        if known or not first.start.is_cuda:
            return self
        clf = accelerate(first.clf, first.start)
        return replace(self, variables=tuple(replace(v, clf=clf) for v in self.variables))


def read_ordinary(
    net: Any, data: Any, labels: Labels | str | Path | Literal[True] | None, size: int
) -> Ordinary:
    """Read the first ordinary inputs, once, and leave out those with NaN or infinity.

    The model does not run. The classifier is that of the variables.
    """
    remedy = "Pass the inputs themselves: a Judge solves the profiles it needs."
    own = not isinstance(data, Profile)
    require(own, "ordinary", "inputs", f"a {type(data).__name__}", remedy)
    refuse_another_order(data, labels)
    clf = as_classifier(net)
    data, labels = _from_files(data, labels)
    if is_marks(labels):
        assert isinstance(labels, str | Path)  # noqa: S101  # just asked
        found = labels_from_marks(read_marks(labels), clf.classes)
        require(bool(found), "labels", "marks of right and wrong", "none", "Mark some rows first.")
        variables, chosen = _marked(clf, data, size, found)
        known: Tensor | None = torch.tensor([found[row] for row in chosen], device=CPU)
    else:
        variables, known = _first(clf, data, size, labels)
        chosen = []
    finite = [finite_rows(variable.start) for variable in variables]
    usable = [v.select(k.nonzero().squeeze(1)) for v, k in zip(variables, finite, strict=True)]
    usable = [variable for variable in usable if len(variable)]
    good = torch.cat([part.cpu() for part in finite])
    rows, broken = good.nonzero().squeeze(1), (~good).nonzero().squeeze(1)
    if _needs_units(net, clf) and usable:
        usable = _in_own_units(clf, usable)
    kept = None if known is None else known[rows]
    if chosen:  # their numbers among all that were passed
        places = torch.tensor(chosen, device=CPU)
        rows, broken = places[rows], places[broken]
    return Ordinary(tuple(usable), rows, tuple(broken.tolist()), kept)


def _from_files(data: Any, labels: Any) -> tuple[Any, Any]:
    """Labels that lie in a file, or beside the inputs in theirs."""
    if not isinstance(labels, str | Path) or is_marks(labels):
        return data, labels
    if names_a_file(str(labels)):
        return data, raw_labels(*label_place(str(labels), Path()))
    if isinstance(data, str | Path):
        return open_source(data, label=str(labels)), True
    return data, labels


def _first(
    clf: Classifier, data: Any, size: int, labels: Any
) -> tuple[list[Variable], Tensor | None]:
    """The first inputs, and their labels."""
    count, variables, batches = 0, [], []
    named = labels if labels is True or isinstance(labels, str) else None
    for variable, batch in variables_of(clf, data, size, labels=named):
        variables.append(variable.select(slice(0, MOST - count)))
        batches.append(Batch(None, None if batch.labels is None else batch.labels[: MOST - count]))
        count += len(variable)
        if count >= MOST:
            break
    return variables, _labels_of(clf, labels, batches, count)


def _marked(
    clf: Classifier, data: Any, size: int, labels: Mapping[int, int]
) -> tuple[list[Variable], list[int]]:
    """The inputs that a person called right or wrong, and their numbers."""
    start, variables, rows = 0, [], list[int]()
    for variable, _ in variables_of(clf, data, size):
        here = [row for row in range(start, start + len(variable)) if row in labels]
        here = here[: MOST - len(rows)]
        if here:
            places = torch.tensor(here, device=variable.start.device) - start
            variables.append(variable.select(places))
            rows += here
        start += len(variable)
        if len(rows) >= min(MOST, len(labels)):
            break
    beyond = max(labels) >= start and len(rows) < min(MOST, len(labels))
    remedy = "Pass the inputs that were judged, in the same order."
    require(not beyond, "ordinary", f"inputs for row {max(labels)}, marked", f"{start}", remedy)
    return variables, rows


def _labels_of(clf: Classifier, labels: Any, batches: Sequence[Batch], count: int) -> Tensor | None:
    """The classes of the inputs that were read; `count` is how many there were, at least."""
    if labels is None:
        return None
    if labels is True or isinstance(labels, str):
        found = joined_labels(list(batches))
        remedy = "Pass labels=<classes>, or a loader that yields (inputs, labels)."
        require(found is not None, "labels", "labels beside the inputs", "inputs alone", remedy)
        labels = found
    _refuse_several(labels)
    read, labels = min(count, MOST), numbered(labels, clf.classes)
    if count >= MOST and hasattr(labels, "__len__") and len(labels) > read:
        labels = plain_tensor(labels, "labels")[:read]  # of those that are not read
    return check_labels(labels, read, None)


def _refuse_several(labels: Any) -> None:
    """Several labels per input are several questions, each with a verdict of its own."""
    shape = tuple(getattr(labels, "shape", ()))
    require(
        len(shape) != 2 or shape[1] < 2,
        "labels",
        "one class per input",
        f"a matrix {shape}, as of a model that gives several labels at once",
        f"{PER_LABEL} If each row is one class in one-hot form, pass labels.argmax(1).",
    )


def _needs_units(net: Any, clf: Classifier) -> bool:
    """Whether it is a fitted model of a table, whose columns have no common unit as they are."""
    own = not isinstance(net, Classifier | Variable)
    return own and isinstance(clf.net, TakesTables) and clf.space is None


def _in_own_units(clf: Classifier, variables: Sequence[Variable]) -> list[Variable]:
    """The same inputs, each column measured in its standard deviation."""
    values = torch.cat([variable.values.cpu() for variable in variables])
    if not bool((values != values[0]).any()):  # no column has a unit; they are refused later
        return list(variables)
    scaled = with_space(clf, Space.standardised(values))
    return [bind(scaled, variable.values) for variable in variables]


def with_space(clf: Classifier, space: Space) -> Classifier:
    """The same classifier in a space."""
    other = clf.with_net(clf.net)
    other.space = space
    return other


def warn_of_left_out(
    ordinary: Ordinary, used: Tensor, set_aside: tuple[int, ...]
) -> tuple[int, ...]:
    """Say which of the ordinary inputs were left out, and return their numbers.

    `used` and `set_aside` are numbers among the usable ones; no others had an answer.
    """
    aside = tuple(ordinary.rows[list(set_aside)].tolist()) if set_aside else ()
    known = {*used.tolist(), *set_aside}
    lost = tuple(n for k, n in enumerate(ordinary.rows.tolist()) if k not in known)
    for rows, why in (
        (ordinary.broken, "hold NaN or infinity"),
        (lost, "make the model give NaN or infinity"),
        (aside, "are unlike the others"),
    ):
        if rows:
            shown = ", ".join(map(str, rows[:10])) + (", ..." if len(rows) > 10 else "")
            warnings.warn(
                f"{len(rows)} of the ordinary inputs {why} and were left out: numbers {shown}",
                CrediblyWarning,
                stacklevel=4,
            )
    return (*ordinary.broken, *lost, *aside)
