"""Frozen dataclasses of which a file may hold only some fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

from credibly.errors import NotStoredError


class Partial:
    """A dataclass that may lack fields; whoever asks for one of those is told so."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    if not TYPE_CHECKING:  # for the type checker every field is there, and nothing else

        def __getattr__(self, name: str) -> Any:
            if name in type(self).__dataclass_fields__:
                raise NotStoredError(name, of=type(self).__name__)
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message)

    @classmethod
    def holding(cls, values: Mapping[str, object]) -> Self:
        """One with these fields and without the others."""
        made = object.__new__(cls)
        for name, value in values.items():
            object.__setattr__(made, name, value)
        return made

    def stored(self) -> tuple[str, ...]:
        """Names of the fields that are there: all, unless it was read from a table."""
        return tuple(f.name for f in fields(self) if f.name in self.__dict__)
