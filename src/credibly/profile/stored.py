"""Fields that a Parquet table does not hold."""

from __future__ import annotations

from typing import overload

from torch import Tensor

from credibly.errors import NotStoredError


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
