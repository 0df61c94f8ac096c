"""Parts of nested inputs, or the output of a submodule, moved in the metric of a `Space`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from credibly._validation import require
from credibly.errors import ModelError
from credibly.model.batches import HALF, check_batch, check_evaluation_mode, float_tokens
from credibly.model.classifier import Classifier
from credibly.model.coordinates import Coordinates
from credibly.model.derivatives import in_full, ordinary_path
from credibly.model.space import Space
from credibly.model.structure import (
    Nested,
    device_in,
    leaves,
    mapped,
    samples_in,
    split,
)
from credibly.model.substitute import Parts, Recording, without_hooks
from credibly.model.variable import Moves, Variable
from credibly.types import Bounds, Limits


@dataclass(frozen=True, eq=False)
class InSpace(Variable):
    """Some leaves of the inputs move, in the metric of a space; the others pass through.

    Attributes:
        context: the whole nested inputs.
        paths: the leaves that move.
        coordinates: of these leaves.
    """

    context: Nested
    paths: tuple[str, ...]
    coordinates: Coordinates

    per_sample: ClassVar[tuple[str, ...]] = ("start", "context", "coordinates")

    @cached_property
    def shapes(self) -> list[torch.Size]:
        """Shape of a sample of each leaf that moves."""
        found = dict(leaves(self.context))
        return [found[path].shape[1:] for path in self.paths]

    def run_at(self, x: Tensor) -> Any:
        return self.clf.run(self.inputs_at(self.decode(x)))

    def inputs_at(self, values: Tensor) -> Nested:
        """The whole nested inputs, with these values, as in `profile.perturbed`, in place."""
        return mapped(self.context, split(values.flatten(1), self.paths, self.shapes).get)

    def based_at(self, values: Tensor) -> InSpace:
        coordinates = self.coordinates.based_at(values.flatten(1))
        return replace(self, start=coordinates.start, coordinates=coordinates)

    def encode(self, values: Tensor) -> Tensor:
        return self.coordinates.encode(values.flatten(1))

    def decode(self, x: Tensor) -> Tensor:
        """Values of the leaves that move: shaped like the leaf if it is one, else flat (n, D)."""
        flat = self.coordinates.decode(x)
        return flat.reshape(-1, *self.shapes[0]) if len(self.shapes) == 1 else flat

    def free_values(self, x: Tensor) -> Tensor:
        return self.coordinates.free_values(self.coordinates.decode(x))

    def limits(self, bounds: Bounds | None) -> Limits | None:
        return self.coordinates.limits(bounds)

    def describe(self) -> str:
        if self.clf.space is not None and not self.clf.space.is_plain:
            return self.clf.space.describe()
        return "inputs" if self.paths == ("",) else f"inputs, {', '.join(self.paths)}"

    def with_space(self, what: str) -> str:
        """What moves, followed by the space where there is one."""
        space = self.clf.space
        return what if space is None or space.is_plain else f"{what}, {space.describe()}"


@dataclass(frozen=True, eq=False)
class AtModule(InSpace):
    """The output of a named submodule moves instead of the inputs.

    Attributes:
        inputs: the nested inputs themselves; `context` is what the submodule gives for them.
        parts: the submodule, as a part of the network.
    """

    inputs: Nested
    parts: Parts

    moves: ClassVar[Moves] = "module"
    per_sample: ClassVar[tuple[str, ...]] = (*InSpace.per_sample, "inputs")

    def run_at(self, x: Tensor) -> Any:
        with self.parts.on(_network(self.clf)).giving(self.decode(x)) as net:
            return self.clf.with_net(net).run(self.inputs)

    def describe(self) -> str:
        return self.with_space(f"output of module {self.clf.module!r}")


def in_space(clf: Classifier, context: Nested) -> InSpace:
    """Nested inputs, of which the space of the classifier says what moves."""
    space, found = clf.space or Space(), dict(leaves(context))
    paths = space.paths or _only_floating(context)
    parts = [(path, _moving_leaf(clf, found, path)) for path in paths]
    kinds = sorted({(str(leaf.dtype), str(leaf.device)) for _, leaf in parts})
    remedy = "Convert them first, for example with .to(x.dtype)."
    require(len(kinds) < 2, "vary", "parts of one precision on one device", f"{kinds}", remedy)
    coordinates = Coordinates.of(space, parts)
    return InSpace(clf, coordinates.start, context, tuple(paths), coordinates)


def at_module(clf: Classifier, inputs: Nested) -> AtModule:
    """What the submodule gives for these inputs: the model runs once."""
    check_evaluation_mode(clf)
    beside = (clf.preprocess, clf.pick)
    parts = Parts.of(_network(clf), modules=[str(clf.module)], beside=beside)
    with in_full(device_in(inputs)):
        seen = recorded(clf, parts, inputs)[0]
        if not seen.outputs and not parts.in_place:
            # not called in the copy: perhaps by something that refers to the network itself
            parts = replace(parts, in_place=True)
            seen = recorded(clf, parts, inputs)[0]
    found = _checked_activation(clf, seen.outputs, samples_in(inputs))
    coordinates = Coordinates.of(clf.space or Space(), [("", found)])
    silent = seen.silent and all(map(without_hooks, parts.modules.values()))
    parts = replace(parts, silent=silent)
    return AtModule(clf, coordinates.start, found, ("",), coordinates, inputs, parts)


def recorded(clf: Classifier, parts: Parts, inputs: Nested) -> tuple[Recording, Any]:
    """What a part of the model gives, and what the model returns, in one forward."""
    seen = Recording()
    try:
        with torch.no_grad(), ordinary_path(), parts.watched(seen.after, seen.before) as net:
            return seen, clf.with_net(net).run(inputs)
    except Exception as error:
        raise ModelError(
            f"the model failed on the inputs with {type(error).__name__}: {error}",
            remedy=float_tokens(clf, error)
            or "Try it yourself on the same inputs: shape, precision and device must be those it "
            "was trained with; with unpack=True a mapping is passed as keywords and a tuple as "
            "positional arguments.",
        ) from error


def _network(clf: Classifier) -> nn.Module:
    assert isinstance(clf.net, nn.Module)  # noqa: S101  # checked when the name was given
    return clf.net


def _checked_activation(clf: Classifier, seen: list[Any], count: int) -> Tensor:
    found: Any = seen[0] if len(seen) == 1 else None
    tensor = isinstance(found, Tensor)
    kind = f"shape {tuple(found.shape)} of {found.dtype}" if tensor else f"a {type(found).__name__}"
    require(
        tensor and found.is_floating_point() and found.dim() >= 2 and len(found) == count,
        "module",
        f"a submodule that runs once and gives one floating tensor with a row for each of the "
        f"{count} samples",
        f"{clf.module!r} with {kind if len(seen) == 1 else f'{len(seen)} calls'}",
        "Name a part that does, such as the embedding itself and not its parent.",
    )
    if found.dtype in HALF:
        raise ModelError(
            f"the module {clf.module!r} gives {found.dtype}, whose rounding hides the trade-off",
            remedy="Convert the model: net.float().",
        )
    activation: Tensor = found.detach().clone()
    return activation


def _only_floating(inputs: Nested) -> list[str]:
    tensors = [(path, leaf) for path, leaf in leaves(inputs) if isinstance(leaf, Tensor)]
    floating = [path for path, leaf in tensors if leaf.is_floating_point()]
    more = f" and {len(floating) - 5} more" if len(floating) > 5 else ""
    listed = "Stack a list of samples: torch.stack(x), or np.stack(x). "
    remedy = (
        (listed if isinstance(inputs, list | tuple) else "")
        + "If the model takes several parts, say which may move: "
        "Classifier(net, space=Space(vary=[...])), with unpack=True if each is an argument."
        if floating
        else "Whole numbers cannot move. For token ids move the embeddings, by the name of that "
        "layer: Classifier(net, module='embedding')."
    )
    got = f"none, and {len(floating)} floating tensors to choose from: {floating[:5]}{more}"
    require(len(floating) == 1, "vary", "the names of the parts that may move", got, remedy)
    return floating


def _moving_leaf(clf: Classifier, found: dict[str, Any], path: str) -> Tensor:
    expected = f"a nested input with the part {path!r}, which is what may move"
    remedy = f"Pass all parts that the model takes by name: {{{path!r}: x, ...}}."
    single = bool(path) and list(found) == [""]
    require(not single, "x", expected, "one tensor without parts", remedy)
    remedy = "Paths are keys and positions joined by dots, such as 'image' or 'views.0'."
    require(path in found, "vary", f"parts of the input, {sorted(found)}", repr(path), remedy)
    return check_batch(clf, found[path], f"x[{path!r}]" if path else "x")
