"""A set of inputs of a study, and what the sets of one study must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from credibly._validation import labels as check_labels
from credibly._validation import plain_tensor, require
from credibly.errors import InvalidArgumentError
from credibly.io.fingerprints import digest_of_tensor
from credibly.model.bind import bind
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import undisturbed
from credibly.problem.weights import class_count
from credibly.profile.arguments import check_bounds
from credibly.study.rows import NO_CLASS, Kind, find_ordinary, slug
from credibly.types import CPU, Bounds, Labels, from_numpy


@dataclass(frozen=True, eq=False)
class InputSet:
    """Inputs of one kind.

    Attributes:
        inputs: (n, ...), or a function that makes them, called only when they are needed.
        labels: (n,), kept as a tensor; None for outliers, which have none.
        kind: 'ordinary' inputs are the reference for detection, and exactly one set has them;
            'shifted', 'attacked' or 'outliers'.
        source: for a function, what it makes, as a description or a digest: parts in a folder that
            were made of something else are refused. Tensors are identified by their bytes.

    Example: see `Study`.
    """

    inputs: Tensor | Callable[[], Tensor]
    labels: Labels | None
    kind: Kind
    source: str | None = None

    def __post_init__(self) -> None:
        require(
            self.kind in get_args(Kind) and (self.labels is None) == (self.kind == "outliers"),
            "kind",
            f"one of {', '.join(get_args(Kind))}, all but the last with labels",
            f"{self.kind!r} with{'out' if self.labels is None else ''} labels",
            "Outliers belong to no class; pass labels=None for them, and only for them.",
        )
        if self.labels is not None:
            object.__setattr__(self, "labels", _as_classes(self.labels))
        if not callable(self.inputs):
            object.__setattr__(self, "inputs", _as_tensor(self.inputs))

    def load(self) -> Tensor:
        """The inputs themselves."""
        return _as_tensor(self.inputs()) if callable(self.inputs) else self.inputs

    def origin(self) -> str | None:
        """What identifies these inputs without making them; None where nothing does."""
        if self.source is not None:
            return f"made: {self.source}"
        return None if callable(self.inputs) else f"sha256 {digest_of_tensor(self.inputs)}"


def _as_tensor(inputs: object) -> Tensor:
    """A tensor, also of a NumPy array."""
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


def _as_classes(labels: object) -> Tensor:
    """Class numbers (n,); how many there should be is known with the inputs."""
    found = plain_tensor(labels, "labels")
    if found.is_floating_point() and bool((found == found.round()).all()):
        found = found.long()
    remedy = "Number the classes in the order of the model's outputs; outliers have None."
    shape = f"shape {tuple(found.shape)}"
    good = found.dim() == 1 and len(found) > 0
    require(good, "labels", "one whole number per sample", shape, remedy)
    return check_labels(found, len(found), None)


def labels_of(inputs: InputSet, count: int) -> Tensor:
    """One label per sample (n,); -1 for outliers."""
    if inputs.labels is None:
        return torch.full((count,), NO_CLASS, device=CPU)
    return torch.as_tensor(inputs.labels)


def sizes_of(sets: Mapping[str, InputSet]) -> dict[str, int]:
    """How many inputs each set has; for outliers that are not made yet, the mean of the others."""
    known = {
        name: len(part.inputs) if isinstance(part.inputs, Tensor) else len(labels_of(part, 0))
        for name, part in sets.items()
    }
    counted = [size for size in known.values() if size]
    usual = max(1, round(sum(counted) / max(1, len(counted))))
    return {name: size or usual for name, size in known.items()}


def check_columns(inputs: InputSet, scores: Mapping[str, Tensor], count: int) -> None:
    """Refuse labels and scores that are not one number per sample."""
    columns = {**scores, "labels": labels_of(inputs, count)}
    wrong = {name: tuple(v.shape) for name, v in columns.items() if tuple(v.shape) != (count,)}
    remedy = "Labels, scores and baselines give one number per sample."
    require(not wrong, "sets", f"one number per sample, {count}", f"shapes {wrong}", remedy)


def check_usable(clf: Classifier, inputs: InputSet, x: Tensor, bounds: Bounds | None) -> None:
    """Refuse inputs that the model or the bounds do not allow, and labels of no class of it."""
    check_columns(inputs, {}, len(x))
    variable = bind(clf, x)
    check_bounds(bounds, variable.free_values(variable.start))
    with undisturbed(variable) as variable:
        check_model(variable)
        if inputs.labels is not None:
            check_labels(inputs.labels, len(x), class_count(variable))


def ordinary_of(sets: Mapping[str, InputSet]) -> InputSet:
    """The ordinary set, which determines gamma='auto'."""
    for inputs in sets.values():
        if inputs.kind == "ordinary":
            return inputs
    raise InvalidArgumentError(
        "gamma",
        expected="a number, or 'auto' with the ordinary set first, which determines it",
        got=f"'auto' for {list(sets)}",
        remedy="Compute the ordinary set first, or pass auto_gamma(clf, x) of it.",
    )


def check_names(names: Sequence[str]) -> None:
    """Refuse names that are the same as file names."""
    slugs = [slug(name) for name in names]
    different = len(set(slugs)) == len(slugs) and "" not in slugs
    expected = "sets of different names in Latin letters"
    require(different, "sets", expected, f"{list(names)}", "Each set is a file of its name.")


def check_sets(sets: Mapping[str, InputSet]) -> None:
    """Refuse anything but one ordinary set among sets of different names."""
    check_names(list(sets))
    find_ordinary("sets", {name: inputs.kind for name, inputs in sets.items()})
