"""Labels and targets of attacked inputs."""

from __future__ import annotations

from typing import NoReturn

from torch import Tensor

from credibly.decide.arguments import plain_labels
from credibly.errors import InvalidArgumentError


def checked_classes(
    name: str, classes: object, x: Tensor, count: int | None, *, unlike: Tensor | None = None
) -> Tensor:
    """Classes (n,) as whole numbers on the device of x, or a clear error.

    Args:
        name: of the argument.
        classes: what came.
        x: the inputs (n, ...).
        count: how many classes there are, where that is known already.
        unlike: labels, which must not be their own targets.
    """
    given = plain_labels(classes, name)
    whole = not given.is_floating_point() and not given.is_complex()
    if not whole or tuple(given.shape) != (len(x),):
        got = f"shape {tuple(given.shape)} of {given.dtype}"
        _refuse(name, f"{len(x)} whole numbers, one a sample", got)
    found = given.to(x.device).long()
    if count is not None and bool(((found < 0) | (found >= count)).any()):
        got = f"values in {int(found.min())} to {int(found.max())}"
        _refuse(name, f"whole numbers from 0 to {count - 1}", got)
    if unlike is not None and bool((found == unlike).any()):
        _refuse(name, "classes other than the labels", "a label as its own target")
    return found


def _refuse(name: str, expected: str, got: str) -> NoReturn:
    raise InvalidArgumentError(
        name,
        expected=expected,
        got=got,
        remedy="Pass the classes of these very inputs as numbers, in the order of the model's "
        "outputs; targets differ from the labels.",
    )
