"""Nested inputs: mappings, lists and tuples of tensors, taken apart by path and put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError

Nested = Any
"""A tensor, or a mapping, list or tuple of nested inputs; other values pass through as they are."""


def leaves(x: Nested, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path: keys and positions joined by dots; '' is the whole input."""
    for key, value in _children(x):
        yield from leaves(value, f"{path}.{key}" if path else str(key))
    if _children(x) is _NONE:
        yield path, x


def mapped(x: Nested, function: Callable[[str, Any], Any], path: str = "") -> Nested:
    """The same structure with every leaf replaced by function(path, leaf)."""
    if _children(x) is _NONE:
        return function(path, x)
    parts = {
        key: mapped(value, function, f"{path}.{key}" if path else str(key))
        for key, value in _children(x)
    }
    if isinstance(x, Mapping):
        return parts
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*parts.values())  # a named tuple
    return type(x)(parts.values())


def as_tensors(x: Nested, *, count: int | None = None) -> Nested:
    """NumPy arrays become tensors; every tensor must have the same number of samples."""
    sizes: dict[str, int] = {}

    def convert(path: str, leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray) and leaf.dtype != object:
            leaf = torch.from_numpy(np.require(leaf, requirements=["C", "W"]))
        if isinstance(leaf, Tensor):
            if leaf.dim() == 0:
                raise _bad_leaf(path, "a tensor with the sample axis first", "a single number")
            sizes[path] = len(leaf)
        return leaf.detach() if isinstance(leaf, Tensor) else leaf

    converted = mapped(x, convert)
    expected = count if count is not None else next(iter(sizes.values()), 0)
    for path, size in sizes.items():
        if size != expected:
            raise _bad_leaf(path, f"{expected} samples, as the other parts have", f"{size}")
    if expected == 0:
        raise InvalidArgumentError(
            "x",
            expected="at least one sample in at least one tensor",
            came=f"{sorted(sizes) or type(x).__name__}",
            remedy="Pass a tensor, or a mapping, list or tuple of tensors (n, ...).",
        )
    return converted


def rows_of(x: Nested, rows: Tensor | slice) -> Nested:
    """The chosen samples of every tensor."""
    return mapped(x, lambda _, leaf: leaf[rows] if isinstance(leaf, Tensor) else leaf)


_NONE: tuple[tuple[Any, Any], ...] = ()


def _children(x: Nested) -> Any:
    """Pairs of key and value of a container; the object _NONE for a leaf."""
    if isinstance(x, Mapping):
        return list(x.items())
    if isinstance(x, list | tuple):
        return list(enumerate(x))
    return _NONE


def _bad_leaf(path: str, expected: str, came: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"x[{path!r}]" if path else "x",
        expected=expected,
        came=came,
        remedy="Every tensor of a nested input has one row a sample; give constants to the model "
        "when it is built, or as plain numbers.",
    )
