"""What identifies a function: its code, and the values it computes with."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.io.fingerprints import (
    digest_of_module,
    digest_of_parts,
    digest_of_tensor,
    short_module_name,
)
from credibly.model.losses import CustomLoss, Loss

_DEEPEST = 8
"""How far values inside values are followed."""

_PLAIN = (
    bool, int, float, complex, str, bytes, type(None), type(...), slice, range, np.generic,
    torch.dtype, torch.device,
)  # fmt: skip
"""What is known by how it is written."""

_OF_MODULES = frozenset(vars(nn.Module())) - {"training"}
"""Where a module keeps parameters, buffers, hooks and parts; what counts is read elsewhere."""

_LIBRARIES = ("builtins", "torch", "numpy")
"""Their code is known by their versions."""


def digest_of_callable(function: object) -> str:
    """Name and digest of a function or an object that can be called.

    Two processes that run the same code find the same. Changes of its code are seen, and of the
    numbers, tensors, arrays, modules and functions that it has as constants, defaults, attributes,
    globals or from around it. What it reads from files, other modules or libraries is not.
    """
    name = getattr(function, "__qualname__", type(function).__qualname__)
    name = name.rpartition(".")[2]
    return f"{name} {digest_of_parts([('callable', _Reader().words(function))])[:16]}"


def words_of_loss(loss: Loss) -> str:
    """A loss in words that another one does not have: one's own by its code, not by its name."""
    if not isinstance(loss, CustomLoss):
        return repr(loss)
    return f"CustomLoss({digest_of_callable(loss.function)}, kinked={loss.kinked})"


@dataclass
class _Reader:
    """Turns values into words that are the same in every process."""

    above: set[int] = field(default_factory=set)

    def words(self, value: Any) -> str:
        if isinstance(value, _PLAIN):
            return repr(value)
        if len(self.above) > _DEEPEST or id(value) in self.above:  # it calls itself, say
            return _kind(value)
        self.above.add(id(value))
        try:
            return self._inside(value)
        finally:
            self.above.discard(id(value))

    def _inside(self, value: Any) -> str:
        if isinstance(value, Tensor):
            return digest_of_tensor(value)
        if isinstance(value, np.ndarray):
            return f"array {value.dtype} {value.tolist()}"
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{self.words(k)}: {self.words(v)}' for k, v in value.items())}}}"
        if isinstance(value, list | tuple):
            return f"[{', '.join(self.words(part) for part in value)}]"
        if isinstance(value, set | frozenset):
            return f"{{{', '.join(sorted(self.words(part) for part in value))}}}"
        return self._called(value)

    def _called(self, value: Any) -> str:
        if isinstance(value, functools.partial):
            return f"partial {self.words([value.func, value.args, value.keywords])}"
        if isinstance(value, MethodType):
            return f"method {self.words([value.__func__, value.__self__])}"
        if isinstance(value, FunctionType):
            return self._function(value)
        return self._module(value) if isinstance(value, nn.Module) else self._object(value)

    def _function(self, function: FunctionType) -> str:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        around = {name: _content(cell) for name, cell in cells}
        names = sorted({name for code in _codes(function.__code__) for name in code.co_names})
        home = function.__module__
        outside = {
            name: function.__globals__[name]
            for name in names
            if name in function.__globals__ and _counts(function.__globals__[name], home)
        }
        values = [function.__defaults__, function.__kwdefaults__, around, outside]
        return f"function {self._code(function.__code__)} {[self.words(part) for part in values]}"

    def _code(self, code: CodeType) -> str:
        constants = [
            self._code(part) if isinstance(part, CodeType) else self.words(part)
            for part in code.co_consts
        ]
        return f"{code.co_code.hex()} {constants} {code.co_names}"

    def _module(self, module: nn.Module) -> str:
        parts = []
        for name, part in module.named_modules():
            own = {k: v for k, v in _state(part).items() if k not in _OF_MODULES}
            parts.append(f"{name} {_kind(part)} {self._methods(part)} {self.words(own)}")
        return f"{digest_of_module(module)} {parts}"

    def _object(self, value: Any) -> str:
        state = {} if isinstance(value, type) else _state(value)
        return f"{_kind(value)} {self._methods(value)} {self.words(state)}"

    def _methods(self, value: object) -> str:
        """The code of every function of the value's class and of those it comes from."""
        found = {
            f"{kind.__qualname__}.{name}": self._code(method.__code__)
            for kind in reversed(type(value).__mro__)
            if kind.__module__.partition(".")[0] not in _LIBRARIES
            for name, method in vars(kind).items()
            if isinstance(method, FunctionType)
        }
        return str(sorted(found.items()))


def _state(value: object) -> dict[str, Any]:
    """What an object holds, whether in a dict or in slots."""
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return {**held, **getattr(value, "__dict__", {})}


def _kind(value: object) -> str:
    known = value if hasattr(value, "__qualname__") else type(value)
    home = short_module_name(getattr(known, "__module__", None) or "")
    return f"{home}.{getattr(known, '__qualname__', '')}"


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A code and all that is defined inside of it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _codes(part)


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # a name that was never given a value
        return None


def _counts(value: object, home: str) -> bool:
    """Globals that are values, or functions of the same file; libraries are known by versions."""
    if isinstance(value, FunctionType):
        return value.__module__ == home
    kinds = (*_PLAIN, Tensor, np.ndarray, nn.Module, Mapping, list, tuple, set, frozenset)
    return isinstance(value, kinds)
