"""A network with something else in the place of some of its parts; the network itself is untouched.

Several threads may thus use one network. The modules that lead to a part are copied, which is cheap
since a copy shares every tensor and every other module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from threading import RLock, get_ident
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.hooks import RemovableHandle

from credibly.model.references import blank, compiled_from, fill, is_compiled, leading_to

ALONE = RLock()
"""Held while a network that cannot be copied is changed for the length of one call."""

_HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_backward_hooks",
    "_backward_pre_hooks",
)  # fmt: skip
_OWN = ("_modules", "_parameters", "_buffers", *_HOOKS)
"""Tables of a module that a copy has for itself, so that a write does not reach the original."""


@dataclass(frozen=True, eq=False)
class Parts:
    """Modules and parameters of a network, for which others can be put in place.

    Attributes:
        net: the network.
        modules: by name.
        parameters: by name.
        beside: functions that are called with it, which may refer to its parts.
        in_place: whether the network itself is changed for the length of a call, by one thread at a
            time. That is for networks of which no copy can be made: compiled by TorchScript, or
            with references to the parts in places such as global variables. A hook then has no
            effect on other threads; other parameters have, so use such a network in one thread.
        silent: whether running the modules has no effect but their outputs.
        copied: what leads to the parts, and the modules themselves.
    """

    net: nn.Module
    modules: Mapping[str, nn.Module]
    parameters: Mapping[str, Tensor]
    beside: tuple[Any, ...] = ()
    in_place: bool = False
    silent: bool = False
    copied: tuple[Any, ...] = field(default=(), repr=False)

    @classmethod
    def of(
        cls,
        net: nn.Module,
        *,
        modules: Sequence[str] = (),
        parameters: Sequence[str] = (),
        beside: tuple[Any, ...] = (),
    ) -> Parts:
        """Find out which modules have to be copied, once for any number of copies."""
        inside = dict(net.named_modules(remove_duplicate=False))  # TorchScript has no get_submodule
        every = dict(net.named_parameters(remove_duplicate=False)) if parameters else {}
        found = cls(
            net,
            {name: inside[name] for name in modules},
            {name: every[name] for name in parameters},
            beside,
        )
        copied = _to_copy(found)
        if copied is None:
            return replace(found, in_place=True)
        return replace(found, copied=tuple(copied))

    def on(self, net: nn.Module) -> Parts:
        """The same parts of another network."""
        if net is self.net:
            return self
        names = {"modules": tuple(self.modules), "parameters": tuple(self.parameters)}
        found = Parts.of(net, beside=self.beside, **names)
        return replace(found, in_place=found.in_place or self.in_place, silent=self.silent)

    def copy(
        self, parameters: Mapping[str, Tensor] | None = None
    ) -> tuple[nn.Module, list[nn.Module]]:
        """A copy of the network with these parameters, and its own copies of the modules."""
        given = parameters or {}
        new: dict[int, Any] = {id(self.parameters[name]): given[name] for name in given}
        new |= {id(thing): _blank(thing) for thing in self.copied}
        for thing in self.copied:
            if is_compiled(thing):  # the copy runs what was compiled, as it is
                new[id(thing)] = new[id(compiled_from(thing))]
        for thing in self.copied:
            if not is_compiled(thing) and not isinstance(thing, torch.jit.ScriptModule):
                fill(new[id(thing)], thing, new)
            if isinstance(thing, nn.Module):
                own = vars(new[id(thing)])
                own |= {name: own[name].copy() for name in _OWN if name in own}
        return new.get(id(self.net), self.net), [new[id(part)] for part in self.modules.values()]

    @contextmanager
    def watched(
        self, hook: Callable[..., Any], before: Callable[..., Any] | None = None
    ) -> Iterator[nn.Module]:
        """The network with hooks on the modules, after and before they run."""
        if not self.in_place:
            net, modules = self.copy()
            _register(modules, hook, before)  # for good: the copies are used for this only
            yield net
            return
        with ALONE, ExitStack() as stack:
            own = _of_this_thread(hook), before and _of_this_thread(before)
            for handle in _register(self.modules.values(), *own):
                stack.callback(handle.remove)
            yield self.net

    @contextmanager
    def giving(self, values: Tensor) -> Iterator[nn.Module]:
        """The network in which the modules give these values."""
        everywhere = nn.modules.module._global_forward_hooks  # noqa: SLF001  # would run again
        if self.in_place or not self.silent or everywhere:
            with self.watched(lambda *_: values) as net:
                yield net
            return
        net, modules = self.copy()
        for module in modules:
            own: dict[str, Any] = vars(module)
            own |= {name: type(own[name])() for name in _HOOKS if name in own}
            own["forward"] = lambda *_, **__: values
        yield net

    @contextmanager
    def training(self) -> Iterator[nn.Module]:
        """The network with the modules in training mode, and nothing else."""
        with ALONE if self.in_place else nullcontext():
            net, modules = (self.net, [*self.modules.values()]) if self.in_place else self.copy()
            before = [module.training for module in modules]
            try:
                for module in modules:
                    module.training = True
                yield net
            finally:
                for module, mode in zip(modules, before, strict=True):
                    module.training = mode

    @contextmanager
    def holding(self, parameters: Mapping[str, Tensor]) -> Iterator[Callable[..., Any]]:
        """The network with these parameters."""
        if self.in_place:
            with ALONE:
                yield partial(_called, self.net, dict(parameters))
        else:
            yield self.copy(parameters)[0]


@dataclass
class Recording:
    """What a module gives in one run of a network; its methods are hooks."""

    outputs: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    versions: list[Any] = field(default_factory=list)
    silent: bool = True
    _before: list[tuple[Any, Any]] = field(default_factory=list)

    def before(self, module: nn.Module, _inputs: object) -> None:
        """Remember how the module is before it runs."""
        self._before = _state(module)

    def after(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """Keep what it takes and gives, and notice if it has changed."""
        self.outputs.append(output)
        self.inputs.append(inputs)
        self.versions.append(writes_into(output))
        now = _state(module)
        same = len(now) == len(self._before) and all(
            value is other and mark == mark_then
            for (value, mark), (other, mark_then) in zip(now, self._before, strict=True)
        )
        self.silent = self.silent and same


def without_hooks(module: nn.Module) -> bool:
    """Whether no hook of the user would be left out if the module did not run."""
    return not any(getattr(part, name) for part in module.modules() for name in _HOOKS)


def _state(module: nn.Module) -> list[tuple[Any, Any]]:
    """Everything a module and its submodules hold, with marks that change when it is written to."""
    held = [value for part in module.modules() for value in list(vars(part).values())]
    inner = [v for value in held if isinstance(value, dict) for v in list(value.values())]
    return [(value, writes_into(value)) for value in (*held, *inner)]


def writes_into(value: Any) -> int | None:
    """A number that changes when a tensor is written into, or a container grows or shrinks."""
    if isinstance(value, Tensor):
        return None if value.is_inference() else value._version  # noqa: SLF001
    return len(value) if isinstance(value, dict | list | set) else None


def _to_copy(parts: Parts) -> list[Any] | None:
    """The modules, and all that leads to the parts; None if no copy can be made."""
    wanted = list(parts.modules.values())
    wanted += [compiled_from(module) for module in wanted if is_compiled(module)]
    beside = SimpleNamespace(called=parts.beside)
    leading = leading_to([*parts.net.modules(), beside], [*wanted, *parts.parameters.values()])
    if leading is None or any(thing is beside for thing in leading):
        return None
    own = {id(module) for module in wanted}
    leading = [thing for thing in leading if id(thing) not in own]
    try:
        for thing in leading:
            blank(thing)
        for module in wanted:
            _blank(module)
    except TypeError:  # such as TorchScript, or an object that is not of Python
        return None
    return [*wanted, *leading]


def _blank(thing: Any) -> Any:
    return _Around(thing) if isinstance(thing, torch.jit.ScriptModule) else blank(thing)


class _Around(nn.Module):
    """Calls a compiled module, of which there are no copies."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.inner = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)


def _register(
    modules: Iterable[nn.Module], hook: Callable[..., Any], before: Callable[..., Any] | None
) -> list[RemovableHandle]:
    handles = []
    for module in modules:
        if isinstance(module, torch.jit.ScriptModule):
            continue  # takes no hooks, and is not seen to run
        handles.append(module.register_forward_hook(hook))
        if before is not None:
            handles.append(module.register_forward_pre_hook(before))
    return handles


def _of_this_thread(hook: Callable[..., Any]) -> Callable[..., Any]:
    """The hook, without effect on threads of the user that run the network meanwhile."""
    thread = get_ident()
    return lambda *args: hook(*args) if get_ident() == thread else None


def _called(net: nn.Module, parameters: dict[str, Tensor], *args: Any, **kwargs: Any) -> Any:
    return functional_call(net, parameters, args, kwargs, strict=False)
