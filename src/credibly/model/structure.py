"""Nested inputs: mappings, lists and tuples of tensors, taken apart by path and put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from credibly._validation import require
from credibly.errors import InvalidArgumentError
from credibly.types import from_numpy

Nested = Any
"""A tensor, or a mapping, list or tuple of nested inputs; other values pass through as they are."""

_REMEDY = (
    "Every tensor of a nested input has one row per sample. Entries of a list are parts, not "
    "samples: put samples into one tensor, padded to one length "
    "(torch.nn.utils.rnn.pad_sequence). Pass constants as plain numbers."
)


def leaves(x: Nested, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path: keys and positions joined by dots; '' is the whole input."""
    children = _children(x)
    if children is None:
        yield path, x
        return
    for key, value in children:
        yield from leaves(value, f"{path}.{key}" if path else str(key))


def mapped(x: Nested, function: Callable[[str, Any], Any], path: str = "") -> Nested:
    """The same structure with every leaf replaced by function(path, leaf)."""
    children = _children(x)
    if children is None:
        return function(path, x)
    parts = {
        key: mapped(value, function, f"{path}.{key}" if path else str(key))
        for key, value in children
    }
    if isinstance(x, Mapping):
        return parts
    if hasattr(x, "_fields"):
        return type(x)(*parts.values())  # a named tuple
    return type(x)(parts.values())


def as_tensors(x: Nested) -> Nested:
    """NumPy arrays become tensors; every tensor must have the same number of samples."""
    sizes: dict[str, int] = {}

    def convert(path: str, leaf: Any) -> Any:
        _check(path not in sizes, path, "paths that tell the parts apart", "two parts of this path")
        if isinstance(leaf, np.ndarray):
            leaf = _from_numpy(path, leaf)
        if not isinstance(leaf, Tensor):
            return leaf
        _check(leaf.dim() > 0, path, "a tensor with the sample axis first", "a single number")
        sizes[path] = len(leaf)
        return leaf.clone() if leaf.is_inference() else leaf.detach()  # autograd must accept it

    with torch.inference_mode(False):
        converted = mapped(x, convert)
    first, count = next(iter(sizes.items()), ("", 0))
    for path, size in sizes.items():
        _check(size == count, path, f"{count} samples, as {first!r} has", f"{size}")
    require(
        count > 0,
        "x",
        "at least one sample in at least one tensor",
        "none" if sizes else type(x).__name__,
        "Pass a tensor, or a mapping, list or tuple of tensors (n, ...). For a table pass "
        "table.to_numpy(dtype='float32') or name its columns, Space(columns=names); for texts pass "
        "tokenizer(texts, padding=True, return_tensors='pt').",
    )
    return converted


def rows_of(x: Nested, rows: Tensor | slice) -> Nested:
    """The chosen samples of every tensor."""
    return mapped(x, lambda _, leaf: leaf[rows] if isinstance(leaf, Tensor) else leaf)


def split(flat: Tensor, names: Sequence[str], shapes: Sequence[torch.Size]) -> dict[str, Tensor]:
    """Flat values (n, D) as named parts, each (n, *shape)."""
    pieces = torch.split(flat, [shape.numel() for shape in shapes], dim=1)
    parts = zip(names, pieces, shapes, strict=True)
    return {name: piece.reshape(-1, *shape) for name, piece, shape in parts}


def samples_in(x: Nested) -> int:
    """The number of samples of an input from `as_tensors`."""
    return len(_first_tensor(x))


def device_in(x: Nested) -> torch.device:
    """The device of the first tensor of an input from `as_tensors`."""
    return _first_tensor(x).device


def _first_tensor(x: Nested) -> Tensor:
    return next(leaf for _, leaf in leaves(x) if isinstance(leaf, Tensor))


def _children(x: Nested) -> Iterable[tuple[Any, Any]] | None:
    """Pairs of key and value of a container; None for a leaf."""
    if isinstance(x, Mapping):
        return x.items()
    return enumerate(x) if isinstance(x, list | tuple) else None


def _from_numpy(path: str, leaf: Any) -> Tensor:
    try:
        return from_numpy(leaf)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            _name(path), expected="an array of numbers", got=f"{leaf.dtype}", remedy=_REMEDY
        ) from error


def _check(holds: bool, path: str, expected: str, got: str) -> None:  # noqa: FBT001
    require(holds, _name(path), expected, got, _REMEDY)


def _name(path: str) -> str:
    return f"x[{path!r}]" if path else "x"
