"""Options written once as a dataclass, and shown by typer as if a command had each of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

Command = Callable[..., None]


def spread(*, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Let a command take dataclasses of options; typer sees their fields in their place.

    Args:
        without: fields that this command does not offer, which keep their defaults.
    """

    def decorate(command: Command) -> Command:
        whole = inspect.signature(command, eval_str=True)
        groups = {n: p.annotation for n, p in whole.parameters.items() if _is_group(p.annotation)}
        parts: list[inspect.Parameter] = []
        for name, parameter in whole.parameters.items():
            shown = _parameters(groups[name], without) if name in groups else [parameter]
            parts.extend(shown)

        @wraps(command)
        def flat(**values: Any) -> None:
            for name, kind in groups.items():
                own = [f.name for f in fields(kind) if f.name not in without]
                values[name] = kind(**{field: values.pop(field) for field in own})
            command(**values)

        flat.__signature__ = whole.replace(parameters=parts)  # type: ignore[attr-defined]
        flat.__annotations__ = {p.name: p.annotation for p in parts} | {"return": None}
        return flat

    return decorate


def _is_group(annotation: object) -> bool:
    return isinstance(annotation, type) and is_dataclass(annotation)


def _parameters(kind: type, without: Collection[str]) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name]
        )
        for f in fields(kind)
        if f.name not in without
    ]
