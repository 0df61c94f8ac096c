"""Options written once as a dataclass, and shown by typer as if a command had each of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

Command = Callable[..., None]


def spread(*, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Let a command take dataclasses of options; typer sees their fields instead.

    Args:
        without: fields that this command does not offer; they keep their defaults.
    """

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        parts: list[inspect.Parameter] = []
        groups: dict[str, tuple[type, list[str]]] = {}
        for name, parameter in signature.parameters.items():
            kind = parameter.annotation
            if isinstance(kind, type) and is_dataclass(kind):
                shown = [p for p in _parameters(kind) if p.name not in without]
                groups[name] = kind, [p.name for p in shown]
                parts += shown
            else:
                parts.append(parameter)

        @wraps(command)
        def flat(**values: Any) -> None:
            for name, (kind, own) in groups.items():
                values[name] = kind(**{field: values.pop(field) for field in own})
            command(**values)

        flat.__signature__ = signature.replace(parameters=parts)  # type: ignore[attr-defined]
        flat.__annotations__ = {p.name: p.annotation for p in parts} | {"return": None}
        return flat

    return decorate


def _parameters(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(f.name, keyword, default=f.default, annotation=hints[f.name])
        for f in fields(kind)
    ]
