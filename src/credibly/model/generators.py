"""State of torch that all threads share: its random generators, and switches of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock, RLock
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.backends import cuda, cudnn, mha
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


class Switch:
    """Off while any thread needs it off; the last one to leave restores the first value.

    If each thread restored the value it found itself, the switch could stay off for good.
    """

    def __init__(
        self, get: Callable[[], Any], put: Callable[[Any], None], *, off: Any = False
    ) -> None:
        self._get, self._put, self._off = get, put, off
        self._lock, self._users, self._before = Lock(), 0, off

    @contextmanager
    def off(self) -> Iterator[None]:
        """Keep it off inside."""
        with self._lock:
            if self._users == 0:
                self._before = self._get()
            self._put(self._off)
            self._users += 1  # only then: torch refuses where its global flags are frozen
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._put(self._before)


FAST_PATH = Switch(mha.get_fastpath_enabled, mha.set_fastpath_enabled)
"""The fast path of torch's own transformer layers, used in eval mode without gradients."""

CUDNN = Switch(lambda: bool(cudnn.enabled), lambda value: setattr(cudnn, "enabled", value))
"""The convolutions and recurrent layers of NVIDIA's library."""


_ATTENTION: dict[Callable[[], bool], Callable[[bool], None]] = {
    cuda.flash_sdp_enabled: cuda.enable_flash_sdp,
    cuda.mem_efficient_sdp_enabled: cuda.enable_mem_efficient_sdp,
    cuda.cudnn_sdp_enabled: cuda.enable_cudnn_sdp,
    cuda.math_sdp_enabled: cuda.enable_math_sdp,
}


def _set_attention(flags: list[bool]) -> None:
    for put, flag in zip(_ATTENTION.values(), flags, strict=True):
        put(flag)


FUSED_ATTENTION = Switch(
    lambda: [get() for get in _ATTENTION], _set_attention, off=[False, False, False, True]
)
"""Kernels of attention that have a first derivative only; off leaves the plain operations."""
