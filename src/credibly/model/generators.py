"""Torch's global random generators, which all threads share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import RLock
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Result = TypeVar("Result")

_SEEDED = RLock()
"""Held while the generators are seeded for one computation."""


@dataclass
class Kept:
    """What is known of the model that runs while generators are kept.

    Attributes:
        draws: whether it draws from them; None: not known.
        around: the same of the keeping around this one.
    """

    draws: bool | None
    around: Kept | None

    def learn(self, *, draws: bool) -> None:
        """Note whether a model draws that runs inside, and hence inside of all around."""
        self.draws = draws or bool(self.draws)
        if self.around is not None:
            self.around.learn(draws=draws)


_INNERMOST: ContextVar[Kept | None] = ContextVar("_INNERMOST", default=None)


@contextmanager
def kept_generators(device: torch.device) -> Iterator[Kept]:
    """Leave the generators of the CPU and of this device as they are.

    They are put back only if a model may have drawn from them. Where it has, the draws that other
    threads made meanwhile are undone with its own: those threads get the same numbers again.
    """
    around = _INNERMOST.get()
    kept = Kept(around.draws if around else None, around)
    token = _INNERMOST.set(kept)
    with _SEEDED:
        before = _states(device)
    try:
        yield kept
    finally:
        _INNERMOST.reset(token)
        with _SEEDED:
            pairs = zip(before, _states(device), strict=True)
            if kept.draws is not False and not all(torch.equal(*pair) for pair in pairs):
                _restore(before, device)


@contextmanager
def seeded_generators(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the generators for what is inside, one thread at a time."""
    with _SEEDED:
        before = _states(device)
        try:
            torch.default_generator.manual_seed(seed)
            if device.type == "cuda":
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
            yield
        finally:
            _restore(before, device)


def watch_for_draws(run: Callable[[], Result]) -> tuple[Result, bool]:
    """What a computation gives, and whether it draws random numbers, in this thread alone."""
    watch = _Draws()
    try:
        with watch:
            return run(), watch.found
    except Exception:  # noqa: BLE001  # perhaps because it is watched
        return run(), True


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation of this thread, also those of compiled models."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would load its compiler only to step around this class: two seconds once."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.found = self.found or _is_global(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def _is_global(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a random operation draws from a global generator, and draws at all.

    Attention draws for its dropout only.
    """
    names = [argument.name for argument in operation._schema.arguments]  # noqa: SLF001
    given = dict(zip(names, args, strict=False)) | kwargs
    idle = "dropout_p" in names and given.get("dropout_p", 0.0) == 0
    return not idle and given.get("generator") is None


def _states(device: torch.device) -> list[Tensor]:
    """States of the generator of the CPU, and of that of a GPU."""
    own = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *own]


def _restore(states: list[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state, device)
