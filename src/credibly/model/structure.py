"""Nested inputs: mappings, lists and tuples of tensors, taken apart by path and put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.types import from_numpy

Nested = Any
"""A tensor, or a mapping, list or tuple of nested inputs; other values pass through as they are."""


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
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*parts.values())  # a named tuple
    return type(x)(parts.values())


def as_tensors(x: Nested) -> Nested:
    """NumPy arrays become tensors; every tensor must have the same number of samples."""
    sizes: dict[str, int] = {}

    def convert(path: str, leaf: Any) -> Any:
        if path in sizes:
            raise _bad_leaf(path, "paths that tell the parts apart", "two parts of this path")
        if isinstance(leaf, np.ndarray):
            leaf = _from_numpy(path, leaf)
        if not isinstance(leaf, Tensor):
            return leaf
        if leaf.dim() == 0:
            raise _bad_leaf(path, "a tensor with the sample axis first", "a single number")
        sizes[path] = len(leaf)
        return leaf.clone() if leaf.is_inference() else leaf.detach()  # autograd must accept it

    with torch.inference_mode(False):
        converted = mapped(x, convert)
    expected = next(iter(sizes.values()), 0)
    for path, size in sizes.items():
        if size != expected:
            wanted = f"{expected} samples, as {next(iter(sizes))!r} has"
            raise _bad_leaf(path, wanted, f"{size}", _of_lists(x))
    if expected == 0:
        raise InvalidArgumentError(
            "x",
            expected="at least one sample in at least one tensor",
            got="none" if sizes else type(x).__name__,
            remedy="Pass a tensor, or a mapping, list or tuple of tensors (n, ...): of a table "
            "table.to_numpy(dtype='float32'), or name its columns, Space(columns=names), of texts "
            "tokenizer(texts, padding=True, return_tensors='pt').",
        )
    return converted


def rows_of(x: Nested, rows: Tensor | slice) -> Nested:
    """The chosen samples of every tensor."""
    return mapped(x, lambda _, leaf: leaf[rows] if isinstance(leaf, Tensor) else leaf)


def samples_in(x: Nested) -> int:
    """The number of samples of an input that `as_tensors` gave."""
    return next(len(leaf) for _, leaf in leaves(x) if isinstance(leaf, Tensor))


def device_in(x: Nested) -> torch.device:
    """Where the first tensor of an input that `as_tensors` gave lies."""
    return next(leaf.device for _, leaf in leaves(x) if isinstance(leaf, Tensor))


def _children(x: Nested) -> Iterable[tuple[Any, Any]] | None:
    """Pairs of key and value of a container; None for a leaf."""
    if isinstance(x, Mapping):
        return x.items()
    if isinstance(x, list | tuple):
        return enumerate(x)
    return None


def _from_numpy(path: str, leaf: Any) -> Tensor:
    try:
        return from_numpy(leaf)
    except (TypeError, ValueError) as error:
        raise _bad_leaf(path, "an array of numbers", f"an array of {leaf.dtype}") from error


def _of_lists(x: Nested) -> str:
    """A word about lists of samples, which are taken for parts, where there are lists."""
    parts = [x, *(value for _, value in _children(x) or ())]
    if not any(_is_of_arrays(part) for part in parts):
        return ""
    return (
        " The entries of a list are parts, not samples: of samples make one tensor, padded to one "
        "length (torch.nn.utils.rnn.pad_sequence)."
    )


def _is_of_arrays(x: Nested) -> bool:
    return isinstance(x, list) and any(isinstance(part, Tensor | np.ndarray) for part in x)


def _bad_leaf(path: str, expected: str, got: str, also: str = "") -> InvalidArgumentError:
    return InvalidArgumentError(
        f"x[{path!r}]" if path else "x",
        expected=expected,
        got=got,
        remedy="Every tensor of a nested input has one row a sample; give constants to the model "
        f"when it is built, or as plain numbers.{also}",
    )
