"""JSON from clients: objects, flags and nested lists of numbers, checked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from credibly.serve.refusal import in_words, refused


def array_of(values: Any, argument: str = "inputs") -> NDArray[Any]:
    """Nested lists of numbers as an array; texts, objects and ragged lists are refused."""
    try:
        found = np.array(values)
    except (ValueError, OverflowError, RecursionError) as error:
        remedy = "All rows must have the same shape."
        raise refused(
            argument, "numbers in a regular shape", "lists that differ", remedy
        ) from error
    if found.dtype.kind not in "fiu":
        remedy = "Send numbers alone: no text, no null, no true."
        raise refused(argument, "numbers", f"something else ({found.dtype})", remedy)
    return found


def parsed(content: bytes) -> dict[str, Any]:
    """The JSON object in a body."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        remedy = "Send a JSON object in UTF-8, with the header Content-Type: application/json."
        raise refused("body", "JSON", "something that cannot be read as JSON", remedy) from error
    if not isinstance(found, dict):
        remedy = 'For example {"inputs": [[0.5, 1.5]]}.'
        raise refused("body", "a JSON object", in_words(found), remedy)
    return found


def check_names(argument: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Refuse a name that nothing here has: it would be ignored."""
    for name in given:
        if name not in known:
            remedy = "Check the spelling, or leave it out."
            raise refused(argument, f"only {', '.join(known)}", repr(name)[:80], remedy)


def flag(content: Mapping[str, Any], name: str) -> bool:
    """A true or false that may be left out."""
    value = content.get(name, False)
    if not isinstance(value, bool):
        raise refused(name, "true or false", in_words(value), "Leave it out for false.")
    return value
