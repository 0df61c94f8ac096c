"""Dataclasses of tensors with one row per sample, some of which may be missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import Field, fields
from typing import Any, ClassVar, Self, overload

import torch
from torch import Tensor

from credibly.errors import NotStoredError


class Rows:
    """A dataclass whose tensors, and whose parts that have a `select`, have one row per sample.

    Other values, and fields that are None, stay as they are.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def select(self, rows: Tensor | slice) -> Self:
        """The chosen samples."""
        return type(self)(**{name: _rows_of(value, rows) for name, value in self._parts().items()})

    def copy(self) -> Self:
        """The same values in tensors of their own."""
        return type(self)(
            **{n: v.clone() if isinstance(v, Tensor) else v for n, v in self._parts().items()}
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """All samples of the parts; a field that one of them lacks is None."""
        together = {f.name: [vars(part)[f.name] for part in parts] for f in fields(cls)}
        return cls(**{name: _joined(values) for name, values in together.items()})

    def _parts(self) -> dict[str, Any]:
        return {f.name: vars(self)[f.name] for f in fields(self)}


def spread(values: Tensor, rows: Tensor, filling: float = torch.nan) -> Tensor:
    """`values` in the rows where the mask `rows` (n,) is true, `filling` in the others."""
    whole = values.new_full((len(rows), *values.shape[1:]), filling)
    whole[rows] = values
    return whole


def _rows_of(value: Any, rows: Tensor | slice) -> Any:
    if isinstance(value, Tensor):
        return value[rows]
    return value.select(rows) if hasattr(value, "select") else value


def _joined(values: list[Any]) -> Any:
    if any(value is None for value in values):
        return None
    if isinstance(values[0], Tensor):
        return torch.cat(values)
    return values[0].concatenate(values) if isinstance(values[0], Rows) else values[0]


FULL = 4
"""Rows that a CPU multiplies at once; see `filled_up`."""


def filled_up(count: int, device: torch.device) -> Tensor:
    """The numbers of `count` rows, the last one repeated until there are 4, 8, 12 ... of them.

    On a CPU the last bits of what a network gives for one row depend on how many are beside it, for
    convolutions and most linear layers but for such numbers. At kinks these bits decide which way a
    descent goes: without the copies, an input that is solved alone can end elsewhere than in a
    batch.
    """
    return torch.arange(-(-count // FULL) * FULL, device=device).clamp(max=count - 1)


class Stored:
    """A tensor field of a dataclass that may be missing (None); reading it then raises."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> None: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Tensor: ...
    def __get__(self, instance: object, owner: type) -> Tensor | None:
        if instance is None:  # asked by `dataclass` for the default
            return None
        value: Tensor | None = vars(instance)[self.name]
        if value is None:
            raise NotStoredError(self.name, of=owner.__name__)
        return value

    def __set__(self, instance: object, value: Tensor | None) -> None:
        vars(instance)[self.name] = value
