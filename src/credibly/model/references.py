"""What a network refers to, and copies of it with other things in place of some.

Besides modules and tensors these are functions, with the variables they refer to, and objects; a
network may call its modules by them. Lists, tables, methods and the like are looked into.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ReferenceType

import numpy as np
import torch
from torch import Tensor, nn

_DEEPEST = 5
"""So many containers inside of one another are looked into."""

_MOST = 10_000
"""So many functions and objects are looked into, and containers of at most so many items."""

_PLAIN: tuple[type, ...] = (
    str, bytes, int, float, complex, type(None), type, ModuleType, np.ndarray, torch.dtype,
    torch.device, torch.Size, torch.Generator, BuiltinFunctionType,
    torch.fx.Graph,  # says what a GraphModule computes, but does not compute
    torch.optim.Optimizer,  # trains, and is not run
)  # fmt: skip
"""What is not looked into."""

_COMMON = frozenset((str, int, bool, float, type(None), type, torch.dtype, torch.device))
_CONTAINERS = (dict, list, tuple, set, frozenset)

_SKIPPED = "_compiled_call_impl"
"""What a copy of a module does without: `net.compile()`, which runs the module itself."""


def leading_to(roots: Iterable[Any], targets: Iterable[Any]) -> list[Any] | None:
    """Everything that refers to a target, or to what does; None if a place cannot be copied.

    Such places are keys, sets, weak references, what a class has, and objects of other languages.
    """
    holders = defaultdict[int, list[tuple[Any, bool]]](list)
    waiting = list(roots)
    known = {id(node) for node in waiting}
    while waiting:
        node = waiting.pop()
        for thing, hidden in _references(node):
            holders[id(thing)].append((node, hidden))
            if not isinstance(thing, nn.Module | Tensor) and id(thing) not in known:
                known.add(id(thing))
                waiting += [thing] if len(known) < _MOST else []
    found: dict[int, Any] = {}
    queue = [id(target) for target in targets]
    while queue:
        for holder, hidden in holders[queue.pop()]:
            if hidden:
                return None
            if id(holder) not in found:
                found[id(holder)] = holder
                queue.append(id(holder))
    return list(found.values())


def blank(thing: Any) -> Any:
    """A copy of a module, a function or an object, to be filled; TypeError if there is none."""
    if isinstance(thing, FunctionType):
        cells = tuple(CellType() for _ in thing.__closure__ or ())
        return FunctionType(
            thing.__code__, thing.__globals__, thing.__name__, thing.__defaults__, cells
        )
    if isinstance(thing, torch.jit.ScriptModule) or not hasattr(thing, "__dict__"):
        raise TypeError
    return object.__new__(type(thing))


def fill(copied: Any, thing: Any, new: Mapping[int, Any]) -> None:
    """Give a blank copy all that the original has, with other things in place of some."""
    held = dict(vars(thing))
    if _SKIPPED in held:
        held[_SKIPPED] = None
    vars(copied).update({name: rewritten(value, new) for name, value in held.items()})
    if isinstance(thing, FunctionType):
        copied.__kwdefaults__ = thing.__kwdefaults__
        for cell, original in zip(copied.__closure__ or (), thing.__closure__ or (), strict=True):
            for value in _content(original):
                cell.cell_contents = rewritten(value, new)


def rewritten(value: Any, new: Mapping[int, Any], depth: int = 0) -> Any:
    """A copy with other things in place of some, by identity; the same value if none is inside."""
    if id(value) in new:
        return new[id(value)]
    kind = type(value)
    if kind not in _REBUILD or _is_empty(value) or depth >= _DEEPEST:
        return value
    old = [item for item, hidden in _items(value) if not hidden]
    items = [rewritten(item, new, depth + 1) for item in old]
    same = all(one is other for one, other in zip(old, items, strict=True))
    return value if same else _REBUILD[kind](value, items)


def is_compiled(module: object) -> bool:
    """Whether this is what torch.compile makes of a module."""
    compiler = sys.modules.get("torch._dynamo.eval_frame")  # slow to import, and often not needed
    return compiler is not None and isinstance(module, compiler.OptimizedModule)


def compiled_from(module: nn.Module) -> nn.Module:
    """The module that was compiled."""
    return module.get_submodule("_orig_mod")


def _references(node: Any) -> list[tuple[Any, bool]]:
    """What a module, a function or an object refers to, and whether the place is hidden."""
    found: list[tuple[Any, bool]] = []
    held = dict(vars(node))
    if isinstance(node, nn.Module):
        # all else that a compiled one holds is about the compiled form
        held = {"_modules": held["_modules"]} if is_compiled(node) else held | {_SKIPPED: None}
        _collect(getattr(type(node), "forward", None), found, hidden=True)
    for value in held.values():
        _collect(value, found)
    if isinstance(node, FunctionType):
        for cell in node.__closure__ or ():
            _collect(_content(cell), found)
        _collect(node.__defaults__, found, hidden=True)
    return found


def _collect(
    value: Any, found: list[tuple[Any, bool]], *, hidden: bool = False, depth: int = 0
) -> None:
    """Modules, tensors, functions and objects in a value."""
    if _is_empty(value) or isinstance(value, _PLAIN):
        return
    if isinstance(value, nn.Module | Tensor | FunctionType) or _is_object(value):
        found.append((value, hidden))
    elif depth < _DEEPEST:
        for item, hides in _items(value):
            _collect(item, found, hidden=hidden or hides, depth=depth + 1)


def _is_empty(value: Any) -> bool:
    """Whether there is surely nothing in it: most of what a module holds."""
    kind = type(value)
    return kind in _COMMON or (issubclass(kind, _CONTAINERS) and not value)


def _is_object(value: Any) -> bool:
    return hasattr(value, "__dict__") and not isinstance(value, (*_CONTAINERS, MethodType, partial))


def _items(value: Any) -> list[tuple[Any, bool]]:
    """The items of a container, a method or the like, and whether their place is hidden."""
    hidden = type(value) not in _REBUILD
    if isinstance(value, _CONTAINERS):
        if len(value) > _MOST:
            return []
        keys = [(key, True) for key in value] if isinstance(value, dict) else []
        items = list(value.values()) if isinstance(value, dict) else list(value)
        return [(item, hidden) for item in items] + keys
    if isinstance(value, MethodType):
        return [(value.__self__, False), (value.__func__, False)]
    if isinstance(value, partial):
        return [(item, hidden) for item in (value.func, value.args, value.keywords)]
    if isinstance(value, ReferenceType) and isinstance(value(), nn.Module):
        return [(value(), True)]
    return []


def _content(cell: CellType) -> list[Any]:
    """The value of a variable of a function, if it has one."""
    try:
        return [cell.cell_contents]
    except ValueError:  # not assigned yet
        return []


def _rebuilt_partial(value: partial[Any], items: list[Any]) -> partial[Any]:
    function, arguments, keywords = items
    made = partial(function, *arguments, **keywords)
    made.__dict__.update(value.__dict__)
    return made


_REBUILD: dict[type, Any] = {
    dict: lambda value, items: dict(zip(value, items, strict=True)),
    OrderedDict: lambda value, items: OrderedDict(zip(value, items, strict=True)),
    list: lambda _, items: items,
    tuple: lambda _, items: tuple(items),
    MethodType: lambda _, items: MethodType(items[1], items[0]),
    partial: _rebuilt_partial,
}
"""How a value is made again from its items."""
