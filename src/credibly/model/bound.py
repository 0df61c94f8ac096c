"""A classifier bound to a batch of inputs, seen as a function of the part that may move."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from credibly.errors import InvalidArgumentError, ModelError
from credibly.model.batches import check_batch, check_classifier, check_evaluation_mode
from credibly.model.classifier import Classifier
from credibly.model.coordinates import Coordinates
from credibly.model.derivatives import in_full, ordinary_path
from credibly.model.failures import about_tokens
from credibly.model.space import Space
from credibly.model.structure import (
    Nested,
    as_tensors,
    device_in,
    leaves,
    mapped,
    rows_of,
    samples_in,
)
from credibly.model.tables import numbers_of_table
from credibly.types import Bounds, Limits


class Bound(Classifier):
    """A classifier of what is solved for, one row a sample of the batch it is bound to.

    It can stand wherever a `Classifier` can, on the same samples in the same order.

    Attributes:
        variable: what is solved for, at the inputs themselves (n, ...).
    """

    def __init__(self, base: Classifier, context: Nested, variable: Tensor) -> None:
        self.__dict__.update(base.__dict__)
        self.context, self.variable = context, variable

    def raw_outputs(self, x: Tensor) -> Tensor:
        if len(x) != len(self.variable):
            raise ModelError(
                f"a classifier bound to {len(self.variable)} samples was called with {len(x)}",
                remedy="Choose the same samples of both: bound.select(rows).",
            )
        return self.one_row_per_sample(self.run_at(x), len(x))

    @property
    def start(self) -> Tensor:
        """The values that move, as they are in the inputs: what to pass together with this."""
        return self.decode(self.variable)

    @abstractmethod
    def run_at(self, variable: Tensor) -> Any:
        """What the model returns when the moving part has these values."""

    def select(self, rows: Tensor | slice) -> Bound:
        chosen = copy(self)
        chosen.context, chosen.variable = rows_of(self.context, rows), self.variable[rows]
        return chosen

    def based_at(self, values: Tensor) -> Bound:
        """The same with other values of the part that moves, attached to them."""
        moved = copy(self)
        moved.variable = values
        return moved


class InSpace(Bound):
    """Bound by a `Space`: some leaves move, in its metric, the others pass through."""

    def __init__(
        self, base: Classifier, context: Nested, paths: Sequence[str], coordinates: Coordinates
    ) -> None:
        super().__init__(base, context, coordinates.start)
        self.paths, self.coordinates = tuple(paths), coordinates
        shapes = {path: leaf.shape[1:] for path, leaf in leaves(context) if path in self.paths}
        self.shapes = [shapes[path] for path in self.paths]

    def run_at(self, variable: Tensor) -> Any:
        return self.run(self.inputs_at(self.decode(variable)))

    def inputs_at(self, values: Tensor) -> Nested:
        """The whole nested input, with these values, as in `profile.perturbed`, in place."""
        sizes = [shape.numel() for shape in self.shapes]
        parts = torch.split(values.flatten(1), sizes, dim=1)
        moved = {
            path: part.reshape(-1, *shape)
            for path, part, shape in zip(self.paths, parts, self.shapes, strict=True)
        }
        return mapped(self.context, moved.get)

    def select(self, rows: Tensor | slice) -> InSpace:
        chosen = super().select(rows)
        assert isinstance(chosen, InSpace)  # noqa: S101  # a copy of self
        chosen.coordinates = self.coordinates.select(rows)
        return chosen

    def based_at(self, values: Tensor) -> InSpace:
        moved = copy(self)
        moved.coordinates = self.coordinates.based_at(values.flatten(1))
        moved.variable = moved.coordinates.start
        return moved

    def encode(self, values: Tensor) -> Tensor:
        return self.coordinates.encode(values.flatten(1))

    def decode(self, variable: Tensor) -> Tensor:
        """Values of the leaves that vary: shaped like the leaf if it is one, else flat (n, D)."""
        flat = self.coordinates.decode(variable)
        return flat.reshape(-1, *self.shapes[0]) if len(self.shapes) == 1 else flat

    def free_values(self, variable: Tensor) -> Tensor:
        return self.coordinates.free_values(self.coordinates.decode(variable))

    def limits(self, bounds: Bounds | None) -> Limits | None:
        return self.coordinates.limits(bounds)

    def space_name(self) -> str:
        if self.space is not None and not self.space.is_plain:
            return self.space.describe()
        return "inputs" if self.paths == ("",) else f"inputs, {', '.join(self.paths)}"


class AtModule(InSpace):
    """Bound at the output of a named submodule, which is moved instead of the input."""

    def __init__(self, base: Classifier, inputs: Nested) -> None:
        self.__dict__.update(base.__dict__)
        check_evaluation_mode(base)
        self.inputs = inputs
        found = self._activation()
        space = base.space or Space()
        coordinates = Coordinates.of(space, [("", found)])
        super().__init__(base, found, [""], coordinates)

    def run_at(self, variable: Tensor) -> Any:
        values = self.decode(variable)
        handle = self._part().register_forward_hook(lambda *_: values)
        try:
            return self.run(self.inputs)
        finally:
            handle.remove()

    def select(self, rows: Tensor | slice) -> AtModule:
        chosen = super().select(rows)
        assert isinstance(chosen, AtModule)  # noqa: S101  # a copy of self
        chosen.inputs = rows_of(self.inputs, rows)
        return chosen

    def space_name(self) -> str:
        if self.space is None or self.space.is_plain:
            return f"output of module {self.module!r}"
        return f"output of module {self.module!r}, {self.space.describe()}"

    def _part(self) -> nn.Module:
        assert isinstance(self.net, nn.Module)  # noqa: S101  # checked when the name was given
        return self.net.get_submodule(str(self.module))

    def _activation(self) -> Tensor:
        """What the module gives for the inputs: one forward."""
        seen: list[Any] = []
        handle = self._part().register_forward_hook(lambda _m, _i, output: seen.append(output))
        try:
            with in_full(device_in(self.inputs)), torch.no_grad(), ordinary_path():
                self.run(self.inputs)
        except Exception as error:
            raise ModelError(
                f"the model failed on the inputs with {type(error).__name__}: {error}",
                remedy=about_tokens(self, error)
                or "Try it yourself on the same inputs; with unpack=True a mapping is passed "
                "as keywords and a tuple as positional arguments.",
            ) from error
        finally:
            handle.remove()
        count = samples_in(self.inputs)
        if len(seen) != 1 or not _is_batch(seen[0], count):
            got = f"{len(seen)} calls" if len(seen) != 1 else _kind(seen[0])
            raise InvalidArgumentError(
                "module",
                expected="a submodule that runs once and gives one floating tensor with a row for "
                f"each of the {count} samples",
                got=f"{self.module!r} with {got}",
                remedy="Name a part that does, such as the embedding itself and not its parent.",
            )
        if seen[0].dtype in (torch.float16, torch.bfloat16):
            raise ModelError(
                f"the module {self.module!r} gives {seen[0].dtype}: the trade-off is lost in its "
                "rounding",
                remedy="Convert the model: net.float().",
            )
        activation: Tensor = seen[0].detach().clone()
        return activation


def bind(clf: Classifier, x: Nested) -> Bound:
    """The classifier as a function of what moves, at these inputs.

    For nested inputs, spaces and named modules; `credibility` and its kin do this by themselves,
    and accept the result, too, together with its `start`. What takes a profile and a classifier
    of nested inputs needs it: `check_tradeoff(bind(clf, x), profile)`.

    Args:
        clf: a classifier with a `space` or a `module`.
        x: inputs as the classifier takes them.
    """
    check_classifier(clf)
    if isinstance(clf, Bound):
        raise InvalidArgumentError(
            "clf",
            expected="a classifier that is not bound yet",
            got=f"one bound to {len(clf.variable)} samples",
            remedy="Bind the classifier it was made from, or use it as it is.",
        )
    inputs = as_tensors(numbers_of_table(clf, x))
    with torch.inference_mode(False):
        if clf.module is not None:
            return AtModule(clf, inputs)
        space = clf.space or Space()
        paths = space.paths or _only_floating(inputs)
        found = dict(leaves(inputs))
        parts = [(path, _moving_leaf(clf, found, path)) for path in paths]
        _check_alike(parts)
        return InSpace(clf, inputs, paths, Coordinates.of(space, parts))


def _is_batch(found: object, count: int) -> bool:
    return (
        isinstance(found, Tensor)
        and found.is_floating_point()
        and found.dim() >= 2
        and len(found) == count
    )


def _kind(found: object) -> str:
    if not isinstance(found, Tensor):
        return f"a {type(found).__name__}"
    return f"shape {tuple(found.shape)} of {found.dtype}"


def _check_alike(parts: Sequence[tuple[str, Tensor]]) -> None:
    """Parts that move together must be one kind of number in one place."""
    kinds = {(str(leaf.dtype), str(leaf.device)) for _, leaf in parts}
    if len(kinds) > 1:
        raise InvalidArgumentError(
            "vary",
            expected="parts of one precision on one device",
            got=f"{sorted(kinds)}",
            remedy="Convert them first, for example with .to(x.dtype).",
        )


def _only_floating(inputs: Nested) -> list[str]:
    tensors = [(path, leaf) for path, leaf in leaves(inputs) if isinstance(leaf, Tensor)]
    floating = [path for path, leaf in tensors if leaf.is_floating_point()]
    if len(floating) != 1:
        raise InvalidArgumentError(
            "vary",
            expected="the names of the parts that may move",
            got=f"none, and {len(floating)} floating tensors to choose from: {_listed(floating)}",
            remedy=f"Say which: Classifier(net, space=Space(vary=[...])).{_of_samples(inputs)}"
            if floating
            else "Whole numbers cannot move. Of words move the embeddings, by the name of that "
            "layer: Classifier(net, module='embedding').",
        )
    return floating


def _listed(paths: Sequence[str], most: int = 5) -> str:
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return f"{list(paths[:most])}{more}"


def _of_samples(inputs: Nested) -> str:
    """What to do with a list that may be one of samples; they were taken for parts of one."""
    if not isinstance(inputs, list):
        return ""
    return " If the list is one of samples, stack them: torch.stack(x)."


def _moving_leaf(clf: Classifier, found: dict[str, Any], path: str) -> Tensor:
    if path and list(found) == [""]:
        raise InvalidArgumentError(
            "x",
            expected=f"a nested input with the part {path!r}, which is what may move",
            got="one tensor without parts",
            remedy=f"Pass all parts that the model takes by name: {{{path!r}: x, ...}}.",
        )
    if path not in found:
        raise InvalidArgumentError(
            "vary",
            expected=f"parts of the input, {sorted(found)}",
            got=repr(path),
            remedy="Paths are keys and positions joined by dots, such as 'image' or 'views.0'.",
        )
    return check_batch(clf, found[path], f"x[{path!r}]" if path else "x")
