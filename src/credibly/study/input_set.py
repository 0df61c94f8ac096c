"""A set of inputs of a study, and what the sets of one study must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from credibly.decide.arguments import checked_labels, plain_labels
from credibly.errors import InvalidArgumentError
from credibly.io.fingerprints import digest_of_tensor
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import undisturbed
from credibly.model.inputs import enter
from credibly.problem.weights import class_count
from credibly.profile.arguments import check_bounds
from credibly.study.rows import NO_CLASS, Kind, Rows, slug
from credibly.types import Bounds, Labels, from_numpy


@dataclass(frozen=True, eq=False)
class InputSet:
    """Inputs of one kind.

    Attributes:
        inputs: (n, ...), or a function that makes them, called only when they are needed.
        labels: (n,), kept as a tensor; None for outliers, which have none.
        kind: 'ordinary' inputs are the reference for detection; exactly one set is such.
        source: for a function, what it makes, in words or as a digest: parts in a folder that were
            made of something else are refused. Tensors are known by their bytes.
    """

    inputs: Tensor | Callable[[], Tensor]
    labels: Labels | None
    kind: Kind
    source: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind) or (self.labels is None) != (self.kind == "outliers"):
            raise InvalidArgumentError(
                "kind",
                expected=f"one of {', '.join(get_args(Kind))}, all but the last with labels",
                got=f"{self.kind!r} with{'out' if self.labels is None else ''} labels",
                remedy="Outliers belong to no class; pass labels=None for them, and only for them.",
            )
        if self.labels is not None:
            object.__setattr__(self, "labels", _classes(self.labels))
        if not callable(self.inputs):
            object.__setattr__(self, "inputs", _tensor(self.inputs))

    def load(self) -> Tensor:
        """The inputs themselves."""
        return _tensor(self.inputs()) if callable(self.inputs) else self.inputs

    def origin(self) -> str | None:
        """What tells these inputs from others without making them; None where nothing does."""
        if self.source is not None:
            return f"made: {self.source}"
        return None if callable(self.inputs) else f"sha256 {digest_of_tensor(self.inputs)}"


def _tensor(inputs: object) -> Tensor:
    """A tensor, also of a NumPy array; nothing else has bytes to be known by."""
    if isinstance(inputs, np.ndarray) and inputs.dtype != object:
        return from_numpy(inputs)
    if not isinstance(inputs, Tensor):
        raise InvalidArgumentError(
            "inputs",
            expected="a tensor (n, ...), or a function that makes one",
            got=type(inputs).__name__,
            remedy="Stack the samples first, for example with torch.stack.",
        )
    return inputs


def _classes(labels: object) -> Tensor:
    """Numbers of classes, as a tensor; how many there should be is known with the inputs."""
    found = plain_labels(labels)
    number = found.dim() == 1 and found.dtype != torch.bool and not found.is_complex()
    if not number or len(found) == 0 or not bool(((found >= 0) & (found == found.long())).all()):
        raise InvalidArgumentError(
            "labels",
            expected="one class a sample (n,), as whole numbers from 0",
            got=type(labels).__name__
            + (f" of shape {tuple(found.shape)} of {found.dtype}" if found.numel() else ""),
            remedy="Number the classes in the order of the model's outputs; outliers have None.",
        )
    return found


def labels_of(inputs: InputSet, count: int) -> Tensor:
    """One a sample (n,); -1 for outliers."""
    if inputs.labels is None:
        return torch.full((count,), NO_CLASS)
    return plain_labels(inputs.labels).long().cpu()  # a tensor by now, which types cannot say


def check_columns(inputs: InputSet, scores: Mapping[str, Tensor], count: int) -> None:
    """Refuse labels and scores that are not one number a sample."""
    columns = {**scores, "labels": labels_of(inputs, count)}
    wrong = {name: tuple(v.shape) for name, v in columns.items() if tuple(v.shape) != (count,)}
    if wrong:
        raise InvalidArgumentError(
            "sets",
            expected=f"one number a sample, {count}",
            got=f"shapes {wrong}",
            remedy="Labels, scores and rivals give one number a sample.",
        )


def check_same_labels(part: Path, inputs: InputSet, rows: Rows) -> None:
    """Refuse a part on record whose labels are others."""
    if not torch.equal(rows.labels, labels_of(inputs, len(rows.labels))):
        raise InvalidArgumentError(
            "folder",
            expected=f"parts of the very sets of this study; the labels in {part.name} are others",
            got="a set of the same name",
            remedy="Choose another folder, or remove this part.",
        )


def check_usable(clf: Classifier, inputs: InputSet, x: Tensor, bounds: Bounds | None) -> None:
    """Refuse inputs that the model or the bounds do not allow, and labels of no class of it."""
    check_columns(inputs, {}, len(x))
    clf, start = enter(clf, x)
    check_bounds(bounds, clf.free_values(start))
    with undisturbed(start) as x0:
        check_model(clf, x0)
        if inputs.labels is not None:
            checked_labels(labels_of(inputs, len(x)), len(x), class_count(clf, x0))


def ordinary_of(sets: Mapping[str, InputSet]) -> InputSet:
    """The ordinary set, which settles gamma."""
    for inputs in sets.values():
        if inputs.kind == "ordinary":
            return inputs
    raise InvalidArgumentError(
        "gamma",
        expected="a number, or 'auto' with the ordinary set first, which settles it",
        got=f"'auto' for {list(sets)}",
        remedy="Compute the ordinary set first, or pass auto_gamma(clf, x) of it.",
    )


def check_names(names: Sequence[str]) -> None:
    """Refuse names that are one as files."""
    slugs = [slug(name) for name in names]
    if len(set(slugs)) < len(slugs) or "" in slugs:
        raise InvalidArgumentError(
            "sets",
            expected="sets of different names in Latin letters",
            got=f"{list(names)}",
            remedy="Parts are files of these names.",
        )


def check_sets(sets: Mapping[str, InputSet]) -> None:
    """Refuse anything but one ordinary set among sets of different names."""
    check_names(list(sets))
    ordinary = [name for name, inputs in sets.items() if inputs.kind == "ordinary"]
    if len(ordinary) != 1:
        raise InvalidArgumentError(
            "sets",
            expected="exactly one set of kind 'ordinary'",
            got=f"{list(sets)}, ordinary: {ordinary}",
            remedy="The ordinary set is the reference that others are told apart from.",
        )
